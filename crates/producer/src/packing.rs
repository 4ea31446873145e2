//! Packing: a pure state machine from documents to batches of rows.
//!
//! The documents' tokens, each followed by the end token, form one endless sequence t0, t1, ... Row
//! k holds `t[k*seq_len]` to `t[k*seq_len + seq_len]`, both included: neighbouring rows share one token,
//! so that a row's inputs (all but its last) and labels (all but its first) are views. A batch is
//! `rows` rows; it begins with the token that ended the one before.
//!
//! The state after any batch is a `Point`: the document that holds the next batch's first token, and
//! how many of the document's tokens come before it. Packing from there gives the same batches.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::sources::Place;

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
}

/// A position in the endless sequence of a producer's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Passes over the input that are complete.
    pub pass: u64,
    /// Index of the file in the input list.
    pub file: u32,
    /// Line or row in the file.
    pub unit: u64,
    /// Offset of that line in the decompressed file.
    pub offset: u64,
    /// Tokens of that document to leave out.
    pub skip: u64,
}

impl Point {
    /// The beginning of the document at `place`.
    pub fn at(pass: u64, place: Place) -> Self {
        Self {
            pass,
            file: place.file,
            unit: place.unit,
            offset: place.offset,
            skip: 0,
        }
    }

    /// The beginning of pass `pass`.
    pub fn pass(pass: u64) -> Self {
        Self {
            pass,
            ..Self::default()
        }
    }

    /// The document.
    pub fn place(self) -> Place {
        Place {
            file: self.file,
            unit: self.unit,
            offset: self.offset,
        }
    }
}

/// A document as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// Which pass it was read in.
    pub pass: u64,
    /// Where it begins.
    pub place: Place,
    /// Its tokens, without the end token.
    pub tokens: Vec<u32>,
}

/// One batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// `Shape::tokens() + 1` tokens.
    pub tokens: Vec<u32>,
    /// How many of the tokens it advances by are the input's own, not padding.
    pub own: u64,
    /// Where the next batch begins.
    pub next: Point,
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

/// Packs documents into batches.
#[derive(Debug)]
pub struct Packer {
    shape: Shape,
    end_token: u32,
    /// Tokens to leave out of the first document, and which it must be.
    start: Option<Point>,
    buffer: VecDeque<u32>,
    /// Index in the whole sequence (of this run) of the buffer's first token.
    base: u64,
    /// Where documents begin in the sequence; the first holds the buffer's first token.
    starts: VecDeque<(u64, Point)>,
}

impl Packer {
    /// Begins at `start`.
    pub fn new(shape: Shape, end_token: u32, start: Point) -> Self {
        Self {
            shape,
            end_token,
            start: (start.skip > 0).then_some(start),
            buffer: VecDeque::new(),
            base: 0,
            starts: VecDeque::new(),
        }
    }

    /// Adds the next document.
    pub fn push(&mut self, document: Tokens) -> Result<(), Mismatch> {
        let mut point = Point::at(document.pass, document.place);
        let mut tokens = document.tokens;
        tokens.push(self.end_token);
        if let Some(start) = self.start.take() {
            let mismatch = Mismatch {
                place: start.place(),
                skip: start.skip,
            };
            if (point.pass, point.place()) != (start.pass, start.place())
                || tokens.len() as u64 <= start.skip
            {
                return Err(mismatch);
            }
            tokens.drain(..start.skip as usize);
            point.skip = start.skip;
        }
        self.starts
            .push_back((self.base + self.buffer.len() as u64, point));
        self.buffer.extend(tokens);
        Ok(())
    }

    /// The next batch, when there are tokens enough.
    pub fn pop(&mut self) -> Option<Batch> {
        let advance = self.shape.tokens();
        if self.buffer.len() <= advance {
            return None;
        }
        let mut tokens: Vec<u32> = self.buffer.drain(..advance).collect();
        tokens.extend(self.buffer.front());
        self.base += advance as u64;
        while self.starts.get(1).is_some_and(|(at, _)| *at <= self.base) {
            self.starts.pop_front();
        }
        let (at, mut next) = *self.starts.front()?;
        next.skip += self.base - at;
        Some(Batch {
            tokens,
            own: advance as u64,
            next,
        })
    }

    /// The rest as a last batch filled up with `pad`, when it has anything that no batch had. The
    /// input ends at `end`.
    pub fn finish(mut self, pad: u32, end: Point) -> Option<Batch> {
        // One token alone is the one that ended the batch before: it makes no input with a label.
        let own = self.buffer.len().checked_sub(1).filter(|n| *n > 0)? as u64;
        let mut tokens: Vec<u32> = self.buffer.drain(..).collect();
        tokens.resize(self.shape.tokens() + 1, pad);
        Some(Batch {
            tokens,
            own,
            next: end,
        })
    }

    /// Tokens that wait for a batch.
    pub fn waiting(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests;
