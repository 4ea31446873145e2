//! The states that ranks report of their steps: counted once each, and held until the ledger stores them.
//!
//! `known` decides which states count.
//!
//! Invariants:
//! - a state that counts is held until an object with it is stored. Nothing drops it: a rank whose states wait for the
//!   store is not read from meanwhile;
//! - a session's reports are confirmed, in their order, once all their states are stored.

mod known;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchweave_core::guards;
use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::proof::{LEDGER_ENTRIES_MAX, ReportedStates, STATE_RANGES_MAX, StepRanges};
use batchweave_wire::StepStates;

pub(crate) use self::known::{Counted, KnownStates};
use super::membership::Member;
use crate::engine::SessionId;

const _: () =
    assert!(batchweave_wire::REASON_BYTES_MAX == batchweave_core::proof::REASON_BYTES_MAX);

/// Ranges of an attempt at which the ledger stores them.
const DUE_RANGES: usize = 4096;
/// Ranges of a rank at which its messages are read no more until the ledger has stored them.
const WAITING_RANGES_MAX: usize = 16 << 10;

/// The job, its incarnation, and the attempt.
type AttemptKey = (JobName, Version, AttemptNo);
/// The coordinate, and the rank if known.
type Reader = (u32, Option<u32>);

/// The states of one rank that are not in a ledger yet.
#[derive(Debug, Default)]
struct Waiting {
    trained: StepRanges,
    /// By the first step: the end and the reason.
    left_out: BTreeMap<Step, (Step, String)>,
}

impl Waiting {
    fn ranges(&self) -> usize {
        self.trained.len() + self.left_out.len()
    }

    fn add(&mut self, state: StepStates) {
        let Some(reason) = state.left_out else {
            return self.trained.insert(state.from..state.to);
        };
        let before = self.left_out.range_mut(..state.from).next_back();
        match before.filter(|(_, (end, why))| *end == state.from && *why == reason) {
            Some((_, (end, _))) => *end = state.to,
            None => _ = self.left_out.insert(state.from, (state.to, reason)),
        }
    }

    fn into_reported(self, (dp_rank, rank): Reader) -> ReportedStates {
        let trained = self.trained.iter().map(|steps| (steps.start, steps.end));
        let left_out = self.left_out.into_iter();
        ReportedStates {
            dp_rank,
            rank,
            trained: trained.collect(),
            left_out: left_out.map(|(from, (to, why))| (from, to, why)).collect(),
        }
    }
}

/// The states of one attempt that are not in a ledger yet.
#[derive(Debug)]
struct AttemptStates {
    member: Arc<Member>,
    readers: BTreeMap<Reader, Waiting>,
}

/// The reports of one session: how many came, are stored, and were confirmed.
#[derive(Debug, Default)]
struct SessionReports {
    /// `None` for readers without a job, of which nothing is kept.
    of: Option<(AttemptKey, Reader)>,
    received: u64,
    stored: u64,
    confirmed: u64,
}

fn ranges_of(all: &[ReportedStates]) -> usize {
    all.iter().map(ReportedStates::ranges).sum()
}

/// Reports that are stored once an object is, by session.
pub(crate) type Receipts = Vec<(SessionId, u64)>;

/// The states to store in an attempt's ledgers.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Any rank of the attempt; `None` without states.
    pub(crate) member: Option<Arc<Member>>,
    /// The states, as many as one ledger may have in each.
    pub(crate) ledgers: Vec<Vec<ReportedStates>>,
    pub(crate) receipts: Receipts,
}

#[derive(Debug, Default)]
struct Inner {
    attempts: BTreeMap<AttemptKey, AttemptStates>,
    sessions: BTreeMap<SessionId, SessionReports>,
}

/// The states of all ranks on this node that are not in a ledger yet.
#[derive(Debug, Default)]
pub(crate) struct States(Mutex<Inner>);

fn key(member: &Member) -> AttemptKey {
    (member.job.clone(), member.opened, member.attempt)
}

