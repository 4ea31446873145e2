//! Lineages as attempts make them, honest and forged, and what each passes over.

#![allow(clippy::single_range_in_vec_init)] // lists of one range are meant

use super::*;
use crate::ids::AttemptId;
use crate::manifest::entry::{AttemptOpened, JobClosed, JobOpened, QuarantineLifted, Quarantined};
use crate::manifest::testing::{Bench, request};
use crate::stream::StreamOrder;

struct Log {
    bench: Bench,
    history: History,
}

impl Log {
    fn new() -> Self {
        let mut log = Self {
            bench: Bench::new(StreamOrder::Arrival, &[]),
            history: History::default(),
        };
        log.one(Entry::JobOpened(JobOpened {
            request: request(1),
            job: "llm".parse().unwrap(),
            start: 10,
            keep: 2,
            holds: true,
            paces: true,
            lease_seconds: None,
        }));
        log
    }

    fn one(&mut self, entry: Entry) {
        self.record(vec![entry]);
    }

    fn record(&mut self, entries: Vec<Entry>) {
        let version = self.bench.m.next_version();
        let folded = self.bench.fold(entries);
        self.history.note(version, &folded);
    }

    fn attempt(&mut self, start: Step, parent: Option<(AttemptNo, Step)>) {
        let opened = self.opened(start, parent);
        self.one(opened);
    }

    fn opened(&self, start: Step, parent: Option<(AttemptNo, Step)>) -> Entry {
        let attempts = self.job().attempts.clone();
        let parent = parent.map(|(attempt, step)| Parent { attempt, step });
        Entry::AttemptOpened(AttemptOpened {
            job: "llm".parse().unwrap(),
            opened: 0,
            attempt: AttemptId([attempts.len() as u8; 16]),
            predecessor: attempts.last().map(|a| a.state.id),
            parent,
            inherited: None,
            start,
            dp_size: 4,
            mesh: Vec::new(),
        })
    }

    fn job(&self) -> &JobRecord {
        self.history.job(&"llm".parse().unwrap(), None).unwrap()
    }

