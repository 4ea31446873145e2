//! Packing: pure state machines from documents to batches, behind one trait.
//!
//! Documents and settings alone decide the batches. The state after any batch is a `Restart` (`point`), and packing
//! from there gives the same batches.
//!
//! - `concat` divides all documents as one endless sequence, `best_fit` puts whole documents into rows,
//!   `pairs` gives two answers a row each, `samples` keeps arrays as they are;
//! - `hand_over` changes from one packer to the next, where another stage begins;
//! - `mismatch` finds documents that are not those of the cursor;
//! - `shuffled_rows` permutes the rows of several batches of another packer, which `row` takes apart;
//! - `balanced` puts documents into bins of equal cost (`bins`) by the settings of `balancing`, by pieces (`bin_piece`), of which windows
//!   (`bin_fill`, `bin_windows`) give batches (`bin_units`);
//! - `encode` makes slices of batches, `encode_bins` those of bins, `encode_tokens` their tokens, `extras` the optional arrays beside the tokens, `arrays` those of any length.

mod arrays;
mod balanced;
mod balancing;
mod best_fit;
mod bin_fill;
mod bin_piece;
mod bin_units;
mod bin_windows;
mod bins;
mod concat;
mod encode;
mod encode_bins;
mod encode_tokens;
mod extras;
mod hand_over;
mod image_arrays;
mod mismatch;
mod pairs;
mod picture;
mod point;
mod row;
mod samples;
mod shuffled_rows;

use std::sync::Arc;

use batchweave_core::provenance::{Form, Piece, Sources};
use batchweave_core::tgb::SliceCost;
use bytes::Bytes;

use crate::sources::Place;

pub use balanced::Balanced;
pub use balancing::Balancing;
pub use best_fit::{BestFit, LOOK_AHEAD_MAX};
pub use bins::{BinEnd, Bins};
pub use concat::Concat;
pub use encode::{Encoder, Slice};
pub use encode_bins::BIN_ARRAYS;
pub use extras::{Beside, Extra};
pub use hand_over::{HandOver, HandingOver, TokenRange};
use hand_over::{HandedPiece, join_pieces};
pub use mismatch::Mismatch;
use mismatch::Start;
pub use pairs::Pairs;
pub use picture::Picture;
pub use point::{Carried, Placed, Point, Restart};
pub use samples::{ArraySpec, Samples};
pub use shuffled_rows::{Batches, RowShuffle, RowWindow, ShuffledRows};

/// The shape of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    pub slices: u32,
    pub rows_per_slice: u32,
    /// Number of tokens from the start of one row to the start of the next; a row stores one more.
    pub seq_len: u32,
}

impl Shape {
    /// Returns the number of tokens from the start of one batch to the start of the next.
    pub fn tokens(self) -> usize {
        self.slices as usize * self.tokens_per_slice()
    }

    /// Returns the number of tokens from the start of one slice to the start of the next.
    pub fn tokens_per_slice(self) -> usize {
        self.rows_per_slice as usize * self.seq_len as usize
    }

    /// Returns the number of rows in a batch.
    pub fn rows(self) -> usize {
        self.slices as usize * self.rows_per_slice as usize
    }

    /// Returns the number of tokens that a row stores.
    pub fn width(self) -> usize {
        self.seq_len as usize + 1
    }
}

/// The tokens that a packer adds to those of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddedTokens {
    /// Comes after each text; not after a conversation, which ends itself.
    pub end: u32,
    /// Fills the rest of a row.
    pub pad: u32,
}

/// A document, ready for packing into rows or slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The pass in which it was read.
    pub pass: u64,
    pub place: Place,
    /// Its position among the documents of its unit.
    pub within: Within,
    pub content: Content,
    /// Its values of the columns beside the content, then the number of its source where slices have these; `None` when
    /// there are none.
    pub columns: Option<ColumnValues>,
    /// The bytes of the arrays that come with its tokens; empty when there are none.
    pub arrays: Vec<Bytes>,
}

