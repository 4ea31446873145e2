//! Documents in bins of equal cost: `core::balance` arranges those of a window of batches together.
//!
//! A document longer than a bin is divided into pieces that share one token, as by `best_fit`. Invariants:
//! - pieces wait in the order of the input: first those that the last window carried, then the others. A window is a function of
//!   them, of the settings and of the number of its first batch;
//! - the state after a batch inside a window is that before the window, so a restart makes the window again; behind a window it
//!   is the place of the oldest carried piece, or of the last one that was given, and which pieces behind it were (`Carried`);
//! - so that a window becomes the same one, whatever the input has become, the state inside it pins the number of its batches,
//!   and of its pieces where it ended with the input or by time;
//! - a window has whole batches. Only the last batch of the input may lack tokens;
//! - a stage that begins inside a window changes neither its pieces nor its arrangement: batches that are not given are unmade.

use std::collections::VecDeque;

use batchweave_core::balance::{self, Arrangement, BalanceSettings};
use batchweave_core::ids::Seq;

use super::balancing::Balancing;
use super::bin_fill::Fill;
use super::bin_piece::{BinPiece, divide, divide_range};
use super::bin_windows::{BinWindow, BinWindows};
use super::{
    Batches, Carried, Content, Document, Mismatch, PackedBatch, Packer, Placed, Point, Restart,
    RowWindow, Start, TokenRange, join_pieces,
};

/// The packer of bins; see the header of this file.
#[derive(Debug)]
pub struct Balanced {
    balancing: Balancing,
    batches: Batches,
    start: Start,
    /// Pieces at the beginning that earlier batches hold, behind a hand-over.
    before: u64,
    /// The pieces behind them that earlier batches hold.
    given: Carried,
    /// The state of the earlier packer, whose tokens come first.
    left: Option<Restart>,
    /// The state before the window.
    begins: Restart,
    /// The window that the restart was in, until it is made again.
    pinned: Option<RowWindow>,
    /// Number of the window's first batch.
    first: Seq,
    /// The pieces that are in no window yet.
    waiting: VecDeque<BinPiece>,
    /// Number of the next piece, counted from the restart or the hand-over.
    next_piece: u64,
    /// The first of the waiting pieces, as far as the window takes them.
    fill: Fill,
    /// The batches that are given next.
    ready: BinWindows,
    /// The last, partial batch.
    rest: BinWindows,
}

