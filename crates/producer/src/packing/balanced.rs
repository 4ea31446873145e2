//! Documents in bins of equal cost: `core::balance` arranges those of a window of batches together.
//!
//! A document longer than a bin is divided into pieces that share one token, as by `best_fit`. Invariants:
//! - pieces wait in the order of the input: first those that the last window carried, then the others. A window is a function of
//!   them, of the settings and of the number of its first batch;
//! - the state after a batch inside a window is that before the window, so a restart makes the window again; behind a window it
//!   is the place of the oldest carried piece, or of the last one that was given, and which pieces behind it were (`Carried`);
//! - so that a window becomes the same one, whatever the input has become, the state inside it pins the number of its batches,
//!   and of its pieces where it ended with the input or by time;
//! - a window has whole batches. Only the last batch of the input may lack tokens.

use std::collections::VecDeque;

use batchweave_core::balance::{
    self, Arrangement, BalanceSettings, BalancedBatch, CostModel, WindowFill,
};
use batchweave_core::ids::Seq;

use super::bin_piece::{BinPiece, divide};
use super::bin_units::unit;
use super::{
    BatchContent, Batches, Carried, Content, Document, Mismatch, PackedBatch, Packer, Point,
    Restart, RowWindow, Start,
};

/// A window ends with the batch in which its arrays reach this size; few bytes in tests, so that these reach it.
const WINDOW_BYTES_MAX: u64 = if cfg!(test) { 1000 } else { 1 << 30 };
/// The memory that a piece takes beside its tokens and arrays, about.
const PIECE_BYTES: u64 = if cfg!(test) { 0 } else { 192 };

/// The settings that decide the bins.
#[derive(Debug, Clone)]
pub struct Balancing {
    pub settings: BalanceSettings,
    pub cost: CostModel,
    /// Bytes of an item of each array.
    pub item_bytes: Vec<u64>,
    /// Longer documents are divided.
    pub split: bool,
    /// Comes after each text.
    pub end: u32,
}

/// The packer of bins; see the header of this file.
#[derive(Debug)]
pub struct Balanced {
    balancing: Balancing,
    batches: Batches,
    start: Start,
    /// The pieces behind the restart that earlier batches hold.
    given: Carried,
    /// The state before the window.
    begins: Restart,
    /// The window that the restart was in, until it is made again.
    pinned: Option<RowWindow>,
    /// Number of the window's first batch.
    first: Seq,
    /// The pieces that are in no window yet.
    waiting: VecDeque<BinPiece>,
    /// Number of the next piece, counted from the restart.
    next_piece: u64,
    /// The first of the waiting pieces, as far as the window takes them.
    fill: Fill,
    /// The batches that are given next, or slices of them.
    ready: VecDeque<PackedBatch>,
    /// The slices of the last, partial batch.
    rest: VecDeque<PackedBatch>,
}

/// The pieces that a window takes so far.
#[derive(Debug)]
struct Fill {
    tokens: WindowFill,
    pieces: usize,
    bytes: u64,
    full: bool,
}

impl Fill {
    fn new(settings: &BalanceSettings) -> Self {
        Self {
            tokens: WindowFill::new(settings),
            pieces: 0,
            bytes: 0,
            full: false,
        }
    }

