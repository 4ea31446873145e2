//! The table `packing.shuffle_rows`: the rows of a window of batches in shuffled order.

use std::time::Duration;

use batchweave_daemon::config::{Period, Problem};
use serde::{Deserialize, Serialize};

use super::{PackingMode, ProducerConfig};
use crate::packing::{RowShuffle, Shape};

/// Most tokens of a window: two windows of 4 bytes and a mark each then take 2.5 GiB.
const TOKENS_MAX: u64 = 1 << 28;

/// The window in which rows are shuffled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShuffleRowsConfig {
    /// A window has as many whole batches as reach this number of tokens, and at least two.
    pub tokens: u64,
    pub seed: u64,
    /// A window of followed input ends with the batches it has when nothing has come for this time.
    pub linger: Period,
}

impl Default for ShuffleRowsConfig {
    fn default() -> Self {
        Self {
            tokens: 8 << 20,
            seed: 0,
            linger: Period(Duration::from_secs(30)),
        }
    }
}

impl ProducerConfig {
    /// Returns what decides the order of rows.
    pub(crate) fn row_shuffle(&self) -> Option<RowShuffle> {
        let window = self.packing.shuffle_rows?;
        let is_pairs = self.packing.mode == PackingMode::Pairs;
        Some(RowShuffle {
            seed: window.seed,
            tokens: window.tokens,
            together: if is_pairs { 2 } else { 1 },
        })
    }

    /// Returns the number of batches of a window; 1 where batches are made one by one.
    pub(crate) fn window_batches(&self) -> u64 {
        if self.is_balanced() {
            return self.packing.balanced.window.into();
        }
        let batch_tokens = self.shape().tokens() as u64;
        self.row_shuffle()
            .map_or(1, |shuffle| shuffle.batches(batch_tokens))
    }

    /// Returns the time without input that ends a window of followed input, where there are windows.
    pub(crate) fn window_linger(&self) -> Option<Duration> {
        let packing = &self.packing;
        if self.is_balanced() {
            return Some(packing.balanced.linger.0);
        }
        packing.shuffle_rows.map(|rows| rows.linger.0)
    }

    /// Returns the shape of a batch; bins have `seq_len` tokens, and a slice `rows_per_slice` bins.
    pub(crate) fn shape(&self) -> Shape {
        let (stream, balanced) = (&self.stream, &self.packing.balanced);
        let (rows_per_slice, seq_len) = if self.is_balanced() {
            (balanced.micro_batches, balanced.tokens)
        } else {
            (stream.rows_per_slice, stream.seq_len)
        };
        Shape {
            slices: stream.slices,
            rows_per_slice,
            seq_len,
        }
    }

    pub(super) fn check_shuffle_rows(&self, problems: &mut Vec<Problem>) {
        let Some(window) = self.packing.shuffle_rows else {
            return;
        };
        if self.packing.mode == PackingMode::Opaque {
            problems.push(Problem::new(
                "packing.shuffle_rows",
                "is for rows of tokens, and packing.mode = \"opaque\" has samples; shuffle them with source.shuffle",
            ));
        }
        if self.is_balanced() {
            problems.push(Problem::new(
                "packing.shuffle_rows",
                "can't be combined with packing.mode = \"balanced\", which deals documents of a window over its batches",
            ));
        }
        if !self.is_balanced() && !self.packing.arrays_beside().is_empty() {
            problems.push(Problem::new(
                "packing.shuffle_rows",
                "can't be combined with packing.arrays: a window counts tokens, and arrays of any size would wait with them",
            ));
        }
        if !(1..=TOKENS_MAX).contains(&window.tokens) {
            problems.push(Problem::new(
                "packing.shuffle_rows.tokens",
                format!("must be 1 to {TOKENS_MAX}: two windows wait in memory, 5 bytes a token"),
            ));
        }
    }
}
