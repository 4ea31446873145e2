//! Whole documents in rows: each row begins with the oldest waiting piece, and is filled up with the longest
//! pieces within a bounded look-ahead that still fit.
//!
//! A document longer than a row is divided into pieces that share one token, as rows of `concat` do, so that each
//! token but the first is a label once. The pieces are numbered in the order of the input; a row is made when the
//! window, `look_ahead` pieces from the oldest waiting one, is full, or the input has ended. So the rows are a
//! function of the pieces, and the state after any batch is the oldest piece's point and the set of pieces of the
//! window that are placed already.

mod piece;

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use batchweave_core::provenance::{Form, Piece as Source, Sources};
use bytes::Bytes;

use self::piece::{Divided, Piece, Window};
use super::{
    AddedTokens, BatchContent, Content, Document, Mismatch, PackedBatch, Packer, Placed, Point,
    Restart, Rows, Segment, Shape, Start, TokenRange, join_pieces, piece as source,
};

/// The largest window: its set of placed pieces must fit in a cursor.
pub const LOOK_AHEAD_MAX: usize = 8192;
/// The packer of whole documents; see the header of this file.
#[derive(Debug)]
pub struct BestFit {
    shape: Shape,
    added: AddedTokens,
    look_ahead: usize,
    start: Start,
    /// Pieces at the beginning that earlier batches hold, behind a hand-over.
    given: u64,
    /// The pieces behind them that earlier batches hold.
    placed: Placed,
    /// The state of the earlier packer, whose tokens come first.
    left: Option<Restart>,
    /// All pieces from the oldest waiting one on.
    pieces: VecDeque<Piece>,
    /// Number of the first of `pieces`, counted from the restart.
    first: u64,
    window: Window,
    /// The waiting pieces of the window, by length and age.
    free: BTreeSet<(usize, Reverse<u64>)>,
    /// The rows of the current batch.
    rows: Rows,
    row_count: usize,
    own: u64,
    /// The provenance of these rows.
    sources: Vec<Source>,
    /// The point where the input ends, once no document follows.
    ended: Option<Point>,
}

impl BestFit {
    /// Returns a packer that starts at `from`; `look_ahead` is the window in pieces.
    pub fn new(shape: Shape, added: AddedTokens, look_ahead: usize, from: Restart) -> Self {
        let left = from.left.is_some().then(|| from.clone());
        let start = if left.is_some() {
            Point::default()
        } else {
            from.at
        };
        Self {
            shape,
            added,
            look_ahead: look_ahead.clamp(1, LOOK_AHEAD_MAX),
            start: Start::new(start),
            given: from.left.map_or(0, |left| left.given),
            placed: from.placed,
            left,
            pieces: VecDeque::new(),
            first: 0,
            window: Window::default(),
            free: BTreeSet::new(),
            rows: Rows::default(),
            row_count: 0,
            own: 0,
            sources: Vec::new(),
            ended: None,
        }
    }

    /// Divides a document from `skip` on, where an earlier piece ended.
    fn divide(
        &mut self,
        document: Divided<'_>,
        skip: usize,
        tokens: &[u32],
        learned: &[bool],
        mut arrays: Vec<Bytes>,
    ) {
        let Divided {
            at,
            goes_on,
            is_cut,
            columns,
        } = document;
        let stride = self.shape.seq_len as usize;
        let width = self.shape.width();
        let mut from = skip;
        while from == 0 || from + 1 < tokens.len() {
            let to = (from + width).min(tokens.len());
            let number = self.first + self.pieces.len() as u64;
            let placed = self.is_given(number);
            let part = if placed { to..to } else { from..to };
            // A document with arrays is never longer than a row, so its first piece is the only one.
            let arrays = std::mem::take(&mut arrays);
            let bytes = arrays.iter().map(|array| array.len() as u64).sum();
            self.pieces.push_back(Piece {
                at: Point {
                    skip: at.skip + from as u64,
                    ..at
                },
                goes_on: from > 0 || goes_on,
                is_cut,
                tokens: tokens[part.clone()].to_vec(),
                learned: learned.get(part).unwrap_or_default().to_vec(),
                length: to - from,
                placed,
                columns: columns.cloned(),
                arrays: if placed { Vec::new() } else { arrays },
                bytes,
            });
            from += stride;
        }
    }

    /// Returns whether earlier batches hold piece `number`, counted from the restart or the hand-over.
    fn is_given(&self, number: u64) -> bool {
        let behind = number.checked_sub(self.given);
        behind.is_none_or(|number| self.placed.holds(number))
    }