    fn extend(&mut self, waiting: &VecDeque<BinPiece>) {
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

impl Balanced {
    /// Returns a packer that starts at `from`.
    pub fn new(balancing: Balancing, batches: Batches, from: Restart) -> Self {
        let mut packer = Self {
            start: Start::new(from.at),
            given: from.carried.clone(),
            pinned: from.window,
            first: from.window.map_or(batches.next, |window| window.first),
            begins: Restart {
                window: None,
                ..from
            },
            waiting: VecDeque::new(),
            next_piece: 0,
            fill: Fill::new(&balancing.settings),
            ready: VecDeque::new(),
            rest: VecDeque::new(),
            balancing,
            batches,
        };
        packer.begin_window();
        packer
    }

    /// Returns the settings of the window that begins, which has at most as many batches as the limit leaves.
    fn window_settings(&self) -> BalanceSettings {
        let window = match (self.pinned, self.batches.limit) {
            (Some(pinned), _) => pinned.batches,
            (None, Some(limit)) => limit.saturating_sub(self.first),
            (None, None) => u64::MAX,
        };
        let most = self.balancing.settings.window;
        BalanceSettings {
            window: u32::try_from(window).unwrap_or(most).clamp(1, most),
            ..self.balancing.settings
        }
    }

    fn begin_window(&mut self) {
        self.fill = Fill::new(&self.window_settings());
        self.fill.extend(&self.waiting);
    }

    /// Makes the windows whose pieces are there.
    fn collect(&mut self) -> Result<(), Mismatch> {
        loop {
            self.fill.extend(&self.waiting);
            let pinned = self.pinned.and_then(|pinned| pinned.documents);
            let pieces = match pinned.map(usize::try_from) {
                Some(pieces) => pieces.unwrap_or(usize::MAX),
                None if self.fill.full && !self.replays() => self.fill.pieces,
                None => return Ok(()),
            };
            if self.waiting.len() < pieces {
                return Ok(());
            }
            let arrangement = self.arrange(pieces)?;
            let ended = (!self.fill.tokens.is_full()).then_some(pieces as u64);
            self.give(&arrangement, ended)?;
        }
    }

    fn arrange(&self, pieces: usize) -> Result<Arrangement, Mismatch> {
        let sizes: Vec<_> = self.waiting.iter().take(pieces).map(|p| p.size).collect();
        Ok(balance::arrange(
            &self.window_settings(),
            &sizes,
            self.first,
        )?)
    }

    /// Moves the documents of an arrangement into batches.
    fn give(&mut self, arrangement: &Arrangement, ended: Option<u64>) -> Result<(), Mismatch> {
        let count = arrangement.batches.len() as u64;
        let pinned = self.pinned.take();
        if let Some(pinned) = pinned.filter(|pinned| pinned.batches != count) {
            return Err(Mismatch::Window {
                first: pinned.first,
                batches: pinned.batches,
                found: count,
            });
        }
        let window = pinned.unwrap_or(RowWindow {
            first: self.first,
            batches: count,
            given: 0,
            documents: ended,
        });
        let behind = self.waiting.split_off(arrangement.taken);
        let mut taken: Vec<Option<BinPiece>> = self.waiting.drain(..).map(Some).collect();
        let after = self.state_behind(arrangement, &taken);
        for (batch, number) in arrangement.batches.iter().zip(1..) {
            let next = if number == count {
                after.clone()
            } else {
                Restart {
                    window: Some(RowWindow {
                        given: number,
                        ..window
                    }),
                    ..self.begins.clone()
                }
            };
            let units = self.units(batch, &mut taken, &next);
            if number > window.given {
                self.ready.extend(units);
            }
        }
        let carried = taken.into_iter().flatten().map(|mut piece| {
            piece.size.carried = true;
            piece
        });
        self.waiting.extend(carried);
        self.waiting.extend(behind);
        self.first = window.first + count;
        self.begins = after;
        self.begin_window();
        Ok(())
    }

    /// Makes the last batch, which lacks tokens.
    fn keep_rest(&mut self, arrangement: &Arrangement, end: Point) -> Result<(), Mismatch> {
        self.give(arrangement, None)?;
        let units = self.batches.units.min(self.ready.len());
        self.rest = self.ready.split_off(self.ready.len() - units);
        for unit in &mut self.rest {
            unit.next = end.into();
        }
        Ok(())
    }

    /// Returns the state behind a window.
    fn state_behind(&self, arrangement: &Arrangement, taken: &[Option<BinPiece>]) -> Restart {
        let of = |index: &u32| taken.get(*index as usize).and_then(Option::as_ref);
        let carried: Vec<&BinPiece> = arrangement.carried.iter().filter_map(of).collect();
        let last = taken.last().and_then(Option::as_ref);
        // The oldest piece that is carried, or else the last one that was given: the next one may be unknown.
        let Some(oldest) = carried.first().copied().or(last) else {
            return self.begins.clone();
        };
        let border = last.map_or(oldest.number, |last| last.number + 1);
        Restart {
            at: oldest.at,
            carried: Carried::new(
                oldest.number,
                carried.iter().map(|piece| piece.number),
                border,
            ),
            ..Restart::default()
        }
    }

    /// Returns the units of a batch.
    fn units(
        &self,
        batch: &BalancedBatch,
        taken: &mut [Option<BinPiece>],
        next: &Restart,
    ) -> Vec<PackedBatch> {
        let of_unit = batch.slices() / self.batches.units.max(1);
        let slices = (0..batch.slices()).step_by(of_unit.max(1));
        let mut units: Vec<PackedBatch> = slices
            .map(|first| unit(batch, first..first + of_unit, taken, next))
            .collect();
        let learned = |unit: &PackedBatch| match &unit.content {
            BatchContent::Bins(bins) => bins.loss_tokens,
            _ => 0,
        };
        let all: u64 = units.iter().map(learned).sum();
        for unit in &mut units {
            if let BatchContent::Bins(bins) = &mut unit.content {
                bins.loss_tokens = all;
            }
        }
        units
    }
}

impl Packer for Balanced {
    fn push(&mut self, document: Document) -> Result<(), Mismatch> {
        let at = document.point();
        let items = match &document.content {
            Content::Tokens(tokens) => tokens.len() + 1,
            Content::Turns(tokens, _) => tokens.len(),
            // A skip must be less than the number of items, so a pair counts as two.
            Content::Pair(_) => 2,
            Content::Sample(_) => return Ok(()),
        };
        let skip = self.start.skip(&document, items)?;
        if skip == items {
            return Ok(());
        }
        let unread = self.next_piece == 0 && self.begins.carried.is_empty();
        if unread && self.begins.at.skip == 0 {
            self.begins.at = at;
        }
        for mut piece in divide(&self.balancing, at, skip, document)? {
            piece.number = self.next_piece;
            self.next_piece += 1;
            match self.given.holds(piece.number) {
                Some(true) => continue,
                Some(false) => piece.size.carried = true,
                None => {}
            }
            self.waiting.push_back(piece);
        }
        self.collect()
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        self.ready.pop_front()
    }

    fn end(&mut self, end: Point) -> Result<(), Mismatch> {
        if self.batches.are_made() {
            return Ok(());
        }
        if self.replays() {
            return Err(Mismatch::Pieces {
                known: self.given.bound(),
                found: self.next_piece,
            });
        }
        if let Some(pinned) = self.pinned {
            return Err(Mismatch::Window {
                first: pinned.first,
                batches: pinned.batches,
                found: self.fill.tokens.batches().into(),
            });
        }
        while !self.waiting.is_empty() {
            let pieces = self.waiting.len();
            let arrangement = self.arrange(pieces)?;
            let lacks_tokens = self.fill.tokens.batches() == 0;
            let is_all = arrangement.carried.is_empty() && arrangement.taken == pieces;
            if lacks_tokens && is_all && arrangement.batches.len() == 1 {
                self.keep_rest(&arrangement, end)?;
            } else {
                self.give(&arrangement, Some(pieces as u64))?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Mismatch> {
        if self.can_flush() {
            let pieces = self.waiting.len();
            let arrangement = self.arrange(pieces)?;
            self.give(&arrangement, Some(pieces as u64))?;
        }
        Ok(())
    }

    fn can_flush(&self) -> bool {
        self.pinned.is_none() && !self.replays() && self.fill.tokens.batches() > 0
    }

    fn rest(&mut self, _: bool) -> Option<PackedBatch> {
        self.rest.pop_front()
    }

    fn blank(&mut self) -> PackedBatch {
        self.rest.pop_front().unwrap_or_default()
    }

    fn replays(&self) -> bool {
        self.given.holds(self.next_piece).is_some()
    }

    fn waiting(&self) -> usize {
        let units = self.ready.iter().chain(&self.rest);
        let ready = units.map(|unit| unit.own).sum::<u64>();
        let pieces = self.waiting.iter().map(BinPiece::own).sum::<u64>();
        usize::try_from(ready + pieces).unwrap_or(usize::MAX)
    }
}
