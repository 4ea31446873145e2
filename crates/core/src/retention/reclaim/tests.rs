//! Each clause of the rule, on small logs.

use super::*;
use crate::ids::{AttemptId, JobName, RequestId};
use crate::manifest::Entry;
use crate::manifest::entry::{AttemptOpened, JobClosed, JobOpened, Retired, Watermark};
use crate::manifest::testing::{Bench, name, request, tgb};
use crate::retention::AttemptObjects;
use crate::stream::StreamOrder;

const RANDOM: u64 = 0;

fn object(producer: &str, epoch: u64, seqs: (Seq, Seq)) -> String {
    // The bench draws a nonce from the epoch and names objects by their first number.
    keys::data(
        &name(producer),
        epoch,
        Nonce([epoch as u8; 8]),
        seqs,
        seqs.0,
        0,
    )
}

fn watermark(b: &mut Bench, step: Step) {
    let entry = Watermark {
        step,
        jobs: b.m.holding_jobs(),
        request: Some(RequestId([step as u8; 16])),
    };
    b.one(Entry::Watermark(entry)).unwrap();
}

fn fate(b: &Bench, key: &str) -> Fate {
    let named = ReferencedObjects::from_manifest(&b.m, b.m.watermark());
    Reclaim::by(&b.m).data(key, &named)
}

/// p0 in epoch 1 with objects of four TGBs each; the watermark is within the second.
fn bench() -> Bench {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    for _ in 0..3 {
        b.commit("p0", 4);
    }
    watermark(&mut b, 5);
    b
}

#[test]
fn objects_below_the_watermark_go_and_shared_ones_stay_while_any_of_them_is_needed() {
    let b = bench();
    assert_eq!(fate(&b, &object("p0", 1, (0, 3))), Fate::Dead);
    assert_eq!(fate(&b, &object("p0", 1, (4, 7))), Fate::Needed);
    assert_eq!(fate(&b, &object("p0", 1, (8, 11))), Fate::Needed);
}

/// An upload whose commit is in flight (P12) and an orphan differ in epoch and number alone.
#[test]
fn objects_that_may_be_committed_stay_and_orphans_are_deleted() {
    let mut b = bench();
    let next = object("p0", 1, (12, 15));
    assert_eq!(fate(&b, &next), Fate::Uncommitted);
    let orphan = keys::data(&name("p0"), 1, Nonce([1; 8]), (8, 11), 0xbad, 0);
    assert_eq!(fate(&b, &orphan), Fate::Dead, "packed twice, named once");
    let spans = keys::data(&name("p0"), 1, Nonce([1; 8]), (8, 12), 0xbad, 0);
    assert_eq!(fate(&b, &spans), Fate::Uncommitted, "ends beyond the next");
    let other = keys::data(&name("p0"), 1, Nonce([9; 8]), (12, 15), RANDOM, 0);
    assert_eq!(
        fate(&b, &other),
        Fate::Dead,
        "an instance that lost the term"
    );
    assert_eq!(fate(&b, &object("p0", 2, (12, 15))), Fate::Uncommitted);
    assert_eq!(fate(&b, &object("p9", 1, (0, 3))), Fate::Uncommitted);
    b.one(b.opened("p0")).unwrap();
    assert_eq!(fate(&b, &next), Fate::Dead, "its term is over");
    assert_eq!(
        fate(&b, &object("p0", 1, (8, 11))),
        Fate::Needed,
        "committed"
    );
}

#[test]
fn a_finish_and_a_retirement_end_an_epoch() {
    let mut b = bench();
    let (late, part) = (object("p0", 1, (12, 15)), object("p0", 1, (4, 7)));
    assert_eq!(Reclaim::by(&b.m).upload(&late), Fate::Uncommitted);
    assert_eq!(
        Reclaim::by(&b.m).upload(&part),
        Fate::Uncommitted,
        "its owner lives and may be at it"
    );
    b.one(b.opened("p1")).unwrap();
    b.one(b.finish("p0")).unwrap();
    assert_eq!(fate(&b, &late), Fate::Dead);
    assert_eq!(Reclaim::by(&b.m).upload(&late), Fate::Dead);
    let of_p1 = object("p1", 1, (0, 3));
    assert_eq!(fate(&b, &of_p1), Fate::Uncommitted);
    let retired = Retired {
        request: request(9),
        producer: name("p1"),
        epoch: 1,
        reason: "gone".into(),
    };
    b.one(Entry::Retired(retired)).unwrap();
    assert_eq!(fate(&b, &of_p1), Fate::Dead);
}

/// A turn that has no step yet is above every watermark.
#[test]
fn tgbs_that_wait_for_their_turn_are_needed() {
    let mut b = Bench::new(StreamOrder::Lanes, &["p0", "p1"]);
    b.one(b.opened("p0")).unwrap();
    b.one(b.opened("p1")).unwrap();
    b.commit("p1", 4);
    assert_eq!((b.m.next_step(), b.m.waiting()), (0, 4));
    b.one(b.opened("p1")).unwrap();
    assert_eq!(fate(&b, &object("p1", 1, (0, 3))), Fate::Needed);
}

