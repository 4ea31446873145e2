//! The change from one packer to the next, where another stage begins.
//!
//! With the last batch of a stage complete, its packer hands over the tokens that no batch has given, in the order of
//! documents, of each document its longest connected ranges. The next packer packs a range like a document. Invariants:
//! - each token is given once over both packers, and the batches before do not depend on what follows;
//! - which documents the earlier packer has read does not matter: a whole one that waits is like one that comes later;
//! - until all cut documents are placed, the restart point is that of the earlier packer, with what was given since.

use batchweave_core::ids::Seq;
use serde::{Deserialize, Serialize};

use super::{
    Carried, ColumnValues, Document, Mismatch, PackedBatch, Packer, Placed, Point, Restart,
    RowWindow,
};

/// Neighbouring tokens of one document that no batch has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRange {
    /// The document, and the number of its tokens before these.
    pub at: Point,
    /// The token before them in the document, unless they begin it.
    pub before: Option<u32>,
    /// The tokens, at least one.
    pub tokens: Vec<u32>,
    /// For each token whether it is learned; empty when all are.
    pub learned: Vec<bool>,
    pub columns: Option<ColumnValues>,
    /// An earlier packer has given other tokens of this document or of one behind it, so that a restart needs that packer.
    pub is_cut: bool,
}

impl TokenRange {
    /// Returns the range with the token before it in front, and whether there is one.
    pub(super) fn with_before(mut self) -> (Self, bool) {
        let Some(before) = self.before.take() else {
            return (self, false);
        };
        self.at.skip -= 1;
        self.tokens.insert(0, before);
        if !self.learned.is_empty() {
            self.learned.insert(0, false);
        }
        (self, true)
    }

    /// Returns whether a piece goes on where this ends.
    fn ends_at(&self, piece: &HandedPiece) -> bool {
        let end = self.at.skip + self.tokens.len() as u64;
        piece.goes_on && self.at.is_document(piece.at) && piece.at.skip + 1 == end
    }
}

/// A piece of a document that no batch has given, of a packer that divides documents.
#[derive(Debug)]
pub(super) struct HandedPiece {
    /// The document, and the token in it where the piece begins.
    pub(super) at: Point,
    /// It repeats the last token of the piece before it.
    pub(super) goes_on: bool,
    pub(super) tokens: Vec<u32>,
    pub(super) learned: Vec<bool>,
    pub(super) columns: Option<ColumnValues>,
    /// It was cut, or a piece behind it was given.
    pub(super) is_cut: bool,
}

impl From<HandedPiece> for TokenRange {
    fn from(mut piece: HandedPiece) -> Self {
        let before = piece.goes_on.then(|| piece.tokens.remove(0));
        if before.is_some() && !piece.learned.is_empty() {
            piece.learned.remove(0);
        }
        piece.at.skip += u64::from(piece.goes_on);
        Self {
            at: piece.at,
            before,
            tokens: piece.tokens,
            learned: piece.learned,
            columns: piece.columns,
            is_cut: piece.is_cut || before.is_some(),
        }
    }
}

/// Returns the longest connected ranges of pieces in the order of documents.
pub(super) fn join_pieces(pieces: impl Iterator<Item = HandedPiece>) -> Vec<TokenRange> {
    let mut ranges: Vec<TokenRange> = Vec::new();
    for piece in pieces {
        match ranges.last_mut() {
            Some(range) if range.ends_at(&piece) => {
                range.tokens.extend(piece.tokens.into_iter().skip(1));
                range.learned.extend(piece.learned.into_iter().skip(1));
            }
            _ => ranges.push(piece.into()),
        }
    }
    ranges
}

/// The state in which a packer handed over, and what was given of it since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// Number of the first batch of the next packer.
    pub first: Seq,
    /// The pieces from the restart's point on that the batches before it hold.
    #[serde(default, skip_serializing_if = "Placed::is_empty")]
    pub placed: Placed,
    /// Of bins: the pieces from there on that wait, among those that these batches hold.
    #[serde(default, skip_serializing_if = "Carried::is_empty")]
    pub carried: Carried,
    /// The window of bins that begins there, of which the last of these batches are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<RowWindow>,
    /// Tokens that the next packer has moved past, or the number of its pieces before the oldest one that waits.
    pub given: u64,
    /// The hand-over of which that packer itself had not given all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Self>>,
}