/// The position of a document among those that a function made of one unit, whose items follow one another; the default is
/// that of the only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Within {
    /// Number of items of the documents before it.
    pub before: u64,
    /// Another document of the unit follows.
    pub more: bool,
}

/// A value for each column beside the content, little-endian from the first byte on.
pub type ColumnValues = Arc<[[u8; 8]]>;

impl Document {
    /// Returns the point where the document begins.
    pub fn point(&self) -> Point {
        Point {
            skip: self.within.before,
            ..Point::at(self.pass, self.place)
        }
    }
}

/// The content of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text as tokens, without the end token.
    Tokens(Vec<u32>),
    /// A conversation as tokens, and for each token whether it is learned.
    Turns(Vec<u32>, Vec<bool>),
    /// The preferred and the rejected conversation. Documents are moved often, and are small without it.
    Pair(Box<[Answer; 2]>),
    /// The bytes of each named array.
    Sample(Vec<Bytes>),
}

/// One conversation of a pair: its tokens, and for each whether it is learned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    pub tokens: Vec<u32>,
    pub learned: Vec<bool>,
}

impl Content {
    /// Returns the number of tokens, or 1 for a sample.
    pub fn items(&self) -> u64 {
        match self {
            Self::Tokens(tokens) => tokens.len() as u64 + 1,
            Self::Turns(tokens, _) => tokens.len() as u64,
            Self::Pair(answers) => answers.iter().map(|a| a.tokens.len() as u64).sum(),
            Self::Sample(_) => 1,
        }
    }
}

/// A batch, or one slice of a batch that is too large to be made at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackedBatch {
    pub content: BatchContent,
    /// Number of tokens or samples of the input, without padding.
    pub own: u64,
    /// The state that the next batch starts from.
    pub next: Restart,
    /// The documents that the batch was made from.
    pub sources: Sources,
}

/// Returns the provenance of `items` tokens of a document from `at` on.
fn piece(at: Point, items: u64, new_row: bool) -> Piece {
    Piece {
        pass: at.pass,
        file: at.file,
        unit: at.unit,
        skip: at.skip,
        items,
        new_row,
    }
}

impl PackedBatch {
    /// Returns a batch without items of the input, from which packing continues at `end`.
    fn empty(content: BatchContent, form: Form, end: Option<Point>) -> Self {
        let pieces = Vec::new();
        Self {
            content,
            own: 0,
            next: end.unwrap_or_default().into(),
            sources: Sources { form, pieces },
        }
    }

    /// Returns the cost of the slices of the whole batch, of bins.
    pub fn cost(&self) -> Option<SliceCost> {
        match &self.content {
            BatchContent::Bins(bins) => Some(bins.cost),
            BatchContent::Rows(_) | BatchContent::Samples(_) => None,
        }
    }

    /// Returns the number of tokens of padding.
    pub fn padding(&self) -> u64 {
        let BatchContent::Rows(rows) = &self.content else {
            return 0;
        };
        let stored = match self.sources.form {
            // The last token is in the next batch too.
            Form::Sequence => self.own + 1,
            Form::Rows => self.sources.pieces.iter().map(|piece| piece.items).sum(),
        };
        (rows.tokens.len() as u64).saturating_sub(stored)
    }

    /// Returns the approximate size in memory in bytes.
    pub fn memory(&self) -> u64 {
        let bytes = match &self.content {
            BatchContent::Rows(rows) => {
                let arrays = rows.segments.iter().flat_map(|segment| &segment.arrays);
                size_of_val(&rows.tokens[..])
                    + size_of_val(&rows.segments[..])
                    + size_of_val(&rows.learned[..])
                    + arrays.map(|a| a.len() + 32).sum::<usize>()
            }
            BatchContent::Bins(bins) => {
                let arrays = bins.segments.iter().flat_map(|segment| &segment.arrays);
                size_of_val(&bins.tokens[..])
                    + size_of_val(&bins.segments[..])
                    + size_of_val(&bins.learned[..])
                    + arrays.map(|a| a.len() + 32).sum::<usize>()
            }
            BatchContent::Samples(samples) => samples.iter().flatten().map(|a| a.len() + 32).sum(),
        };
        bytes as u64
    }
}