    /// Drops placed pieces from the front and extends the window. Returns true when it is full.
    fn slide(&mut self) -> bool {
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.placed) {
            self.first += 1;
            self.window.remove(&piece);
        }
        while !self.window.is_full(self.look_ahead) {
            let count = self.window.pieces;
            let Some(piece) = self.pieces.get(count) else {
                return false;
            };
            if !piece.placed {
                let number = self.first + count as u64;
                self.free.insert((piece.length, Reverse(number)));
            }
            self.window.add(piece);
        }
        true
    }

    /// Makes one row. Returns false when more input is needed.
    fn row(&mut self) -> bool {
        let full = self.slide();
        let Some(oldest) = self.pieces.front().filter(|_| full || self.ended.is_some()) else {
            return false;
        };
        let mut take = Some((oldest.length, Reverse(self.first)));
        let mut left = self.shape.width();
        while let Some(key) = take {
            self.free.remove(&key);
            self.place(key.1.0, self.shape.width() - left);
            left -= key.0;
            take = self.free.range(..=(left, Reverse(0))).next_back().copied();
        }
        self.row_count += 1;
        self.fill_row();
        true
    }

    /// Puts piece `number` at `start` of the current row.
    fn place(&mut self, number: u64, start: usize) {
        let Some(piece) = usize::try_from(number - self.first)
            .ok()
            .and_then(|n| self.pieces.get_mut(n))
        else {
            return;
        };
        piece.placed = true;
        let items = piece.length as u64;
        self.sources.push(source(piece.at, items, start == 0));
        self.rows.segments.push(Segment {
            row: self.row_count,
            start,
            tokens: piece.length,
            goes_on: piece.goes_on,
            document: (piece.at.file, piece.at.unit),
            columns: piece.columns.take(),
            arrays: std::mem::take(&mut piece.arrays),
        });
        self.own += piece.length as u64 - u64::from(piece.goes_on);
        let tokens = std::mem::take(&mut piece.tokens);
        let mut learned = std::mem::take(&mut piece.learned);
        learned.resize(tokens.len(), true);
        // No token before it in its segment could predict the first one.
        if let Some(first) = learned.first_mut() {
            *first = false;
        }
        self.rows.tokens.extend(tokens);
        self.rows.learned.extend(learned);
    }

    fn fill_row(&mut self) {
        let end = self.row_count * self.shape.width();
        self.rows.tokens.resize(end, self.added.pad);
        self.rows.learned.resize(end, false);
    }

    fn take_batch(&mut self, next: Restart) -> PackedBatch {
        let mut rows = std::mem::take(&mut self.rows);
        rows.stride = self.shape.width();
        self.row_count = 0;
        PackedBatch {
            content: BatchContent::Rows(rows),
            own: std::mem::take(&mut self.own),
            next,
            sources: Sources {
                form: Form::Rows,
                pieces: std::mem::take(&mut self.sources),
            },
        }
    }
}

impl Packer for BestFit {
    fn push(&mut self, document: Document) -> Result<(), Mismatch> {
        let at = document.point();
        let items = match &document.content {
            Content::Tokens(tokens) => tokens.len() + 1,
            Content::Turns(tokens, _) => tokens.len(),
            Content::Sample(_) | Content::Pair(_) => return Ok(()),
        };
        let skip = self.start.skip(&document, items)?;
        if skip == items {
            return Ok(());
        }
        let (tokens, learned) = match document.content {
            Content::Tokens(mut tokens) => {
                tokens.push(self.added.end);
                (tokens, Vec::new())
            }
            Content::Turns(tokens, learned) => (tokens, learned),
            Content::Sample(_) | Content::Pair(_) => return Ok(()),
        };
        let divided = Divided {
            at,
            goes_on: false,
            is_cut: false,
            columns: document.columns.as_ref(),
        };
        self.divide(divided, skip, &tokens, &learned, document.arrays);
        Ok(())
    }

    fn push_range(&mut self, range: TokenRange) -> Result<(), Mismatch> {
        let (range, goes_on) = range.with_before();
        let divided = Divided {
            at: range.at,
            goes_on,
            is_cut: range.is_cut,
            columns: range.columns.as_ref(),
        };
        self.divide(divided, 0, &range.tokens, &range.learned, Vec::new());
        Ok(())
    }

    fn hand_over(&mut self) -> Vec<TokenRange> {
        let last = self.pieces.iter().rposition(|piece| piece.placed);
        let pieces = std::mem::take(&mut self.pieces).into_iter().enumerate();
        let unplaced = pieces.filter(|(_, piece)| !piece.placed);
        self.window = Window::default();
        self.free.clear();
        join_pieces(unplaced.map(|(number, piece)| {
            let is_before_last = last.is_some_and(|last| number < last);
            piece.unplaced(is_before_last)
        }))
    }

    fn is_restored(&self) -> bool {
        let number = self.first + self.pieces.len() as u64;
        !self.start.is_pending() && number >= self.given + self.placed.end()
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        while self.row_count < self.shape.rows() {
            if !self.row() {
                return None;
            }
        }
        self.slide();
        // The next batch begins with the oldest piece, which must be known unless the input has ended.
        let at = self.pieces.front().map(|piece| piece.at).or(self.ended)?;
        let bits = self
            .pieces
            .iter()
            .take(self.window.pieces)
            .map(|p| p.placed);
        let placed = bits.collect();
        let is_cut = self.pieces.front().is_some_and(|piece| piece.is_cut);
        let next = match &self.left {
            Some(left) if is_cut => left.clone().with_given(self.first, placed),
            _ => Restart {
                at,
                placed,
                ..Restart::default()
            },
        };
        Some(self.take_batch(next))
    }

    fn end(&mut self, end: Point) -> Result<(), Mismatch> {
        self.ended = Some(end);
        Ok(())
    }

    fn resume(&mut self) {
        self.ended = None;
    }

    fn rest(&mut self, _: bool) -> Option<PackedBatch> {
        while self.row_count < self.shape.rows() && self.row() {}
        let end = self.ended.filter(|_| self.row_count > 0)?;
        self.row_count = self.shape.rows();
        self.fill_row();
        Some(self.take_batch(end.into()))
    }

    fn blank(&mut self) -> PackedBatch {
        let width = self.shape.width();
        let rows = Rows::blank(self.shape.rows() * width, width, self.added.pad);
        PackedBatch::empty(rows, Form::Rows, self.ended)
    }

    fn replays(&self) -> bool {
        let number = self.first + self.pieces.len() as u64;
        let behind = number.checked_sub(self.given);
        behind.is_none_or(|number| !self.placed.ends_before(number))
    }

    fn waiting(&self) -> usize {
        let pieces = self.pieces.iter().filter(|piece| !piece.placed);
        let tokens = pieces.map(|piece| piece.length - usize::from(piece.goes_on));
        tokens.sum::<usize>() + usize::try_from(self.own).unwrap_or(usize::MAX)
    }
}
