//! Jobs, attempts, mixtures, quarantine, watermark: valid use, each refusal, harmless repeats.

use serde_json::json;

use super::*;
use crate::ids::JobName;

fn job() -> JobName {
    "llm".parse().unwrap()
}

fn opened_job(n: u8, start: u64) -> Entry {
    Entry::JobOpened(JobOpened {
        request: request(n),
        job: job(),
        start,
        keep: 2,
        holds: true,
        paces: true,
        lease_seconds: None,
    })
}

pub(super) fn attempt_entry(
    n: u8,
    opened: u64,
    predecessor: Option<u8>,
    start: u64,
) -> AttemptOpened {
    AttemptOpened {
        job: job(),
        opened,
        attempt: attempt(n),
        predecessor: predecessor.map(attempt),
        parent: None,
        inherited: None,
        start,
        dp_size: 2,
        mesh: vec![
            Axis {
                name: "dp".into(),
                size: 2,
            },
            Axis {
                name: "tp".into(),
                size: 2,
            },
        ],
    }
}

/// p0 has ten steps; job llm is open since version 2 with attempt 1.
pub(super) fn bench() -> Bench {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    b.commit("p0", 10);
    b.one(opened_job(1, 0)).unwrap();
    b.one(Entry::AttemptOpened(attempt_entry(1, 2, None, 0)))
        .unwrap();
    b
}

#[test]
fn jobs_open_once_close_once_and_come_back_as_another_incarnation() {
    let mut b = bench();
    assert_eq!(b.one(opened_job(2, 0)), Err(Void::JobOpen(job())));
    let Entry::JobOpened(good) = opened_job(3, 0) else {
        unreachable!()
    };
    let close = |opened, n| {
        Entry::JobClosed(JobClosed {
            request: request(n),
            job: job(),
            opened,
            reason: "done".into(),
        })
    };
    assert!(matches!(
        b.one(close(1, 4)),
        Err(Void::JobNotOpen { opened: 1, .. })
    ));
    b.one(close(2, 5)).unwrap();
    b.one(Entry::JobOpened(JobOpened {
        keep: 0,
        ..good.clone()
    }))
    .unwrap_err();
    b.one(Entry::JobOpened(good)).unwrap();
    assert_eq!(b.m.jobs()[&job()].opened, b.m.next_version() - 1);
    let stale = Entry::AttemptOpened(attempt_entry(2, 2, Some(1), 0));
    assert!(matches!(
        b.one(stale),
        Err(Void::JobNotOpen { opened: 2, .. })
    ));
}

#[test]
fn attempts_follow_each_other() {
    let mut b = bench();
    let good = attempt_entry(2, 2, Some(1), 4);
    let broken = [
        AttemptOpened {
            predecessor: None,
            ..good.clone()
        },
        AttemptOpened {
            predecessor: Some(attempt(9)),
            ..good.clone()
        },
        AttemptOpened {
            parent: Some(Parent {
                attempt: 1,
                step: 4,
            }),
            ..good.clone()
        },
        AttemptOpened {
            dp_size: 3,
            ..good.clone()
        },
        AttemptOpened {
            dp_size: 0,
            ..good.clone()
        },
        AttemptOpened {
            mesh: vec![Axis {
                name: "x".into(),
                size: 0,
            }],
            ..good.clone()
        },
        AttemptOpened {
            mesh: vec![
                Axis {
                    name: "x".into(),
                    size: u32::MAX
                };
                3
            ],
            ..good.clone()
        },
    ];
    for entry in broken {
        b.one(Entry::AttemptOpened(entry)).unwrap_err();
    }
    let parent = Some(Parent {
        attempt: 0,
        step: 4,
    });
    b.one(Entry::AttemptOpened(AttemptOpened {
        parent,
        ..good.clone()
    }))
    .unwrap();
    let numbers: Vec<_> = b.m.jobs()[&job()]
        .attempts
        .iter()
        .map(|a| a.number)
        .collect();
    assert_eq!(numbers, [0, 1]);
    b.one(Entry::AttemptOpened(good)).unwrap();
    assert_eq!(
        b.m.jobs()[&job()].attempts.len(),
        2,
        "the same id again is a no-op"
    );
}

#[test]
fn the_watermark_grows_and_names_the_folded_jobs() {
    let mut b = bench();
    let watermark = |b: &Bench, step, request| {
        Entry::Watermark(Watermark {
            step,
            jobs: b.m.holding_jobs(),
            request,
        })
    };
    let stale = watermark(&b, 4, None);
    b.one(Entry::AttemptOpened(attempt_entry(2, 2, Some(1), 0)))
        .unwrap();
    assert_eq!(
        b.one(stale),
        Err(Void::WatermarkJobs),
        "an attempt opened in between"
    );
    assert!(matches!(
        b.one(watermark(&b, 0, None)),
        Err(Void::WatermarkOrder { .. })
    ));
    assert!(matches!(
        b.one(watermark(&b, 11, None)),
        Err(Void::WatermarkAboveHead { .. })
    ));
    b.one(watermark(&b, 4, None)).unwrap();
    assert_eq!(b.m.watermark(), 4);
    let below = Entry::AttemptOpened(attempt_entry(3, 2, Some(2), 3));
    assert!(matches!(
        b.one(below),
        Err(Void::BelowWatermark {
            step: 3,
            watermark: 4
        })
    ));
    b.one(Entry::JobClosed(JobClosed {
        request: request(8),
        job: job(),
        opened: 2,
        reason: String::new(),
    }))
    .unwrap();
    assert!(matches!(
        b.one(opened_job(9, 3)),
        Err(Void::BelowWatermark { .. })
    ));
    assert_eq!(b.one(watermark(&b, 5, None)), Err(Void::WatermarkUnasked));
    b.one(watermark(&b, 5, Some(request(7)))).unwrap();
}