/// The content of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchContent {
    Rows(Rows),
    Bins(Bins),
    /// The arrays of each sample, in order; the last batch may have fewer samples than its shape.
    Samples(Vec<Vec<Bytes>>),
}

impl Default for BatchContent {
    fn default() -> Self {
        Self::Rows(Rows::default())
    }
}

/// Rows of tokens of one width.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// The tokens of all rows. Row r begins at r * stride; neighbouring rows may share tokens.
    pub tokens: Vec<u32>,
    pub stride: usize,
    /// The places of documents in the rows, in order; empty when no optional array needs them.
    pub segments: Vec<Segment>,
    /// For each token whether it is learned; empty when all but padding is.
    pub learned: Vec<bool>,
}

impl Rows {
    /// Returns rows of padding only, which is not learned.
    fn blank(tokens: usize, stride: usize, pad: u32) -> BatchContent {
        BatchContent::Rows(Self {
            tokens: vec![pad; tokens],
            stride,
            segments: Vec::new(),
            learned: vec![false; tokens],
        })
    }

    /// Appends rows that share no tokens with these.
    pub(crate) fn append(&mut self, more: Self) {
        let before = self.tokens.len() / self.stride.max(1);
        self.tokens.extend(more.tokens);
        self.learned.extend(more.learned);
        let segments = more.segments.into_iter();
        self.segments.extend(segments.map(|segment| Segment {
            row: before + segment.row,
            ..segment
        }));
    }
}

/// Neighbouring tokens of one document in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub row: usize,
    /// Index of its first token in the row.
    pub start: usize,
    pub tokens: usize,
    /// It repeats the last token of the segment before it of the same document.
    pub goes_on: bool,
    /// File, and line or row, of the document.
    pub document: (u32, u64),
    /// The document's values of the columns beside the content.
    pub columns: Option<ColumnValues>,
    pub arrays: Vec<Bytes>,
}

/// Packs documents into batches. Slices of a large batch are packed as batches of one slice, with the same result.
pub trait Packer: Send + std::fmt::Debug {
    /// Adds the next document.
    fn push(&mut self, document: Document) -> Result<(), Mismatch>;

    /// Returns the next batch, once it is full.
    fn pop(&mut self) -> Option<PackedBatch>;

    /// Declares the input over at `end`; `pop` then returns the full batches that are left.
    fn end(&mut self, end: Point) -> Result<(), Mismatch>;

    /// Takes the end back: more documents follow.
    fn resume(&mut self) {}

    /// Takes out the tokens that no batch has given, in the order of documents; call it after a complete batch. Packers of
    /// modes without stages give none.
    fn hand_over(&mut self) -> Vec<TokenRange> {
        Vec::new()
    }

    /// Adds tokens that an earlier packer handed over, before any document; packers of modes without stages get none.
    fn push_range(&mut self, _: TokenRange) -> Result<(), Mismatch> {
        Ok(())
    }

    /// Returns whether all documents have come of which the restart counts tokens.
    fn is_restored(&self) -> bool {
        true
    }

    /// Gives the full batches that wait for others of their window.
    fn flush(&mut self) -> Result<(), Mismatch> {
        Ok(())
    }

    /// Returns whether `flush` would give some.
    fn can_flush(&self) -> bool {
        false
    }

    /// Returns the rest as a last batch, filled up, if there is any; call it after `end` and the last `pop`. `begun`
    /// means that batches are single slices, and that some slices of the last whole batch were returned before.
    fn rest(&mut self, begun: bool) -> Option<PackedBatch>;

    /// Returns the next slice of the last batch, or one of padding only; call it after `rest`.
    fn blank(&mut self) -> PackedBatch;

    /// Returns whether the next document is among those whose pieces the cursor counted.
    fn replays(&self) -> bool {
        false
    }

    /// Returns the number of tokens or samples that are in no batch yet.
    fn waiting(&self) -> usize;
}

#[cfg(test)]
mod tests;
