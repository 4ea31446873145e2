//! The entries of one attempt that are not stored yet. Pure.
//!
//! Invariants, which `verify --job` relies on:
//! - entries of a coordinate are consecutive; an entry that begins at a return is marked as resumed;
//! - steps that a rank has received and that no ledger records are returned as a [`Hole`], to be read from the
//!   store's indexes; they are never skipped.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::proof::{LEDGER_CRCS, LEDGER_STEPS, LedgerEntry};

use crate::job::membership::Member;

/// Steps that a rank has received and that no ledger records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) member: Arc<Member>,
    pub(super) steps: Range<Step>,
}

/// The open entry and the position of one coordinate.
#[derive(Debug)]
struct Coordinate {
    member: Arc<Member>,
    /// Every step below is recorded, here or in the store.
    recorded: Step,
    /// The next step that the rank is to receive.
    at: Step,
    /// The entry to which steps are added; the others are closed.
    open: Option<LedgerEntry>,
    /// The rank went back: steps below are recorded again.
    back_until: Step,
    /// The next entry is the first after a return.
    returned: bool,
}

/// The entries of one attempt on this node.
#[derive(Debug, Default)]
pub(super) struct Book {
    coordinates: BTreeMap<(u32, Option<u32>), Coordinate>,
    closed: Vec<LedgerEntry>,
    crcs: usize,
    /// Steps since the last flush, of the coordinate with most.
    most: u64,
}

/// Returns the reader of a member: the coordinate, and the rank if known.
pub(super) fn reader(member: &Member) -> (u32, Option<u32>) {
    (member.dp_rank, member.rank)
}

impl Book {
    /// Whether the rank is known here, and so the steps that are recorded of it.
    pub(super) fn knows(&self, member: &Member) -> bool {
        self.coordinates.contains_key(&reader(member))
    }

    /// Begins recording a rank from `at` on. `stored`: the step below which stored ledgers record it, for a rank
    /// that is new here. Returns the steps that no ledger records.
    pub(super) fn begin(&mut self, member: &Arc<Member>, at: Step, stored: Step) -> Option<Hole> {
        let key = reader(member);
        let recorded = self.coordinates.get(&key).map_or(stored, |c| c.recorded);
        self.close(key);
        let start = member.quarantine.next_read(member.start);
        let recorded = recorded.max(start);
        let coordinate = Coordinate {
            member: Arc::clone(member),
            recorded: recorded.max(at),
            at,
            open: None,
            back_until: recorded,
            returned: at > start || recorded > start,
        };
        self.coordinates.insert(key, coordinate);
        hole(member, recorded..at)
    }

    /// Whether ledgers recorded `step` when the rank began.
    pub(super) fn is_recorded(&self, member: &Member, step: Step) -> bool {
        let coordinate = self.coordinates.get(&reader(member));
        coordinate.is_some_and(|c| step < c.back_until)
    }

    /// Records that a rank received its slices of `step`. Returns the steps before it whose reports were lost.
    pub(super) fn step(&mut self, member: &Arc<Member>, step: Step, crcs: &[u32]) -> Option<Hole> {
        let key = reader(member);
        let mut lost = None;
        let expected = self
            .coordinates
            .get(&key)
            .map(|c| c.member.quarantine.next_read(c.at));
        if expected != Some(step) {
            // Reports were lost between: the store's indexes have the same checksums.
            let recorded = self
                .coordinates
                .get(&key)
                .map_or(member.start, |c| c.recorded);
            lost = self.begin(member, step, recorded);
        }
        let (first_slice, slices) = (member.slices.start, member.slices.len() as u32);
        let coordinate = self.coordinates.get(&key)?;
        let again = |entry: &LedgerEntry| entry.from < coordinate.back_until;
        if step >= coordinate.back_until && coordinate.open.as_ref().is_some_and(again) {
            // The steps that are recorded again end here.
            self.close(key);
        }
        let coordinate = self.coordinates.get_mut(&key)?;
        let resumed = step < coordinate.back_until || coordinate.returned;
        let entry = coordinate.open.get_or_insert_with(|| LedgerEntry {
            dp_rank: member.dp_rank,
            rank: member.rank,
            first_slice,
            slices,
            from: step,
            to: step,
            resumed,
            crcs: Vec::new(),
            skipped: Vec::new(),
        });
        if entry.to < step {
            entry.skipped.push((entry.to, step));
        }
        entry.to = step + 1;
        entry.crcs.extend_from_slice(crcs);
        self.crcs += crcs.len();
        self.most = self.most.max(entry.received());
        (coordinate.at, coordinate.recorded) = (step + 1, coordinate.recorded.max(step + 1));
        lost
    }

