//! Rows in shuffled order: the rows of a window of batches are permuted together, so that a long document does not fill row after
//! row of neighbouring batches. docs/order.md describes it.
//!
//! Another packer makes the batches. Those of a window are taken apart into rows, which a key of the window's first number
//! permutes, and cut into batches again. Invariants:
//! - the state after a batch inside a window is the packer's before the window, so a restart makes the window again;
//! - so that it becomes the same one, whatever the input has become, that state pins the number of its batches, and of its
//!   documents where it ended with the input: the packer may have made rows that it would not have made before more of it;
//! - a window has whole batches. What the input leaves beyond them is given as the packer made it.

use std::collections::VecDeque;

use batchweave_core::ids::Seq;
use batchweave_core::order::row_order;
use serde::{Deserialize, Serialize};

use super::row::{Row, join, rows_of};
use super::{Document, Mismatch, PackedBatch, Packer, Point, Restart, Shape};

/// Windows have at least this number of batches, where the input and the limit allow it.
const BATCHES_MIN: u64 = 2;

/// A window of which some batches were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowWindow {
    /// Number of its first batch.
    pub first: Seq,
    /// Number of its batches.
    pub batches: u64,
    /// Number of those that were given.
    pub given: u64,
    /// Number of documents from the restart's point on that it was made from, where it ended with the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<u64>,
}

/// The settings that decide the order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowShuffle {
    pub seed: u64,
    /// A window is full with the batch that reaches this number of tokens.
    pub tokens: u64,
    /// Rows that stay neighbours: 2 for pairs.
    pub together: usize,
}

/// The batches around the windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// The shape of what the packer returns: a batch, or a slice of one.
    pub shape: Shape,
    /// Number of those in a batch.
    pub units: usize,
    /// Number of the next batch.
    pub next: Seq,
    /// Number of batches at which the producer ends.
    pub limit: Option<Seq>,
}

impl Batches {
    /// Returns the batches from number 0 on, without a limit, of `slices` slices; the packer returns those of `shape`.
    pub fn from_start(shape: Shape, slices: u32) -> Self {
        Self {
            shape,
            units: (slices / shape.slices.max(1)) as usize,
            next: 0,
            limit: None,
        }
    }

    /// Returns whether the restart has all batches: no document is read then, and none is missed.
    pub(super) fn are_made(&self) -> bool {
        self.limit.is_some_and(|limit| self.next >= limit)
    }
}

impl RowShuffle {
    /// Returns the number of batches of a window.
    pub(crate) fn batches(self, batch_tokens: u64) -> u64 {
        self.tokens.div_ceil(batch_tokens.max(1)).max(BATCHES_MIN)
    }
}

/// The packer of shuffled rows; see the header of this file.
#[derive(Debug)]
pub struct ShuffledRows {
    inner: Box<dyn Packer>,
    shuffle: RowShuffle,
    batches: Batches,
    /// The packer's state before the window.
    begins: Restart,
    /// The window that the restart was in, until it is made again.
    pinned: Option<RowWindow>,
    /// Number of the window's first batch.
    first: Seq,
    /// The documents from `begins` on.
    documents: VecDeque<Point>,
    /// The batches of the packer that wait for the window.
    units: Vec<PackedBatch>,
    /// The input was over when the packer returned the last of them.
    ended: bool,
    /// The batches that are given next.
    ready: VecDeque<PackedBatch>,
}

impl ShuffledRows {
    /// Returns a packer over `inner`, which starts at `from`.
    pub fn new(
        inner: Box<dyn Packer>,
        shuffle: RowShuffle,
        batches: Batches,
        from: Restart,
    ) -> Self {
        Self {
            inner,
            shuffle,
            batches,
            pinned: from.window,
            first: from.window.map_or(batches.next, |window| window.first),
            begins: Restart {
                window: None,
                ..from
            },
            documents: VecDeque::new(),
            units: Vec::new(),
            ended: false,
            ready: VecDeque::new(),
        }
    }

    /// Returns the number of batches at which the window is full.
    fn wanted(&self) -> u64 {
        if let Some(pinned) = self.pinned {
            return pinned.batches;
        }
        let batch_tokens = self.batches.shape.tokens() * self.batches.units;
        let left = self
            .batches
            .limit
            .map(|limit| limit.saturating_sub(self.first));
        let full = self.shuffle.batches(batch_tokens as u64);
        left.map_or(full, |left| full.min(left)).max(1)
    }

    /// Takes batches of the packer until the window is full. Returns false when more input is needed.
    fn collect(&mut self) -> bool {
        let wanted = usize::try_from(self.wanted()).unwrap_or(usize::MAX);
        let wanted = wanted.saturating_mul(self.batches.units);
        while self.units.len() < wanted {
            let Some(unit) = self.inner.pop() else {
                return false;
            };
            self.units.push(unit);
        }
        self.close();
        true
    }

