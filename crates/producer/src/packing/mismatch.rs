//! Documents that are not those of the cursor, or that can't be packed.

use batchweave_core::balance::{ArrangeError, CostError};

use super::{Document, Point};
use crate::sources::Place;

/// A restart found other documents than those that the cursor counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The document that the cursor names is another one.
    #[error(
        "the input or the tokenizer is not what it was when the cursor was saved: the cursor leaves out {skip} tokens of \
         line or row {} of input file {}, which is another document now, or a shorter one; restore the input, or start a new producer name",
        .place.unit + 1, .place.file + 1
    )]
    Document { place: Place, skip: u64 },
    /// The documents are fewer, or shorter.
    #[error(
        "the input or the tokenizer is not what it was when the cursor was saved: the rows of batches {first} to {} were \
         shuffled together, and their documents fill only {found} of these {batches} batches now; restore the input, or start a new \
         producer name",
        first + batches.saturating_sub(1)
    )]
    Window {
        first: u64,
        batches: u64,
        found: u64,
    },
    /// The documents that the cursor counts are fewer.
    #[error(
        "the input or the tokenizer is not what it was when the cursor was saved: it counts {known} documents or pieces of them \
         from its place on, and {found} are there now; restore the input, or start a new producer name"
    )]
    Pieces { known: u64, found: u64 },
    /// The documents that were cut where a stage began are missing.
    #[error(
        "the input or the tokenizer is not what it was when the cursor was saved: documents are missing, of which batches \
         before the current stage hold a part; restore the input, or start a new producer name"
    )]
    HandOver,
    /// Documents whose cost can't be balanced.
    #[error("packing.balanced.cost: {0}")]
    Cost(String),
}

impl From<CostError> for Mismatch {
    fn from(why: CostError) -> Self {
        Self::Cost(why.to_string())
    }
}

impl From<ArrangeError> for Mismatch {
    fn from(why: ArrangeError) -> Self {
        Self::Cost(why.to_string())
    }
}

/// Check of the first documents after a restart: they must be those of the unit that the cursor names, and long enough.
#[derive(Debug)]
pub(super) struct Start(Option<Point>);

impl Start {
    pub(super) fn new(at: Point) -> Self {
        Self((at.skip > 0).then_some(at))
    }

    /// Returns whether the document that the cursor names has not come.
    pub(super) fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the number of items of this document to leave out, of `items`: all of them, when the cursor points into a
    /// later one of the same unit.
    pub(super) fn skip(&mut self, document: &Document, items: usize) -> Result<usize, Mismatch> {
        let Some(start) = self.0.take() else {
            return Ok(0);
        };
        let point = document.point();
        let ahead = start.skip.checked_sub(point.skip);
        let own = ahead.filter(|_| start.is_document(point));
        match own.map(usize::try_from) {
            Some(Ok(skip)) if skip < items => Ok(skip),
            Some(_) if document.within.more => {
                self.0 = Some(start);
                Ok(items)
            }
            _ => Err(Mismatch::Document {
                place: start.place(),
                skip: start.skip,
            }),
        }
    }
}