#[test]
fn bundles_that_no_follower_reads_any_more_are_dead() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    for _ in 0..80 {
        b.commit("p0", 1);
    }
    let (rule, next) = (Reclaim::by(&b.m), b.m.next_version());
    for (version, fate) in [
        (next - BUNDLES_KEPT - 1, Fate::Dead),
        (next - BUNDLES_KEPT, Fate::Needed),
        (next, Fate::Needed),
    ] {
        assert_eq!(rule.segment(&keys::bundle(version)), fate, "{version}");
    }
}

#[test]
fn steps_of_retained_segments_and_provenance_are_named() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    let mut full = Vec::new();
    for _ in 0..30 {
        full.extend(b.commit("p0", 100).segments);
    }
    watermark(&mut b, 1450);
    assert_eq!(retained_segments(&b.m, 1450), 1..2);
    assert_eq!(retained_segments(&b.m, 3000), 2..2);
    let mut named = ReferencedObjects::from_manifest(&b.m, 1450);
    let second = object("p0", 1, (1400, 1499));
    assert!(!named.contains(&object("p0", 1, (1300, 1399))));
    full[1]
        .steps
        .iter()
        .for_each(|entry| named.step(entry, 1450));
    assert!(named.contains(&second));
    assert!(!named.contains(&object("p0", 1, (1300, 1399))));
    let mut entry = StepEntry::clone(&full[1].steps[1000]);
    entry.tgb.provenance = Some("data/why".into());
    named.step(&entry, 1450);
    assert!(named.contains("data/why"));
    let rule = Reclaim::by(&b.m);
    assert_eq!(rule.segment(&keys::segment(0)), Fate::Dead);
    assert_eq!(rule.segment(&keys::segment(1)), Fate::Needed);
    assert_eq!(rule.segment("index/1.json"), Fate::Foreign);
    assert_eq!(
        Reclaim::as_if(&b.m, 2048).segment(&keys::segment(1)),
        Fate::Dead
    );
    assert_eq!(Reclaim::as_if(&b.m, 9).watermark(), 1450, "never backwards");
}

#[test]
fn foreign_names_are_left_alone() {
    let b = bench();
    for key in [
        "data/p0/1-0101010101010101/notes.txt",
        "data/p0/01-0101010101010101/000000000000-000000000003.0000000000000000.0.tgb",
        "data/p0/1-0101010101010101/x/000000000000-000000000003.0000000000000000.0.tgb",
        "data/readme",
        "other/x",
    ] {
        assert_eq!(fate(&b, key), Fate::Foreign, "{key}");
        assert_eq!(Reclaim::by(&b.m).upload(key), Fate::Foreign, "{key}");
    }
}

#[test]
fn intents_go_when_they_can_never_be_valid() {
    let b = bench();
    let rule = Reclaim::by(&b.m);
    let p0 = name("p0");
    for (key, expected) in [
        (keys::intent(&p0, 1, 8, 11), Fate::Dead),
        (keys::intent(&p0, 1, 12, 15), Fate::Needed),
        (keys::intent(&p0, 2, 12, 15), Fate::Needed),
        (keys::intent_opened(&p0, 1, Nonce([3; 8])), Fate::Dead),
        (keys::intent_opened(&p0, 2, Nonce([3; 8])), Fate::Needed),
        ("intents/x".to_owned(), Fate::Foreign),
    ] {
        assert_eq!(rule.intent(&key), expected, "{key}");
    }
}

/// A successor announced its opening while its frozen predecessor finished the work: no other process would
/// ever remove that hint.
#[test]
fn intents_of_a_finished_producer_are_deleted_in_any_epoch() {
    let mut b = bench();
    let p0 = name("p0");
    let opened = keys::intent_opened(&p0, 2, Nonce([3; 8]));
    assert_eq!(Reclaim::by(&b.m).intent(&opened), Fate::Needed);
    let finished = b.finish("p0");
    b.one(finished).unwrap();
    for key in [opened, keys::intent_opened(&p0, 9, Nonce([4; 8]))] {
        assert_eq!(Reclaim::by(&b.m).intent(&key), Fate::Dead, "{key}");
    }
}

#[test]
fn the_newest_snapshots_and_snapshots_beyond_our_fold_stay() {
    let b = bench();
    let rule = Reclaim::by(&b.m);
    assert_eq!(b.m.next_version(), 5);
    assert_eq!(rule.snapshots(&[4, 0, 9, 2, 1, 3]), [0, 1]);
    assert!(rule.snapshots(&[4, 9, 3, 2]).is_empty());
}