    fn fails(&self, says: &str) {
        let error = self.job().lineage().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_lineage_follows_parents_and_leaves_dead_branches_out() {
    let mut log = Log::new();
    assert_eq!(log.job().lineage(), Ok(vec![]));
    log.attempt(10, None);
    log.attempt(50, Some((0, 50)));
    log.attempt(30, Some((0, 30)));
    log.attempt(30, Some((2, 30)));
    log.attempt(70, Some((3, 70)));
    let legs: Vec<_> = log
        .job()
        .lineage()
        .unwrap()
        .iter()
        .map(|l| (l.attempt, l.from, l.to))
        .collect();
    let expected = [
        (0, 10, Some(30)),
        (2, 30, Some(30)),
        (3, 30, Some(70)),
        (4, 70, None),
    ];
    assert_eq!(legs, expected);
}

#[test]
fn forged_lineages_are_distinguished() {
    let mut log = Log::new();
    log.attempt(10, None);
    log.attempt(50, Some((0, 40)));
    log.fails("attempt 1 starts at step 50, but the checkpoint of attempt 0 that it names stands at step 40");
    log.attempt(50, Some((0, 50)));
    log.attempt(40, Some((2, 40)));
    log.fails("attempt 3 starts from step 40 of attempt 2, which began at step 50 only");
    log.attempt(60, None);
    log.fails("attempt 4 starts at step 60 and names no checkpoint");
    log.attempt(10, None);
    assert_eq!(log.job().lineage().unwrap().len(), 1);
    // The fold refuses these; a forger's log is not bound to.
    let mut forged = log.job().clone();
    let last = forged.attempts.last_mut().unwrap();
    let number = last.state.number;
    for attempt in [number, number + 1] {
        last.state.parent = Some(Parent { attempt, step: 10 });
    }
    let error = forged.lineage().unwrap_err();
    assert!(matches!(error, LineageError::NoParent { .. }), "{error}");
}

#[test]
fn quarantines_count_as_they_stood_when_the_attempt_was_opened() {
    let mut log = Log::new();
    log.attempt(10, None);
    for (n, first, last) in [(2, 30, 39), (3, 12, 14), (4, 15, 20)] {
        log.one(Entry::Quarantined(Quarantined {
            request: request(n),
            first,
            last,
            reason: "bad".into(),
        }));
    }
    log.attempt(10, None);
    log.one(Entry::QuarantineLifted(QuarantineLifted {
        request: request(5),
        quarantine: request(2),
    }));
    log.attempt(10, None);
    let job = log.job();
    let skips: Vec<_> = job.attempts.iter().map(|a| a.skips.clone()).collect();
    assert_eq!(skips, [vec![], vec![12..21, 30..40], vec![12..21]]);
    let second = &job.attempts[1];
    assert_eq!([second.next_kept(14), second.next_kept(21)], [21, 21]);
    assert_eq!(second.skipped(20..35), [(20, 21), (30, 35)]);
    log.one(Entry::JobClosed(JobClosed {
        request: request(6),
        job: "llm".parse().unwrap(),
        opened: 0,
        reason: "done".into(),
    }));
    assert_eq!(log.job().closed, Some(8), "closed ones stay known");
}

/// A daemon knows the versions of a quarantine and of an attempt, and no order within a record.
#[test]
fn a_quarantine_in_the_record_of_an_attempt_counts_as_daemons_count_it() {
    let quarantine = |n| {
        Entry::Quarantined(Quarantined {
            request: request(n),
            first: 20 * u64::from(n),
            last: 20 * u64::from(n) + 5,
            reason: "bad".into(),
        })
    };
    let lift = |n, of| {
        Entry::QuarantineLifted(QuarantineLifted {
            request: request(n),
            quarantine: request(of),
        })
    };
    let as_daemons = |log: &Log| {
        let attempt = log.job().attempts.last().unwrap();
        let all = log.bench.m.quarantines().iter();
        let daemons: Vec<_> = all
            .filter(|q| q.in_force_at(attempt.state.opened))
            .map(|q| q.first..q.last + 1)
            .collect();
        assert_eq!(attempt.skips, daemons);
    };
    let mut log = Log::new();
    log.record(vec![quarantine(2), quarantine(3)]);
    let opened = log.opened(10, None);
    log.record(vec![lift(10, 2), quarantine(4), opened]);
    as_daemons(&log);
    let opened = log.opened(10, None);
    log.record(vec![quarantine(5), opened, lift(11, 3), lift(12, 5)]);
    as_daemons(&log);
    let skips: Vec<_> = log.job().attempts.iter().map(|a| a.skips.clone()).collect();
    assert_eq!(skips, [vec![60..66], vec![80..86]]);
}

#[test]
fn an_attempt_with_a_checkpoint_of_the_parent_stream_begins_where_the_fork_does() {
    let mut log = Log::new();
    log.attempt(10, None);
    log.attempt(30, Some((0, 30)));
    let mut job = log.job().clone();
    let inherited = Inherited {
        stream: crate::ids::StreamId::from_random([8; 16]),
        attempt: 4,
        id: AttemptId([9; 16]),
        step: 5,
    };
    job.attempts[0].state.start = 5;
    let error = job.lineage().unwrap_err().to_string();
    assert!(error.contains("names no checkpoint"), "{error}");
    job.attempts[0].inherited = Some(inherited);
    let starts: Vec<_> = job.lineage().unwrap().iter().map(|l| l.from).collect();
    assert_eq!(starts, [5, 30]);
    let first = job.lineage_of(job.attempt(0)).unwrap();
    assert_eq!((first.len(), first[0].to), (1, None));
}

#[test]
fn an_attempt_is_found_by_its_id_and_number() {
    let mut log = Log::new();
    log.attempt(10, None);
    log.attempt(30, Some((0, 30)));
    let (job, attempt) = log.history.attempt(AttemptId([1; 16]), 1).unwrap();
    assert_eq!((job.opened, attempt.state.start), (0, 30));
    assert!(log.history.attempt(AttemptId([1; 16]), 0).is_none());
    assert!(log.history.attempt(AttemptId([5; 16]), 1).is_none());
}
