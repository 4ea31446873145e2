//! The stream that is read: several batches per object, as producers write them.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_store::Store;

use crate::bench::stream::{SingleCommits, config, payload};

/// Size of an object: the producers' default, or one batch if that is larger.
const OBJECT_BYTES: u64 = 64 << 20;
/// Largest number of batches per object: they are committed together, and log entries are limited.
const ENTRY_TGBS: u64 = 128;
/// Tokens of a row, two bytes each.
const WIDTH: u32 = 2048;
/// Size unit of slices: whole rows.
pub(super) const ROW_BYTES: u64 = WIDTH as u64 * 2;

/// The shape of the written stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) slice_bytes: u64,
    pub(super) slices: u32,
    pub(super) steps: u64,
}

impl Shape {
    /// Returns the payload bytes of a step.
    pub(super) fn step_bytes(self) -> u64 {
        self.slice_bytes * u64::from(self.slices)
    }
}

/// Writes all batches of the shape into a new stream.
pub(super) async fn write(store: &Arc<dyn Store>, shape: Shape) -> Result<(), CliError> {
    let rows = (shape.slice_bytes / ROW_BYTES) as u32;
    let stream = config(shape.slices, rows, WIDTH - 1);
    let _ = batchweave_log::create(store, &stream).await?;
    let mut producer = SingleCommits::open(store, stream, "bench", 1).await?;
    let slices = vec![payload(rows, WIDTH)?; shape.slices as usize];
    let group = (OBJECT_BYTES / shape.step_bytes()).clamp(1, ENTRY_TGBS);
    let mut left = shape.steps;
    while left > 0 {
        let (first, count) = (producer.next_seq(), group.min(left));
        // Leaves space for frame headers, so that whole batches fill an object.
        let most = OBJECT_BYTES + OBJECT_BYTES / 16;
        let packed = producer.pack((first, first + count - 1), &slices, most)?;
        for object in packed.objects {
            let _ = store.upload(&object.key, object.bytes).await?;
        }
        producer.commit(packed.tgbs).await?;
        left -= count;
    }
    Ok(())
}
