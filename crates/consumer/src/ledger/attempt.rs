//! What the keeper knows of one attempt on this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::proof::{LedgerEntry, ReaderCoverage};

use super::book::{Book, Hole, reader};
use super::holes::{Holes, Reader};
use super::stored::Stored;
use crate::job::membership::Member;

/// See the file's header.
pub(super) struct Attempt {
    pub(super) book: Book,
    pub(super) member: Arc<Member>,
    /// What all daemons' objects tell; read when a rank comes that is new here, for those alone whose
    /// coming was reported before.
    pub(super) stored: Option<Stored>,
    pub(super) holes: Holes,
    /// Of each reader, also of those that are gone: every step below is in an object of this daemon or
    /// an earlier one, or in a hole.
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

    /// Where a rank that is new here goes on; none before the stored objects were read.
    pub(super) fn told(&self, member: &Member) -> Option<Step> {
        let own = self.known.get(&reader(member)).copied();
        let stored = self.stored.as_ref()?.end(member);
        Some(stored.max(own.unwrap_or_default()))
    }

    pub(super) fn lacks(&mut self, hole: Hole) {
        self.know(reader(&hole.member), hole.steps.end);
        self.holes.add(hole);
    }

    pub(super) fn end(&mut self, member: &Member) {
        self.book.end(member);
    }

    /// Nobody reads, and all is stored.
    pub(super) fn is_over(&self) -> bool {
        self.book.is_over() && self.holes.is_empty()
    }

    fn know(&mut self, reader: Reader, to: Step) {
        let known = self.known.entry(reader).or_default();
        *known = to.max(*known);
    }

    /// Notes entries that are going to be stored. Answers how far all objects tell of each reader without
    /// a hole: what is behind one must be told again, should this daemon die before it is filled.
    pub(super) fn tell(&mut self, entries: &[LedgerEntry]) -> Vec<ReaderCoverage> {
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
