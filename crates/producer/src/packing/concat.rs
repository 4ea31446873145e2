//! The documents' tokens, each followed by the end token, as one endless sequence t0, t1, ...
//!
//! Row k holds `t[k*seq_len]` to `t[k*seq_len + seq_len]`, both included: neighbouring rows share one
//! token, so that a row's inputs (all but its last) and labels (all but its first) are views. A batch
//! begins with the token that ended the one before. The state after any batch is a `Point`: the
//! document that holds the next batch's first token, and the number of its tokens before that one.

use std::collections::VecDeque;

use batchweave_core::provenance::{Form, Sources};

use super::{
    AddedTokens, BatchContent, ColumnValues, Content, Document, Mismatch, PackedBatch, Packer,
    Placed, Point, Restart, Rows, Segment, Shape, Start, TokenRange, piece,
};

/// The beginning of a document in the sequence.
#[derive(Debug)]
struct Beginning {
    /// Index in the sequence of this run.
    index: u64,
    at: Point,
    /// The token before it in the document, unless it begins the document.
    before: Option<u32>,
    columns: Option<ColumnValues>,
    /// Whether it was cut, as [`TokenRange::is_cut`] says.
    is_cut: bool,
}

/// The packer of one endless sequence; see the header of this file.
#[derive(Debug)]
pub struct Concat {
    shape: Shape,
    added: AddedTokens,
    start: Start,
    /// From `head` on: the tokens that no batch has moved past.
    buffer: Vec<u32>,
    head: usize,
    /// Index of the token at `head` in the whole sequence of this run.
    base: u64,
    /// The beginning of each document; the first one holds the token at `head`.
    starts: VecDeque<Beginning>,
    /// Batches hold the segments of their rows.
    segments: bool,
    /// The point where the input ends, once no document follows.
    ended: Option<Point>,
    /// The state of the earlier packer, whose tokens come first.
    left: Option<Restart>,
    /// Tokens at the beginning that earlier batches hold.
    given: u64,
}

impl Concat {
    /// Returns a packer that starts at `from`; `segments` adds the places of documents to batches.
    pub fn new(shape: Shape, added: AddedTokens, from: impl Into<Restart>, segments: bool) -> Self {
        let from = from.into();
        let left = from.left.is_some().then(|| from.clone());
        let start = if left.is_some() {
            Point::default()
        } else {
            from.at
        };
        Self {
            shape,
            added,
            start: Start::new(start),
            given: from.left.map_or(0, |left| left.given),
            left,
            buffer: Vec::new(),
            head: 0,
            base: 0,
            starts: VecDeque::new(),
            segments,
            ended: None,
        }
    }

    /// Returns the segments of `rows` rows from `base` on; the sequence has `tokens` tokens from there.
    fn segments(&self, rows: usize, tokens: usize) -> Vec<Segment> {
        let stride = self.shape.seq_len as usize;
        let mut segments = Vec::new();
        let mut first = 0;
        for row in 0..rows {
            let from = row * stride;
            let to = (from + stride + 1).min(tokens);
            let offset = |n: usize| {
                let start = self.starts.get(n)?.index;
                Some(usize::try_from(start.saturating_sub(self.base)).unwrap_or(usize::MAX))
            };
            while offset(first + 1).is_some_and(|next| next <= from) {
                first += 1;
            }
            let mut n = first;
            while let Some(begins) = offset(n).filter(|begins| *begins < to) {
                let (begins, ends) = (begins.max(from), offset(n + 1).unwrap_or(to).min(to));
                let document = &self.starts[n];
                if ends > begins {
                    segments.push(Segment {
                        row,
                        start: begins - from,
                        tokens: ends - begins,
                        goes_on: false,
                        document: (document.at.file, document.at.unit),
                        arrays: Vec::new(),
                        columns: document.columns.clone(),
                    });
                }
                n += 1;
            }
        }
        segments
    }

    /// Adds tokens of a document to the sequence; leaves out those that earlier batches hold.
    fn add(&mut self, beginning: Beginning, tokens: &[u32], end: Option<u32>) {
        let index = self.base + self.buffered() as u64;
        self.starts.push_back(Beginning { index, ..beginning });
        self.buffer.extend_from_slice(tokens);
        self.buffer.extend(end);
        if self.given > 0 {
            let known = self.given.min(self.buffered() as u64);
            self.given -= known;
            self.base += known;
            // It is at most the length of the buffer.
            self.head += known as usize;
        }
        // Those tokens may have ended with the document before.
        self.forget();
    }

    /// Forgets the documents before the next token.
    fn forget(&mut self) {
        while self
            .starts
            .get(1)
            .is_some_and(|start| start.index <= self.base)
        {
            self.starts.pop_front();
        }
    }

    /// Returns the state before the next token, which is the last one of the batch before.
    fn next(&self) -> Option<Restart> {
        let first = self.starts.front()?;
        if let Some(left) = self.left.as_ref().filter(|_| first.is_cut) {
            return Some(left.clone().with_given(self.base, Placed::default()));
        }
        let mut next = first.at;
        next.skip += self.base - first.index;
        Some(next.into())
    }

    fn buffered(&self) -> usize {
        self.buffer.len() - self.head
    }

    /// Returns the provenance of the next `tokens` tokens.
    fn sources(&self, tokens: usize) -> Sources {
        let end = self.base + tokens as u64;
        let starts = self.starts.iter().take_while(|start| start.index < end);
        let ends = self.starts.iter().skip(1).map(|start| start.index);
        let pieces = starts.zip(ends.chain([end])).map(|(start, ends)| {
            let from = start.index.max(self.base);
            let mut at = start.at;
            at.skip += from - start.index;
            piece(at, ends.min(end) - from, false)
        });
        Sources {
            form: Form::Sequence,
            pieces: pieces.collect(),
        }
    }