impl Restart {
    /// Returns the state from which the next packer begins, when the one in this state hands over to it; `first` is the
    /// number of its first batch.
    #[must_use]
    pub fn handed_over(self, first: Seq) -> Self {
        let left = HandOver {
            first,
            placed: self.placed,
            carried: self.carried,
            window: self.window,
            given: 0,
            before: self.left,
        };
        Self {
            left: Some(Box::new(left)),
            ..self.at.into()
        }
    }

    /// Returns this state of a packer that began with a hand-over, with what it has given since.
    #[must_use]
    pub(super) fn with_given(mut self, given: u64, placed: Placed) -> Self {
        if let Some(left) = &mut self.left {
            left.given = given;
        }
        Self { placed, ..self }
    }

    /// Returns the states of all packers that a restart here needs, the earliest first, each with the number of its first
    /// batch; `None` for the first, which needs no hand-over.
    pub fn packers(self) -> Vec<(Option<Seq>, Self)> {
        let mut all = Vec::new();
        let mut now = self;
        loop {
            let Some(left) = now.left.as_deref().cloned() else {
                all.push((None, now));
                break;
            };
            let earlier = Self {
                placed: left.placed,
                carried: left.carried,
                window: left.window,
                left: left.before,
                ..now.at.into()
            };
            all.push((Some(left.first), now));
            now = earlier;
        }
        all.reverse();
        all
    }
}

/// Packers of consecutive stages: the first one reads the cut documents again, and hands over to the next.
#[derive(Debug)]
pub struct HandingOver {
    now: Box<dyn Packer>,
    /// The later packers, the last one first.
    later: Vec<Box<dyn Packer>>,
    /// Documents or ranges have come.
    has_some: bool,
}

impl HandingOver {
    /// Returns the packer of these, the earliest first; they begin at the states of [`Restart::packers`].
    pub fn new(first: Box<dyn Packer>, mut later: Vec<Box<dyn Packer>>) -> Self {
        later.reverse();
        Self {
            now: first,
            later,
            has_some: false,
        }
    }

    /// Hands over as far as the documents that came allow it.
    fn advance(&mut self) -> Result<(), Mismatch> {
        while self.has_some && self.now.is_restored() {
            let Some(next) = self.later.pop() else {
                break;
            };
            let ranges = self.now.hand_over();
            self.now = next;
            for range in ranges {
                self.now.push_range(range)?;
            }
        }
        Ok(())
    }
}

impl Packer for HandingOver {
    fn push(&mut self, document: Document) -> Result<(), Mismatch> {
        self.now.push(document)?;
        self.has_some = true;
        self.advance()
    }

    fn push_range(&mut self, range: TokenRange) -> Result<(), Mismatch> {
        self.now.push_range(range)
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        if self.later.is_empty() {
            return self.now.pop();
        }
        None
    }

    fn end(&mut self, end: Point) -> Result<(), Mismatch> {
        // Without any document nothing was cut.
        if self.has_some && !self.now.is_restored() {
            return Err(Mismatch::HandOver);
        }
        self.has_some = true;
        self.advance()?;
        if !self.later.is_empty() {
            return Err(Mismatch::HandOver);
        }
        self.now.end(end)
    }

    fn resume(&mut self) {
        self.now.resume();
    }

    fn hand_over(&mut self) -> Vec<TokenRange> {
        self.now.hand_over()
    }

    fn is_restored(&self) -> bool {
        self.later.is_empty() && self.now.is_restored()
    }

    fn flush(&mut self) -> Result<(), Mismatch> {
        if self.later.is_empty() {
            return self.now.flush();
        }
        Ok(())
    }

    fn can_flush(&self) -> bool {
        self.later.is_empty() && self.now.can_flush()
    }

    fn rest(&mut self, begun: bool) -> Option<PackedBatch> {
        self.now.rest(begun)
    }

    fn blank(&mut self) -> PackedBatch {
        self.now.blank()
    }

    fn replays(&self) -> bool {
        !self.later.is_empty() || self.now.replays()
    }

    fn waiting(&self) -> usize {
        self.now.waiting()
    }
}
