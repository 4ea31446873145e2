//! The ledger of one attempt on this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::proof::{LedgerEntry, ReaderCoverage};

use super::book::{Book, Hole, reader};
use super::holes::{Holes, Reader};
use super::stored::Stored;
use crate::job::membership::Member;

/// The entries, holes and stored ledgers of one attempt.
pub(super) struct Attempt {
    pub(super) book: Book,
    pub(super) member: Arc<Member>,
    /// The records of all daemons, read when a rank begins that is new here; they may lack ranks that begin
    /// later.
    pub(super) stored: Option<Stored>,
    pub(super) holes: Holes,
    /// By reader, also disconnected ones: every step below is in an object of this daemon or an earlier one, or
    /// in a hole.
    known: BTreeMap<Reader, Step>,
}

impl Attempt {
    pub(super) fn new(member: Arc<Member>) -> Self {
        Self {
            book: Book::default(),
            member,
            stored: None,
            holes: Holes::default(),
            known: BTreeMap::new(),
        }
    }

    /// Returns the step below which a new rank is recorded; `None` before the stored objects are read.
    pub(super) fn recorded_to(&self, member: &Member) -> Option<Step> {
        let own = self.known.get(&reader(member)).copied();
        let stored = self.stored.as_ref()?.end(member);
        Some(stored.max(own.unwrap_or_default()))
    }

    /// Returns the step below which this daemon has recorded a reader, or has a hole of it.
    pub(super) fn known(&self, member: &Member) -> Step {
        self.known.get(&reader(member)).copied().unwrap_or_default()
    }

    pub(super) fn add_hole(&mut self, hole: Hole) {
        self.know(reader(&hole.member), hole.steps.end);
        self.holes.add(hole);
    }

    pub(super) fn end(&mut self, member: &Member) {
        self.book.end(member);
    }

    /// Whether no rank reads, and all entries are stored.
    pub(super) fn is_over(&self) -> bool {
        self.book.is_over() && self.holes.is_empty()
    }

    fn know(&mut self, reader: Reader, to: Step) {
        let known = self.known.entry(reader).or_default();
        *known = to.max(*known);
    }

    /// Notes entries that are about to be stored. Returns the step below which each reader is recorded without a
    /// hole: steps behind a hole must be recorded again if this daemon dies before it is filled.
    pub(super) fn record(&mut self, entries: &[LedgerEntry]) -> Vec<ReaderCoverage> {
        for entry in entries {
            self.know(entry.reader(), entry.to);
        }
        let told = self.known.iter().map(|(&reader, &known)| ReaderCoverage {
            dp_rank: reader.0,
            rank: reader.1,
            to: self.holes.first(reader).unwrap_or(known),
        });
        told.collect()
    }
}
