//! The count of what a window of bins takes.

use std::collections::VecDeque;

use batchweave_core::balance::{BalanceSettings, WindowFill};

use super::bin_piece::BinPiece;

/// A window ends with the batch in which its arrays reach this size; few bytes in tests, so that these reach it.
const WINDOW_BYTES_MAX: u64 = if cfg!(test) { 1000 } else { 1 << 30 };
/// The memory that a piece takes beside its tokens and arrays, about.
const PIECE_BYTES: u64 = if cfg!(test) { 0 } else { 192 };

/// The pieces that a window takes so far.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) tokens: WindowFill,
    pub(super) pieces: usize,
    bytes: u64,
    pub(super) full: bool,
}

impl Fill {
    pub(super) fn new(settings: &BalanceSettings) -> Self {
        Self {
            tokens: WindowFill::new(settings),
            pieces: 0,
            bytes: 0,
            full: false,
        }
    }

    /// Takes the pieces that are waiting until the window is full.
    pub(super) fn extend(&mut self, waiting: &VecDeque<BinPiece>) {
        while let Some(piece) = waiting.get(self.pieces)
            && (piece.size.carried || !self.full)
        {
            self.pieces += 1;
            if !self.tokens.take(&piece.size) {
                // It counts, since the arrangement finds the window full by it.
                self.full = true;
                return;
            }
            self.bytes += piece.bytes + PIECE_BYTES;
            let large = self.bytes >= WINDOW_BYTES_MAX && self.tokens.batches() > 0;
            self.full |= self.tokens.is_full() || large;
        }
    }
}