    fn close(&mut self, key: (u32, Option<u32>)) {
        let Some(coordinate) = self.coordinates.get_mut(&key) else {
            return;
        };
        if let Some(entry) = coordinate.open.take() {
            self.closed.push(entry);
            coordinate.returned = false;
        }
    }

    /// Adds an entry that was read from the store's indexes.
    pub(super) fn recalled(&mut self, entry: LedgerEntry) {
        self.crcs += entry.crcs.len();
        self.closed.push(entry);
    }

    /// Ends a rank without a newer session.
    pub(super) fn end(&mut self, member: &Member) {
        self.close(reader(member));
        self.coordinates.remove(&reader(member));
    }

    /// Whether no rank reads, and all entries are stored.
    pub(super) fn is_over(&self) -> bool {
        self.coordinates.is_empty() && self.closed.is_empty()
    }

    /// Whether the entries are enough for an object.
    pub(super) fn is_due(&self) -> bool {
        self.most >= LEDGER_STEPS || self.crcs >= LEDGER_CRCS
    }

    /// Closes and removes all entries, to be stored.
    pub(super) fn take(&mut self) -> Vec<LedgerEntry> {
        let keys: Vec<_> = self.coordinates.keys().copied().collect();
        for key in keys {
            self.close(key);
        }
        (self.crcs, self.most) = (0, 0);
        let mut entries = std::mem::take(&mut self.closed);
        entries.sort_by_key(|e| (e.dp_rank, e.rank, e.from));
        entries
    }
}