impl Balanced {
    /// Returns a packer that starts at `from`.
    pub fn new(balancing: Balancing, batches: Batches, from: Restart) -> Self {
        let left = from.left.as_ref().map(|left| Restart {
            left: Some(left.clone()),
            ..from.at.into()
        });
        let start = if left.is_some() {
            Point::default()
        } else {
            from.at
        };
        let mut packer = Self {
            start: Start::new(start),
            before: from.left.as_ref().map_or(0, |left| left.given),
            left,
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
            ready: BinWindows::default(),
            rest: BinWindows::default(),
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
            self.give(arrangement, ended)?;
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
    fn give(&mut self, arrangement: Arrangement, ended: Option<u64>) -> Result<(), Mismatch> {
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
        let after = self.state_behind(&arrangement, &taken);
        for index in &arrangement.carried {
            let carried = taken.get_mut(*index as usize).and_then(Option::take);
            self.waiting.extend(carried.map(|mut piece| {
                piece.size.carried = true;
                piece
            }));
        }
        self.waiting.extend(behind);
        let states = (1..=count).map(|number| {
            if number == count {
                after.clone()
            } else {
                Restart {
                    window: Some(RowWindow {
                        given: number,
                        ..window
                    }),
                    ..self.begins.clone()
                }
            }
        });
        let batches = arrangement.batches.into_iter().zip(states).collect();
        let mut arranged = BinWindow {
            batches,
            pieces: taken,
        };
        for _ in 0..window.given {
            // Earlier batches hold these pieces.
            arranged.pop(1);
        }
        self.ready.push(arranged);
        self.first = window.first + count;
        self.begins = after;
        self.begin_window();
        Ok(())
    }

    /// Makes the last batch, which lacks tokens.
    fn keep_rest(&mut self, arrangement: Arrangement, end: Point) -> Result<(), Mismatch> {
        self.give(arrangement, None)?;
        self.rest = self.ready.split_last(&end.into());
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
        let numbers = carried.iter().map(|piece| piece.number);
        let carried = Carried::new(oldest.number, numbers, border);
        let state = match &self.left {
            Some(left) if oldest.is_cut => {
                left.clone().with_given(oldest.number, Placed::default())
            }
            _ => oldest.at.into(),
        };
        Restart { carried, ..state }
    }

    /// Adds the pieces of a document, or of tokens of one, that begins at `at`.
    fn add(&mut self, at: Point, is_cut: bool, pieces: Vec<BinPiece>) -> Result<(), Mismatch> {
        let unread = self.next_piece == 0 && self.begins.carried.is_empty();
        let is_start = self.begins.left.is_some() || self.begins.at.skip == 0;
        if unread && is_start && !is_cut {
            self.begins = at.into();
        }
        for mut piece in pieces {
            piece.number = self.next_piece;
            self.next_piece += 1;
            match self.is_given(piece.number) {
                Some(true) => continue,
                Some(false) => piece.size.carried = true,
                None => {}
            }
            self.waiting.push_back(piece);
        }
        self.collect()
    }

    /// Returns whether earlier batches hold piece `number`; `None` behind the last one that they hold.
    fn is_given(&self, number: u64) -> Option<bool> {
        match number.checked_sub(self.before) {
            None => Some(true),
            Some(behind) => self.given.holds(behind),
        }
    }

    /// Returns the number behind the last piece that was given, where `unmade` are all others, in order.
    fn given_end(&self, unmade: &[BinPiece]) -> u64 {
        let mut end = self.next_piece;
        for piece in unmade.iter().rev() {
            if piece.number + 1 != end {
                break;
            }
            end = piece.number;
        }
        end
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
        let pieces = divide(&self.balancing, at, skip, document)?;
        self.add(at, false, pieces)
    }

    fn push_range(&mut self, range: TokenRange) -> Result<(), Mismatch> {
        let (at, is_cut) = (range.at, range.is_cut);
        let pieces = divide_range(&self.balancing, range)?;
        self.add(at, is_cut, pieces)
    }

    fn hand_over(&mut self) -> Vec<TokenRange> {
        let mut pieces: Vec<BinPiece> = self.ready.unmake().collect();
        pieces.extend(self.rest.unmake());
        pieces.extend(self.waiting.drain(..));
        pieces.sort_unstable_by_key(|piece| piece.number);
        let end = self.given_end(&pieces);
        join_pieces(pieces.into_iter().map(|piece| {
            let is_before_given = piece.number < end;
            piece.unplaced(is_before_given)
        }))
    }

    fn is_restored(&self) -> bool {
        !self.start.is_pending() && self.pinned.is_none() && !self.replays()
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        self.ready.pop(self.batches.units)
    }

    fn end(&mut self, end: Point) -> Result<(), Mismatch> {
        if self.batches.are_made() {
            return Ok(());
        }
        if self.replays() {
            return Err(Mismatch::Pieces {
                known: self.before.saturating_add(self.given.bound()),
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
                self.keep_rest(arrangement, end)?;
            } else {
                self.give(arrangement, Some(pieces as u64))?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Mismatch> {
        if self.can_flush() {
            let pieces = self.waiting.len();
            let arrangement = self.arrange(pieces)?;
            self.give(arrangement, Some(pieces as u64))?;
        }
        Ok(())
    }

    fn can_flush(&self) -> bool {
        self.pinned.is_none() && !self.replays() && self.fill.tokens.batches() > 0
    }

    fn rest(&mut self, _: bool) -> Option<PackedBatch> {
        self.rest.pop(self.batches.units)
    }

    fn blank(&mut self) -> PackedBatch {
        self.rest.pop(self.batches.units).unwrap_or_default()
    }

    fn replays(&self) -> bool {
        self.is_given(self.next_piece).is_some()
    }

    fn waiting(&self) -> usize {
        let ready = self.ready.own() + self.rest.own();
        let pieces = self.waiting.iter().map(BinPiece::own).sum::<u64>();
        usize::try_from(ready + pieces).unwrap_or(usize::MAX)
    }
}