#[test]
fn attempts_that_ended_below_the_watermark_are_forgotten() {
    let mut b = bench();
    let attempts = |b: &Bench| -> Vec<_> {
        let attempts = b.m.jobs()[&job()].attempts.iter();
        attempts.map(|a| (a.number, a.head)).collect()
    };
    let watermark = |b: &mut Bench, step| {
        let jobs = b.m.holding_jobs();
        let request = None;
        b.one(Entry::Watermark(Watermark {
            step,
            jobs,
            request,
        }))
        .unwrap();
    };
    b.one(Entry::AttemptOpened(attempt_entry(2, 2, Some(1), 0)))
        .unwrap();
    b.one(Entry::Quarantined(Quarantined {
        request: request(20),
        first: 20,
        last: 24,
        reason: "bad data".into(),
    }))
    .unwrap();
    b.one(Entry::AttemptOpened(attempt_entry(3, 2, Some(2), 0)))
        .unwrap();
    b.commit("p0", 10);
    b.one(Entry::AttemptOpened(attempt_entry(4, 2, Some(3), 4)))
        .unwrap();
    b.commit("p0", 10);
    let ended = [(0, Some(10)), (1, Some(10)), (2, Some(25)), (3, None)];
    assert_eq!(attempts(&b), ended, "attempt 2 passes over 20 to 24");
    watermark(&mut b, 10);
    assert_eq!(attempts(&b), ended, "a checkpoint at 10 may still be used");
    watermark(&mut b, 11);
    assert_eq!(attempts(&b), ended[2..]);
    watermark(&mut b, 30);
    assert_eq!(attempts(&b), ended[3..], "never the newest");

    let next = AttemptOpened {
        parent: Some(Parent {
            attempt: 0,
            step: 30,
        }),
        ..attempt_entry(5, 2, Some(4), 30)
    };
    b.one(Entry::AttemptOpened(next)).unwrap();
    assert_eq!(attempts(&b), [(3, Some(30)), (4, None)]);
}

#[test]
fn a_quarantine_is_kept_while_the_newest_attempt_was_opened_under_it() {
    let mut b = bench();
    let q = Quarantined {
        request: request(20),
        first: 3,
        last: 5,
        reason: "bad data".into(),
    };
    b.one(Entry::Quarantined(Quarantined {
        first: 6,
        ..q.clone()
    }))
    .unwrap_err();
    b.one(Entry::Quarantined(q)).unwrap();
    b.one(Entry::AttemptOpened(attempt_entry(2, 2, Some(1), 0)))
        .unwrap();
    let lift = |n, of| {
        Entry::QuarantineLifted(QuarantineLifted {
            request: request(n),
            quarantine: request(of),
        })
    };
    assert_eq!(b.one(lift(21, 99)), Err(Void::NoQuarantine));
    b.one(lift(22, 20)).unwrap();
    assert_eq!(b.one(lift(23, 20)), Err(Void::NoQuarantine));
    assert_eq!(b.m.quarantines().len(), 1, "attempt 2 still passes over it");
    b.one(Entry::AttemptOpened(attempt_entry(3, 2, Some(2), 0)))
        .unwrap();
    assert!(b.m.quarantines().is_empty());
}

#[test]
fn a_mixture_is_in_force_from_its_sequence_on() {
    let mut b = bench();
    let mixture = |n, id, from| {
        let from = [(name("p0"), from)].into();
        Entry::Mixture(Mixture {
            request: request(n),
            id,
            from,
            spec: json!({"web": 0.5}),
            why: None,
        })
    };
    assert!(matches!(
        b.one(mixture(30, 2, 12)),
        Err(Void::MixtureOrder {
            current: 0,
            found: 2
        })
    ));
    assert!(matches!(
        b.one(mixture(31, 1, 9)),
        Err(Void::MixtureTooLate { next: 10, .. })
    ));
    b.one(mixture(32, 1, 12)).unwrap();
    assert!(matches!(
        b.one(mixture(33, 2, 11)),
        Err(Void::MixtureTooLate { .. })
    ));
    assert_eq!(
        (
            b.m.mixture_at(&name("p0"), 11),
            b.m.mixture_at(&name("p0"), 12)
        ),
        (0, 1)
    );
    let across = Entry::Batch(b.batch("p0", 3));
    assert!(matches!(
        b.one(across),
        Err(Void::WrongMixture {
            seq: 12,
            current: 1,
            found: 0
        })
    ));
    b.commit("p0", 2);
    b.commit("p0", 2);
    assert_eq!(b.m.next_step(), 14);
}

#[test]
fn repeated_requests_are_no_ops() {
    let mut b = bench();
    let sealed = Entry::Sealed(Sealed {
        request: request(40),
        reason: "stop".into(),
    });
    b.one(sealed.clone()).unwrap();
    b.one(Entry::Unsealed(Unsealed {
        request: request(41),
        reason: "go on".into(),
    }))
    .unwrap();
    let folded = b.fold(vec![sealed]);
    assert_eq!(folded.entries, [Ok(rules::Validity::Repeat)]);
    assert!(
        !b.m.sealed(),
        "an old command sent again does not seal again"
    );
    let again = Entry::Unsealed(Unsealed {
        request: request(42),
        reason: String::new(),
    });
    assert_eq!(b.one(again), Err(Void::NotSealed));
}
