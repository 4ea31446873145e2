//! Reads whose bodies go straight into the arena. The bytes are summed right after they are written, while
//! they are in the processor's cache. A range of a local file is read and summed on a thread of its own.

mod strips;

use std::ops::Range;
use std::sync::Arc;

use batchweave_core::crc::Crc32c;
use batchweave_core::tgb::ranges::Read;
use batchweave_store::{Body, Effect, ErrorKind, FileRange, Op, StoreError};
use futures::future::join_all;

use self::strips::{Strips, Sum};
use super::retry::{ReadError, open, short_body, with_retries};
use super::{Fetcher, Target};
use crate::metrics::Metrics;

/// Reads `read` into the arena, with `fresh` on new connections. Returns the checksum of each target's bytes
/// behind its header.
pub(super) async fn fill(
    fetcher: &Fetcher,
    read: &Read,
    targets: &[Target],
    fresh: bool,
) -> Result<Vec<Crc32c>, ReadError> {
    let pieces = read.pieces().into_iter().map(|range| {
        with_retries(fetcher, fresh, move |fresh| {
            once(fetcher, &read.key, range.clone(), targets, fresh)
        })
    });
    let mut sums = vec![Crc32c::new(); targets.len()];
    // All have ended when one has failed: the read of a file goes on without its future, into memory that is
    // given to other frames.
    for piece in join_all(pieces).await {
        for sum in piece? {
            let whole = &mut sums[sum.target];
            if whole.bytes() == 0 {
                *whole = sum.crc;
            } else {
                whole.append(&sum.crc);
            }
        }
    }
    Ok(sums)
}

/// Performs one request, from the first byte to the last.
async fn once(
    fetcher: &Fetcher,
    key: &str,
    range: Range<u64>,
    targets: &[Target],
    fresh: bool,
) -> Result<Vec<Sum>, ReadError> {
    let (metrics, context) = (&fetcher.resources.metrics, &fetcher.resources.context);
    let stages = &metrics.stages;
    let waiting = stages.wait.start_timer();
    let permit = fetcher.permits.acquire().await;
    drop(waiting);
    let strips = Strips::new(targets, &range)?;
    let asked = context.now();
    let mut body = open(fetcher, key, &range, fresh).await?;
    let answered = context.since(asked);
    let filled = match body.file() {
        Some(file) => on_a_thread(file, strips, Arc::clone(metrics)).await?,
        None => from_body(body.as_mut(), strips, metrics).await?,
    };
    if let Some(at) = filled.next_byte() {
        return Err(short_body(fetcher, key, at, range.end).into());
    }
    stages.crc.observe(filled.summing().as_secs_f64());
    let took = context.since(asked);
    stages.fetch.observe(took.as_secs_f64());
    permit.done(range.end - range.start, answered);
    Ok(filled.into_sums())
}

async fn from_body(
    body: &mut dyn Body,
    mut strips: Strips,
    metrics: &Metrics,
) -> Result<Strips, StoreError> {
    while let Some((_, into)) = strips.next_chunk() {
        let count = body.read(into).await?;
        if count == 0 {
            break;
        }
        metrics.bytes_fetched.inc_by(count as u64);
        strips.arrived(count);
    }
    Ok(strips)
}

async fn on_a_thread(
    file: FileRange,
    mut strips: Strips,
    metrics: Arc<Metrics>,
) -> Result<Strips, StoreError> {
    let reading = tokio::task::spawn_blocking(move || {
        while let Some((at, into)) = strips.next_chunk() {
            let count = file.read_at(at, into)?;
            if count == 0 {
                break;
            }
            metrics.bytes_fetched.inc_by(count as u64);
            strips.arrived(count);
        }
        Ok(strips)
    });
    reading.await.unwrap_or_else(|why| {
        let detail = format!("the read of a file was aborted: {why}");
        let (kind, effect) = (ErrorKind::Other, Effect::DidNot);
        Err(StoreError::new(
            Op::GetRange,
            "file://",
            kind,
            effect,
            detail,
        ))
    })
}