impl States {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a report of a session, with the states that count; returns whether the ledger is due.
    pub(crate) fn note(
        &self,
        session: SessionId,
        member: &Arc<Member>,
        new: Vec<StepStates>,
    ) -> bool {
        let mut inner = self.inner();
        let (key, reader) = (key(member), (member.dp_rank, member.rank));
        let reports = inner.sessions.entry(session).or_default();
        reports.of.get_or_insert_with(|| (key.clone(), reader));
        reports.received += 1;
        if new.is_empty() {
            return false;
        }
        let attempt = inner.attempts.entry(key).or_insert_with(|| AttemptStates {
            member: Arc::clone(member),
            readers: BTreeMap::new(),
        });
        let waiting = attempt.readers.entry(reader).or_default();
        for state in new {
            waiting.add(state);
        }
        attempt.is_due()
    }

    /// Notes a report of a reader without a job, of which nothing is kept.
    pub(crate) fn note_nothing(&self, session: SessionId) {
        let mut inner = self.inner();
        let reports = inner.sessions.entry(session).or_default();
        reports.received += 1;
        reports.stored = reports.received;
    }

    /// Takes the states of an attempt, to be stored.
    pub(crate) fn take(&self, key: &AttemptKey) -> Taken {
        let mut inner = self.inner();
        let own = |reports: &SessionReports| reports.of.as_ref().is_some_and(|(k, _)| k == key);
        let sessions = inner.sessions.iter();
        let sessions = sessions.filter(|(_, r)| own(r) && r.stored < r.received);
        let mut taken = Taken {
            receipts: sessions.map(|(id, r)| (*id, r.received)).collect(),
            ..Taken::default()
        };
        let mut readers = BTreeMap::new();
        if let Some(attempt) = inner.attempts.remove(key) {
            taken.member = Some(attempt.member);
            readers = attempt.readers;
        }
        if guards::takes_states_of_any_attempt() {
            let others = std::mem::take(&mut inner.attempts).into_values();
            readers.extend(others.flat_map(|other| other.readers));
        }
        for (reader, waiting) in readers {
            let states = waiting.into_reported(reader);
            match taken.ledgers.last_mut() {
                Some(last)
                    if states.ranges() + ranges_of(last) <= STATE_RANGES_MAX
                        && last.len() < LEDGER_ENTRIES_MAX =>
                {
                    last.push(states);
                }
                _ => taken.ledgers.push(vec![states]),
            }
        }
        taken
    }

    /// Notes that reports are stored.
    pub(crate) fn stored(&self, receipts: &Receipts) {
        let mut inner = self.inner();
        for (session, count) in receipts {
            if let Some(reports) = inner.sessions.get_mut(session) {
                reports.stored = reports.stored.max(*count);
            }
        }
    }

    /// Returns the number of a session's reports that are stored, if it was not told it yet.
    pub(crate) fn confirm(&self, session: SessionId) -> Option<u64> {
        let mut inner = self.inner();
        let reports = inner.sessions.get_mut(&session)?;
        let news = reports.confirmed < reports.stored;
        reports.confirmed = reports.stored;
        news.then_some(reports.stored)
    }

    /// Whether a session's rank has `WAITING_RANGES_MAX` ranges that wait for the store: then its messages wait, too.
    pub(crate) fn is_full(&self, session: SessionId) -> bool {
        let inner = self.inner();
        let waiting = || {
            let (key, reader) = inner.sessions.get(&session)?.of.as_ref()?;
            inner.attempts.get(key)?.readers.get(reader)
        };
        waiting().is_some_and(|waiting| waiting.ranges() >= WAITING_RANGES_MAX)
    }

    /// Forgets a session that is over; its states stay.
    pub(crate) fn close(&self, session: SessionId) {
        self.inner().sessions.remove(&session);
    }

    /// Returns the attempts that have states to store, or those that are due.
    pub(crate) fn attempts(&self, only_due: bool) -> Vec<AttemptKey> {
        let inner = self.inner();
        let attempts = inner.attempts.iter();
        let attempts = attempts.filter(|(_, attempt)| !only_due || attempt.is_due());
        attempts.map(|(key, _)| key.clone()).collect()
    }
}

impl AttemptStates {
    fn is_due(&self) -> bool {
        let ranges: usize = self.readers.values().map(Waiting::ranges).sum();
        ranges >= DUE_RANGES
    }
}