    /// Ends the window with the whole batches that are there.
    fn close(&mut self) {
        let whole = self.units.len() / self.batches.units;
        let behind = self.units.split_off(whole * self.batches.units);
        let units = std::mem::replace(&mut self.units, behind);
        let Some(last) = units.last().map(|unit| unit.next.clone()) else {
            return;
        };
        let pinned = self.pinned.take();
        let window = pinned.unwrap_or(RowWindow {
            first: self.first,
            batches: whole as u64,
            given: 0,
            documents: self.ended.then_some(self.documents.len() as u64),
        });
        let shuffled = self.shuffled(units, window, &last);
        let given = usize::try_from(window.given).unwrap_or(usize::MAX);
        let given = given.saturating_mul(self.batches.units);
        self.ready.extend(shuffled.into_iter().skip(given));
        self.first = window.first + window.batches;
        self.begins = last;
        self.forget();
    }

    /// Returns the window's rows in their order, as batches with the states behind them; `last` is that behind all.
    fn shuffled(
        &self,
        units: Vec<PackedBatch>,
        window: RowWindow,
        last: &Restart,
    ) -> Vec<PackedBatch> {
        let shape = self.batches.shape;
        let count = units.len();
        let rows: Vec<Row> = units
            .into_iter()
            .flat_map(|unit| rows_of(unit, shape))
            .collect();
        let together = self.shuffle.together;
        let order = row_order(self.shuffle.seed, window.first, rows.len() / together);
        let mut rows: Vec<Option<Row>> = rows.into_iter().map(Some).collect();
        let mut places = order
            .iter()
            .flat_map(|group| (0..together).map(move |row| *group * together + row));
        let mut shuffled = Vec::with_capacity(count);
        for unit in 1..=count {
            let of_unit = places.by_ref().take(shape.rows());
            let of_unit = of_unit.filter_map(|place| rows.get_mut(place)?.take());
            let next = if unit == count {
                last.clone()
            } else {
                Restart {
                    window: Some(RowWindow {
                        given: (unit / self.batches.units) as u64,
                        ..window
                    }),
                    ..self.begins.clone()
                }
            };
            shuffled.push(join(of_unit, shape, next));
        }
        shuffled
    }

    /// Forgets the documents before the window.
    fn forget(&mut self) {
        let at = self.begins.at;
        while self
            .documents
            .pop_front_if(|document| !document.is_document(at))
            .is_some()
        {}
    }

    /// Ends a window that ended with the input once before, when as many documents are there again as then.
    fn replay(&mut self, next: Point) -> Result<(), Mismatch> {
        let documents = self.pinned.and_then(|pinned| pinned.documents);
        if documents != Some(self.documents.len() as u64) {
            return Ok(());
        }
        self.inner.end(next)?;
        self.finish_pinned()?;
        self.inner.resume();
        Ok(())
    }

    /// Makes the pinned window of what is there.
    fn finish_pinned(&mut self) -> Result<(), Mismatch> {
        let Some(pinned) = self.pinned else {
            return Ok(());
        };
        if self.collect() {
            return Ok(());
        }
        Err(Mismatch::Window {
            first: pinned.first,
            batches: pinned.batches,
            found: (self.units.len() / self.batches.units) as u64,
        })
    }
}

impl Packer for ShuffledRows {
    fn push(&mut self, document: Document) -> Result<(), Mismatch> {
        let point = document.point();
        self.replay(point)?;
        // At the start, and behind the end of an input that grew, the place is that of the document that comes.
        if self.documents.is_empty() && self.begins.at.skip == 0 && self.begins.placed.is_empty() {
            self.begins.at = point;
        }
        self.documents.push_back(point);
        self.inner.push(document)
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        if self.ready.is_empty() {
            self.collect();
        }
        self.ready.pop_front()
    }

    fn end(&mut self, end: Point) -> Result<(), Mismatch> {
        if self.batches.are_made() {
            return Ok(());
        }
        // What the packer returns without the end does not depend on it.
        while self.collect() {}
        self.inner.end(end)?;
        self.finish_pinned()?;
        self.ended = true;
        while self.collect() {}
        self.close();
        self.ready.extend(std::mem::take(&mut self.units));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Mismatch> {
        if self.pinned.is_none() {
            self.close();
        }
        Ok(())
    }

    fn can_flush(&self) -> bool {
        self.pinned.is_none() && self.units.len() >= self.batches.units
    }

    fn rest(&mut self, begun: bool) -> Option<PackedBatch> {
        self.inner.rest(begun)
    }

    fn blank(&mut self) -> PackedBatch {
        self.inner.blank()
    }

    fn replays(&self) -> bool {
        self.inner.replays()
    }

    fn waiting(&self) -> usize {
        let own = self.units.iter().chain(&self.ready).map(|unit| unit.own);
        self.inner.waiting() + usize::try_from(own.sum::<u64>()).unwrap_or(usize::MAX)
    }
}