/// Returns the hole of `steps`, without quarantined steps at its start; `None` if nothing is left.
fn hole(member: &Arc<Member>, steps: Range<Step>) -> Option<Hole> {
    let first = member.quarantine.next_read(steps.start);
    (first < steps.end).then(|| Hole {
        member: Arc::clone(member),
        steps: first..steps.end,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use batchweave_core::ids::AttemptId;

    use super::*;
    use crate::quarantine::QuarantineRanges;

    pub(crate) fn member(dp_rank: u32, quarantine: &[(Step, Step)]) -> Arc<Member> {
        Arc::new(Member {
            job: "llm".parse().unwrap(),
            opened: 3,
            attempt: 1,
            id: AttemptId([1; 16]),
            parent: None,
            start: 100,
            dp_rank,
            dp_size: 4,
            rank: None,
            shared: false,
            slices: dp_rank * 2..dp_rank * 2 + 2,
            quarantine: Arc::new(QuarantineRanges::from_ranges(quarantine)),
        })
    }

    /// Records these steps; none may leave a hole.
    fn record(book: &mut Book, member: &Arc<Member>, steps: Range<Step>) {
        for step in steps.filter(|step| !member.quarantine.contains(*step)) {
            let crcs = [step as u32, !(step as u32)];
            assert_eq!(book.step(member, step, &crcs), None, "step {step}");
        }
    }

    /// Rank, from, to, whether resumed.
    fn taken(book: &mut Book) -> Vec<(u32, Step, Step, bool)> {
        let entries = book.take();
        for entry in &entries {
            assert_eq!(entry.crcs.len() as u64, entry.received() * 2, "{entry:?}");
            assert_eq!(entry.steps().next().unwrap().1[0], entry.from as u32);
        }
        let short = |e: &LedgerEntry| (e.dp_rank, e.from, e.to, e.resumed);
        entries.iter().map(short).collect()
    }

    #[test]
    fn entries_follow_one_another_over_flushes_and_quarantined_steps() {
        let mut book = Book::default();
        let ranks = [member(0, &[(103, 105)]), member(1, &[(103, 105)])];
        for rank in &ranks {
            assert_eq!(book.begin(rank, 100, 100), None);
            record(&mut book, rank, 100..110);
        }
        let entries = book.take();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[1].first_slice, entries[1].slices), (2, 2));
        assert_eq!(entries[0].skipped, [(103, 106)]);
        record(&mut book, &ranks[0], 110..110 + LEDGER_STEPS - 1);
        assert!(!book.is_due());
        record(&mut book, &ranks[0], 365..366);
        assert!(book.is_due());
        assert_eq!(taken(&mut book), [(0, 110, 366, false)]);
        assert!(!book.is_due() && !book.is_over());
        for rank in &ranks {
            book.end(rank);
        }
        assert!(book.is_over());
    }

    #[test]
    fn deliveries_of_a_dead_daemon_are_a_hole() {
        let mut book = Book::default();
        let rank = member(0, &[(290, 299)]);
        let hole = book.begin(&rank, 300, 256).unwrap();
        assert_eq!(hole.steps, 256..300);
        record(&mut book, &rank, 300..310);
        assert_eq!(taken(&mut book), [(0, 300, 310, true)]);
        record(&mut book, &rank, 310..320);
        assert_eq!(taken(&mut book), [(0, 310, 320, false)]);
        assert_eq!(
            Book::default().begin(&rank, 300, 290),
            None,
            "only quarantined"
        );
        assert_eq!(Book::default().begin(&rank, 100, 0), None);
    }

    #[test]
    fn a_rank_that_goes_back_says_so_until_it_is_past() {
        let mut book = Book::default();
        let rank = member(2, &[]);
        assert_eq!(book.begin(&rank, 100, 0), None);
        record(&mut book, &rank, 100..130);
        assert_eq!(book.begin(&rank, 110, 0), None);
        record(&mut book, &rank, 110..140);
        let expected = [
            (2, 100, 130, false),
            (2, 110, 130, true),
            (2, 130, 140, false),
        ];
        assert_eq!(taken(&mut book), expected);
        // Recorded by another daemon, which the stored ledgers show.
        let mut book = Book::default();
        assert_eq!(book.begin(&rank, 120, 140), None);
        record(&mut book, &rank, 120..125);
        assert_eq!(taken(&mut book), [(2, 120, 125, true)]);
        record(&mut book, &rank, 125..145);
        assert_eq!(
            taken(&mut book),
            [(2, 125, 140, true), (2, 140, 145, false)]
        );
        // From the beginning, in the same attempt.
        assert_eq!(book.begin(&rank, 100, 0), None);
        record(&mut book, &rank, 100..101);
        assert_eq!(taken(&mut book), [(2, 100, 101, true)]);
    }

    #[test]
    fn lost_reports_are_holes_too() {
        let mut book = Book::default();
        let rank = member(1, &[]);
        book.begin(&rank, 100, 0);
        record(&mut book, &rank, 100..105);
        let hole = book.step(&rank, 109, &[109, 1]).unwrap();
        assert_eq!(hole.steps, 105..109);
        record(&mut book, &rank, 110..112);
        assert_eq!(
            taken(&mut book),
            [(1, 100, 105, false), (1, 109, 112, true)]
        );
        let hole = book.step(&member(3, &[]), 101, &[101, 1]).unwrap();
        assert_eq!(hole.steps, 100..101, "the report of its beginning, too");
    }
}
