//! Packing: pure state machines from documents to batches, behind one trait.
//!
//! Whatever decides a batch is in the documents and in the settings; the state after any batch is a
//! `Restart`, and packing from there gives the same batches. `concat` makes one endless sequence,
//! `best_fit` puts whole documents into rows, `samples` takes arrays as they are; `encode` makes
//! slices of what they give, `extras` what trainers want to know beside the tokens.

mod best_fit;
mod concat;
mod encode;
mod extras;
mod point;
mod samples;

use batchweave_core::provenance::{Piece, Sources};

use crate::sources::Place;

pub use best_fit::{BestFit, LOOK_AHEAD_MAX};
pub use concat::Concat;
pub use encode::{Encoder, Slice};
pub use extras::Extra;
pub use point::{Placed, Point, Restart};
pub use samples::{ArraySpec, Samples};

/// The shape of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Slices in a batch.
    pub slices: u32,
    /// Rows in a slice.
    pub rows_per_slice: u32,
    /// Tokens that a row advances by; it stores one more.
    pub seq_len: u32,
}

impl Shape {
    /// Tokens that a batch advances by.
    pub fn tokens(self) -> usize {
        self.slices as usize * self.tokens_per_slice()
    }

    /// Tokens that a slice advances by.
    pub fn tokens_per_slice(self) -> usize {
        self.rows_per_slice as usize * self.seq_len as usize
    }

    /// Rows in a batch.
    pub fn rows(self) -> usize {
        self.slices as usize * self.rows_per_slice as usize
    }

    /// Tokens that a row stores.
    pub fn width(self) -> usize {
        self.seq_len as usize + 1
    }
}

/// A document, ready for packing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Which pass it was read in.
    pub pass: u64,
    /// Where it begins.
    pub place: Place,
    /// What it became.
    pub content: Content,
}

impl Document {
    /// Where it begins.
    pub fn point(&self) -> Point {
        Point::at(self.pass, self.place)
    }
}

/// See [`Document::content`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text as tokens, without the end token.
    Tokens(Vec<u32>),
    /// A conversation as tokens, and for each whether it is to be learned.
    Turns(Vec<u32>, Vec<bool>),
    /// The bytes of each named array.
    Sample(Vec<Vec<u8>>),
}

impl Content {
    /// Tokens, or samples.
    pub fn items(&self) -> u64 {
        match self {
            Self::Tokens(tokens) => tokens.len() as u64 + 1,
            Self::Turns(tokens, _) => tokens.len() as u64,
            Self::Sample(_) => 1,
        }
    }
}

/// One batch; or one slice of a batch that is too large to be made at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackedBatch {
    /// What it holds.
    pub content: BatchContent,
    /// Tokens (or samples) of the input's own, without padding.
    pub own: u64,
    /// Where the next batch begins.
    pub next: Restart,
    /// Which documents it was made from.
    pub sources: Sources,
}

/// `items` tokens of the document from `at` on.
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
    /// Bytes that it takes in memory, about.
    pub fn memory(&self) -> u64 {
        let bytes = match &self.content {
            BatchContent::Rows(rows) => {
                size_of_val(&rows.tokens[..])
                    + size_of_val(&rows.segments[..])
                    + size_of_val(&rows.learned[..])
            }
            BatchContent::Samples(samples) => samples.iter().flatten().map(|a| a.len() + 32).sum(),
        };
        bytes as u64
    }
}

/// See [`PackedBatch::content`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchContent {
    /// Rows of tokens.
    Rows(Rows),
    /// Samples in order; the last batch may have fewer than its shape says.
    Samples(Vec<Vec<Vec<u8>>>),
}

impl Default for BatchContent {
    fn default() -> Self {
        Self::Rows(Rows::default())
    }
}

/// Rows of one width.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// Row r begins at r * stride; rows may share tokens.
    pub tokens: Vec<u32>,
    /// See `tokens`.
    pub stride: usize,
    /// Which documents lie where, in order; empty when nobody wants to know.
    pub segments: Vec<Segment>,
    /// What is to be learned, beside `tokens`; empty: all that is not padding.
    pub learned: Vec<bool>,
}

impl Rows {
    /// Rows of nothing but padding, which is not to be learned.
    fn blank(tokens: usize, stride: usize, pad: u32) -> BatchContent {
        BatchContent::Rows(Self {
            tokens: vec![pad; tokens],
            stride,
            segments: Vec::new(),
            learned: vec![false; tokens],
        })
    }
}

/// Neighbouring tokens of one document in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The row.
    pub row: usize,
    /// Where in the row it begins.
    pub start: usize,
    /// Its tokens.
    pub tokens: usize,
    /// The document's file and line or row.
    pub document: (u32, u64),
}

/// A restart found another document than the cursor names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the input or the tokenizer is not what it was when the cursor was saved: the cursor leaves out {skip} tokens of \
     line or row {} of input file {}, which is not such a document any more; restore the input, or start a new producer name",
    .place.unit + 1, .place.file + 1
)]
pub struct Mismatch {
    place: Place,
    skip: u64,
}

/// The first document after a restart: it must be the one that the cursor names, and long enough.
#[derive(Debug)]
struct Start(Option<Point>);

impl Start {
    fn new(at: Point) -> Self {
        Self((at.skip > 0).then_some(at))
    }

    /// How much of this document to leave out; it has `items`.
    fn skip(&mut self, document: Point, items: usize) -> Result<usize, Mismatch> {
        let Some(start) = self.0.take() else {
            return Ok(0);
        };
        match usize::try_from(start.skip) {
            Ok(skip) if start.is_document(document) && skip < items => Ok(skip),
            _ => Err(Mismatch {
                place: start.place(),
                skip: start.skip,
            }),
        }
    }
}

/// Packs documents into batches. Slices of a batch are packed as batches of one slice: what comes of it
/// is the same.
pub trait Packer: Send + std::fmt::Debug {
    /// Adds the next document.
    fn push(&mut self, document: Document) -> Result<(), Mismatch>;

    /// The next batch, when enough is there.
    fn pop(&mut self) -> Option<PackedBatch>;

    /// No document follows, the input ends at `end`; `pop` gives what full batches are left.
    fn end(&mut self, end: Point);

    /// After `end` and the last `pop`: the rest as a last batch, filled up, when there is any. `begun`:
    /// what is popped are slices, and some of the last batch's are out already.
    fn rest(&mut self, begun: bool) -> Option<PackedBatch>;

    /// After `rest`: a batch of nothing but padding.
    fn blank(&self) -> PackedBatch;

    /// Tokens, or samples, that wait for a batch.
    fn waiting(&self) -> usize;
}

#[cfg(test)]
mod tests;
