//! The pieces of documents that `best_fit` places, and its window over them.

use bytes::Bytes;

use super::super::{ColumnValues, HandedPiece, Point};

/// The window is full at this many tokens, in any number of pieces, to bound memory.
const WINDOW_TOKENS_MAX: u64 = 16 << 20;
/// The same for the bytes of arrays; few in tests, so that these reach it.
const WINDOW_BYTES_MAX: u64 = if cfg!(test) { 32 } else { 256 << 20 };

#[derive(Debug)]
pub(super) struct Piece {
    /// The document, and the token in it where the piece begins.
    pub(super) at: Point,
    /// Empty once the piece is placed.
    pub(super) tokens: Vec<u32>,
    pub(super) learned: Vec<bool>,
    pub(super) length: usize,
    /// It repeats the last token of the piece before it, which is of the same document.
    pub(super) goes_on: bool,
    pub(super) placed: bool,
    /// Whether it was cut, as `TokenRange::is_cut` says.
    pub(super) is_cut: bool,
    pub(super) columns: Option<ColumnValues>,
    /// The document's arrays, and their size in bytes, which stays when they are placed.
    pub(super) arrays: Vec<Bytes>,
    pub(super) bytes: u64,
}

/// The document that pieces are made of.
pub(super) struct Divided<'a> {
    pub(super) at: Point,
    /// The first piece repeats the token before it.
    pub(super) goes_on: bool,
    pub(super) is_cut: bool,
    pub(super) columns: Option<&'a ColumnValues>,
}

impl Piece {
    /// Returns the piece as it is handed over; `is_before_placed` where a piece behind it is placed.
    pub(super) fn unplaced(self, is_before_placed: bool) -> HandedPiece {
        HandedPiece {
            at: self.at,
            goes_on: self.goes_on,
            tokens: self.tokens,
            learned: self.learned,
            columns: self.columns,
            is_cut: self.is_cut || is_before_placed,
        }
    }
}

/// The first of the pieces: their number, tokens and bytes of arrays.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) pieces: usize,
    pub(super) tokens: u64,
    pub(super) bytes: u64,
}

impl Window {
    pub(super) fn is_full(&self, look_ahead: usize) -> bool {
        self.pieces >= look_ahead
            || self.tokens >= WINDOW_TOKENS_MAX
            || self.bytes >= WINDOW_BYTES_MAX
    }

    pub(super) fn add(&mut self, piece: &Piece) {
        self.pieces += 1;
        self.tokens += piece.length as u64;
        self.bytes += piece.bytes;
    }

    /// Removes the first piece.
    pub(super) fn remove(&mut self, piece: &Piece) {
        if self.pieces > 0 {
            self.pieces -= 1;
            self.tokens -= piece.length as u64;
            self.bytes -= piece.bytes;
        }
    }
}