/// Attempt 0 from step 0, attempt 1 from step 6; the watermark is at 5.
fn with_job() -> (Bench, JobName) {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    b.commit("p0", 12);
    let job: JobName = "llm".parse().unwrap();
    let opened = JobOpened {
        request: request(70),
        job: job.clone(),
        start: 0,
        keep: 1,
        holds: true,
        paces: false,
        lease_seconds: None,
    };
    b.one(Entry::JobOpened(opened)).unwrap();
    for (n, start) in [(1, 0), (2, 6)] {
        let attempt = AttemptOpened {
            job: job.clone(),
            opened: 2,
            attempt: AttemptId([n; 16]),
            predecessor: (n > 1).then_some(AttemptId([n - 1; 16])),
            parent: None,
            inherited: None,
            start,
            dp_size: 2,
            mesh: Vec::new(),
        };
        b.one(Entry::AttemptOpened(attempt)).unwrap();
    }
    watermark(&mut b, 5);
    (b, job)
}

#[test]
fn marks_and_progress_go_when_they_say_nothing_any_more_and_ledgers_never() {
    let (b, job) = with_job();
    let rule = Reclaim::by(&b.m);
    let mut newest = AttemptObjects::default();
    for (step, range) in [(7, (0, 1)), (8, (0, 0)), (9, (0, 1))] {
        newest.note(&keys::progress(&job, 2, 1, step, range, "n"), 2, 12);
    }
    newest.progress.insert(1, 8);
    let signs = JobObjects::from([(1, newest)]);
    for (key, expected) in [
        (keys::mark(&job, 2, 0, 4, Some(0)), Fate::Dead),
        (keys::mark(&job, 2, 0, 6, Some(0)), Fate::Needed),
        (keys::mark(&job, 2, 0, 7, None), Fate::Dead),
        (keys::mark(&job, 2, 1, 7, None), Fate::Needed),
        (keys::mark(&job, 2, 2, 7, None), Fate::Needed),
        (keys::mark(&job, 99, 0, 7, None), Fate::Needed),
        (keys::mark(&job, 1, 0, 7, None), Fate::Dead),
        (keys::progress(&job, 2, 0, 6, (0, 1), "n"), Fate::Dead),
        (keys::progress(&job, 2, 1, 7, (0, 1), "n"), Fate::Dead),
        (keys::progress(&job, 2, 1, 8, (0, 1), "n"), Fate::Needed),
        (
            keys::progress(&job, 2, 1, 7, (0, u32::MAX), "n"),
            Fate::Needed,
        ),
        (keys::ledger(&job, 2, 0, 0, "n", 0), Fate::Needed),
        (keys::ledger(&job, 1, 0, 0, "n", 0), Fate::Needed),
        ("jobs/llm@2/0/x".to_owned(), Fate::Foreign),
    ] {
        assert_eq!(rule.job(&key, Some(&signs)), expected, "{key}");
    }
    let progress = keys::progress(&job, 2, 1, 7, (0, 1), "n");
    assert_eq!(
        rule.job(&progress, None),
        Fate::Needed,
        "signs were not read"
    );
}

#[test]
fn losses_are_kept_for_the_steps_below_the_watermark_that_were_asked_for() {
    let (b, job) = with_job();
    let fates = |keep| {
        let rule = Reclaim::by(&b.m).keep_losses(keep);
        let fate = |last| rule.job(&keys::values(&job, 2, 0, (0, last), "n", 0), None);
        [0, 3, 4, 5, 6].map(fate)
    };
    let (dead, needed) = (Fate::Dead, Fate::Needed);
    assert_eq!(fates(1), [dead, dead, needed, needed, needed]);
    assert_eq!(fates(0), [dead, dead, dead, needed, needed]);
    assert_eq!(fates(u64::MAX), [needed; 5]);
    assert_eq!(
        Reclaim::by(&b.m).job(&keys::values(&job, 2, 0, (0, 0), "n", 0), None),
        needed
    );
}

#[test]
fn a_closed_job_leaves_its_ledgers() {
    let (mut b, job) = with_job();
    let closed = JobClosed {
        request: request(71),
        job: job.clone(),
        opened: 2,
        reason: String::new(),
    };
    b.one(Entry::JobClosed(closed)).unwrap();
    let rule = Reclaim::by(&b.m);
    assert_eq!(rule.job(&keys::mark(&job, 2, 1, 9, None), None), Fate::Dead);
    let ledger = keys::ledger(&job, 2, 1, 0, "n", 0);
    assert_eq!(rule.job(&ledger, None), Fate::Needed);
}

#[test]
fn parts_of_one_tgb_are_each_named() {
    let mut b = bench();
    let state = b.m.producer(&name("p0")).unwrap().clone();
    let part = |part| keys::data(&name("p0"), 1, state.nonce, (12, 12), 12, part);
    let mut batch = b.batch("p0", 1);
    let mut two = tgb(&part(0), 0);
    two.parts[0].slices = 2;
    two.parts[0].length /= 2;
    let mut second = two.parts[0].clone();
    second.key = part(1);
    second.first_slice = 2;
    two.parts.push(second);
    batch.tgbs = vec![two];
    b.one(Entry::Batch(batch)).unwrap();
    assert_eq!(fate(&b, &part(0)), Fate::Needed);
    assert_eq!(fate(&b, &part(1)), Fate::Needed);
    assert_eq!(
        fate(&b, &part(2)),
        Fate::Dead,
        "named by nobody, number passed"
    );
}
