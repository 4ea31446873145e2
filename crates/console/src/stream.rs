//! The parameters of a stream and its head, as several commands show them.

use batchweave_core::ids::{Step, Version};
use batchweave_core::manifest::Manifest;
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use serde::Serialize;

use crate::output::{count, joined};

/// The newest version and the number of steps.
#[derive(Debug, Serialize)]
pub struct Head {
    /// The newest version; `None` before the first commit.
    pub version: Option<Version>,
    /// Steps in the stream; the newest step is one less.
    pub steps: Step,
}

impl Head {
    /// Returns the head of a folded log.
    pub fn from_manifest(m: &Manifest) -> Self {
        Self {
            version: m.next_version().checked_sub(1),
            steps: m.next_step(),
        }
    }

    /// Formats the newest version; `none` stands for no commit.
    pub fn newest(&self) -> String {
        self.version.map_or("none".to_owned(), |v| v.to_string())
    }
}

/// Returns the parameters of a stream as lines.
pub fn rows(root: &str, stream: &StreamConfig) -> Vec<(&'static str, String)> {
    let tokens =
        u64::from(stream.slices) * u64::from(stream.rows_per_slice) * u64::from(stream.seq_len);
    let names = joined(&stream.producers, "");
    let order = match (stream.order, stream.producers.len()) {
        (StreamOrder::Arrival, 0) => "arrival; any producer; ends with a seal".to_owned(),
        (StreamOrder::Arrival, 1) => format!("arrival; ends when {names} has finished"),
        (StreamOrder::Arrival, _) => format!("arrival; ends when {names} have finished"),
        (StreamOrder::Lanes, _) => format!("lanes in turn: {names}"),
    };
    let slices = count(stream.slices.into(), "slice");
    let rows = count(stream.rows_per_slice.into(), stream.row_name());
    let seq_len = stream.seq_len;
    let most = if stream.is_balanced() { "at most " } else { "" };
    let batch = format!("{slices} x {rows} x {seq_len} tokens = {most}{tokens} tokens per step");
    let TokenizerId { name, fingerprint } = &stream.tokenizer;
    let identity = format!("{}, created {}", stream.stream_id, stream.created);
    let parent = stream.parent.iter().map(|parent| {
        let (root, step) = (&parent.root, parent.step);
        (
            "parent",
            format!("{root}, up to step {step}; this is a fork"),
        )
    });
    let mut rows = vec![("root", root.to_owned()), ("stream", identity)];
    rows.extend(parent);
    rows.extend([
        ("batch", batch),
        ("tokenizer", format!("{name}, {fingerprint}")),
        ("order", order),
    ]);
    rows
}