    /// Returns the next `advance + 1` tokens; the last one stays in the buffer as well.
    fn next_tokens(&mut self, advance: usize) -> Option<Vec<u32>> {
        if self.head == 0 && self.buffer.len() <= 2 * advance {
            // The buffer itself becomes the batch; only the short rest is copied.
            let mut rest = Vec::with_capacity(advance + advance / 8 + 1);
            rest.extend_from_slice(self.buffer.get(advance..)?);
            self.buffer.truncate(advance + 1);
            return Some(std::mem::replace(&mut self.buffer, rest));
        }
        let tokens = self.buffer.get(self.head..=self.head + advance)?.to_vec();
        self.head += advance;
        // The buffer is moved only when half of it is used, so each token is moved once or twice.
        if self.head >= self.buffer.len() / 2 {
            self.buffer.drain(..self.head);
            self.head = 0;
        }
        Some(tokens)
    }

    fn rows(&self, tokens: Vec<u32>, own: usize) -> BatchContent {
        let segments = if self.segments {
            self.segments(self.shape.rows(), own + 1)
        } else {
            Vec::new()
        };
        BatchContent::Rows(Rows {
            tokens,
            stride: self.shape.seq_len as usize,
            segments,
            learned: Vec::new(),
        })
    }
}

impl Packer for Concat {
    fn push(&mut self, document: Document) -> Result<(), Mismatch> {
        let mut point = document.point();
        let (Content::Tokens(tokens) | Content::Turns(tokens, _)) = &document.content else {
            return Ok(());
        };
        let items = tokens.len() + 1;
        let skip = self.start.skip(&document, items)?;
        if skip == items {
            return Ok(());
        }
        point.skip += skip as u64;
        let beginning = Beginning {
            index: 0,
            at: point,
            before: None,
            columns: document.columns,
            is_cut: false,
        };
        let end = Some(self.added.end);
        self.add(beginning, &tokens[skip.min(tokens.len())..], end);
        Ok(())
    }

    /// Only the first row of a stage repeats the token before it: all later ones have the last token of their predecessor.
    fn push_range(&mut self, mut range: TokenRange) -> Result<(), Mismatch> {
        let is_first = self.starts.is_empty();
        if let Some(before) = range.before.filter(|_| is_first) {
            range.before = None;
            range.at.skip -= 1;
            range.tokens.insert(0, before);
        }
        let beginning = Beginning {
            index: 0,
            at: range.at,
            before: range.before,
            columns: range.columns,
            is_cut: range.is_cut,
        };
        self.add(beginning, &range.tokens, None);
        Ok(())
    }

    /// The first token of the buffer was given: it ended the batch before.
    fn hand_over(&mut self) -> Vec<TokenRange> {
        let tokens = self.buffer.split_off(self.head.min(self.buffer.len()));
        let starts = std::mem::take(&mut self.starts);
        let end = self.base + tokens.len() as u64;
        let at = |index: u64| {
            tokens
                .get(usize::try_from(index - self.base).ok()?)
                .copied()
        };
        let ends = starts.iter().skip(1).map(|start| start.index).chain([end]);
        let range = |(start, end): (&Beginning, u64)| {
            let from = start.index.max(self.base + 1);
            let mut range = TokenRange {
                at: start.at,
                before: start.before,
                tokens: (from..end).filter_map(at).collect(),
                learned: Vec::new(),
                columns: start.columns.clone(),
                is_cut: start.is_cut,
            };
            if from > start.index {
                range.at.skip += from - start.index;
                range.before = at(from - 1);
            }
            range.is_cut |= range.before.is_some();
            (!range.tokens.is_empty()).then_some(range)
        };
        let ranges = starts.iter().zip(ends).filter_map(range).collect();
        (self.buffer, self.head) = (Vec::new(), 0);
        ranges
    }

    fn is_restored(&self) -> bool {
        !self.start.is_pending() && self.given == 0
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        let advance = self.shape.tokens();
        let sources = self
            .buffered()
            .gt(&advance)
            .then(|| self.sources(advance + 1))?;
        let tokens = self.next_tokens(advance)?;
        let content = self.rows(tokens, advance);
        self.base += advance as u64;
        self.forget();
        Some(PackedBatch {
            content,
            own: advance as u64,
            next: self.next()?,
            sources,
        })
    }

    fn end(&mut self, end: Point) -> Result<(), Mismatch> {
        self.ended = Some(end);
        Ok(())
    }

    fn resume(&mut self) {
        self.ended = None;
    }

    fn rest(&mut self, begun: bool) -> Option<PackedBatch> {
        let end = self.ended?;
        // A single token is the one that ended the batch before, and is not an input with a label.
        let own = self.buffered().checked_sub(1).filter(|n| *n > 0 || begun)?;
        let mut tokens = self.buffer.split_off(self.head);
        tokens.resize(self.shape.tokens() + 1, self.added.pad);
        let content = self.rows(tokens, own);
        let sources = self.sources(own + 1);
        (self.buffer, self.head) = (Vec::new(), 0);
        self.starts.clear();
        Some(PackedBatch {
            content,
            own: own as u64,
            next: end.into(),
            sources,
        })
    }

    fn blank(&mut self) -> PackedBatch {
        let stride = self.shape.seq_len as usize;
        let rows = Rows::blank(self.shape.tokens() + 1, stride, self.added.pad);
        PackedBatch::empty(rows, Form::Sequence, self.ended)
    }

    fn waiting(&self) -> usize {
        // The first one is the last batch's too.
        self.buffered().saturating_sub(1)
    }
}
