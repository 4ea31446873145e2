//! Bounds are exact to the step, and no producer waits for ever.

use proptest::prelude::*;

use super::*;
use crate::ids::{AttemptId, Epoch};
use crate::manifest::entry::{AttemptOpened, Axis, Entry, JobClosed, JobOpened};
use crate::manifest::testing::{Bench, name, request, tgb};
use crate::stream::StreamOrder;

fn steps(most: u64) -> Limits {
    Limits {
        steps: Some(most),
        ..Limits::default()
    }
}

fn job(b: &mut Bench, n: u8, job: &str, start: u64, paces: bool) -> u64 {
    let opened = JobOpened {
        request: request(n),
        job: job.parse().unwrap(),
        start,
        keep: 1,
        holds: true,
        paces,
        lease_seconds: None,
    };
    b.one(Entry::JobOpened(opened)).unwrap();
    b.m.next_version() - 1
}

fn attempt(b: &mut Bench, job: &str, opened: u64, number: u8, start: u64) {
    let entry = AttemptOpened {
        job: job.parse().unwrap(),
        opened,
        attempt: AttemptId([number; 16]),
        predecessor: (number > 0).then(|| AttemptId([number - 1; 16])),
        parent: None,
        inherited: None,
        start,
        dp_size: 1,
        mesh: vec![Axis {
            name: "dp".into(),
            size: 1,
        }],
    };
    b.one(Entry::AttemptOpened(entry)).unwrap();
}

fn seen(flow: &mut FlowControl, job: &str, opened: u64, attempt: u64, step: u64) {
    let position = JobPosition {
        opened,
        attempt,
        step,
    };
    flow.positions.insert(job.parse().unwrap(), position);
}

#[test]
fn the_slowest_job_that_paces_sets_the_ceiling() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    b.commit("p0", 60);
    let mut flow = FlowControl::new(Limits {
        no_job: Some(7),
        ..steps(100)
    });
    assert_eq!(flow.slowest(&b.m), None);
    assert_eq!(flow.ceiling(&b.m), Some(7), "above the watermark");
    job(&mut b, 1, "eval", 0, false);
    assert_eq!(flow.ceiling(&b.m), Some(7), "an evaluation does not pace");
    let llm = job(&mut b, 2, "llm", 20, true);
    assert_eq!(flow.ceiling(&b.m), Some(120), "its start, without attempts");
    attempt(&mut b, "llm", llm, 0, 30);
    assert_eq!(flow.ceiling(&b.m), Some(130), "its attempt's start");
    seen(&mut flow, "llm", llm, 0, 45);
    assert_eq!(flow.ceiling(&b.m), Some(145), "its progress");
    attempt(&mut b, "llm", llm, 1, 35);
    assert_eq!(flow.ceiling(&b.m), Some(135), "the newest attempt's alone");
    seen(&mut flow, "llm", llm + 1, 1, 50);
    assert_eq!(flow.ceiling(&b.m), Some(135), "not another incarnation's");
    seen(&mut flow, "llm", llm, 1, 50);
    job(&mut b, 3, "second", 40, true);
    assert_eq!(flow.slowest(&b.m).unwrap().job.as_str(), "second");
    assert_eq!(flow.ceiling(&b.m), Some(140));
    let backlog = backlog(&b.m, &flow, Some(&Sizes::new(&b.m, u64::MAX))).unwrap();
    assert_eq!((backlog.steps, backlog.bytes), (20, Some(20 * 1024)));
    let closed = JobClosed {
        request: request(9),
        job: "llm".parse().unwrap(),
        opened: llm,
        reason: String::new(),
    };
    b.one(Entry::JobClosed(closed)).unwrap();
    assert_eq!(flow.slowest(&b.m).unwrap().job.as_str(), "second");
}

#[test]
fn a_message_names_the_reason_and_the_slowest_job() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    let llm = job(&mut b, 1, "llm", 0, true);
    b.commit("p0", 8);
    let why = |b: &Bench, flow: &FlowControl| {
        let sizes = Sizes::new(&b.m, flow.limits.bytes.unwrap_or(0));
        let mut gate = Gate::new(flow, &b.m, Some(&sizes));
        let batch = b.batch("p0", 3);
        gate.item(&batch.producer, &batch.tgbs)
            .unwrap_err()
            .to_string()
    };
    let mut flow = FlowControl::new(steps(10));
    let text = why(&b, &flow);
    for part in [
        "job llm",
        "begin at step 0",
        "10 steps",
        "ahead.max_steps",
        "8 steps",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    attempt(&mut b, "llm", llm, 0, 0);
    flow.limits = Limits {
        bytes: Some(8 * 1024),
        ..Limits::default()
    };
    let text = why(&b, &flow);
    for part in ["attempt 0 is at step 0", "8192 bytes", "ahead.max_bytes"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let mut free = Bench::new(StreamOrder::Arrival, &[]);
    free.one(free.opened("p0")).unwrap();
    flow.limits.no_job = Some(2);
    let text = why(&free, &flow);
    assert!(
        text.contains("no open job paces") && text.contains("ahead.no_job_steps"),
        "{text}"
    );
}

#[test]
fn a_lane_that_others_wait_for_is_never_held_by_waiting_tgbs() {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b"]);
    for lane in ["a", "b"] {
        b.one(b.opened(lane)).unwrap();
    }
    job(&mut b, 1, "llm", 0, true);
    let flow = FlowControl::new(Limits {
        bytes: Some(4 * 1024),
        lane_lead: Some(4),
        ..steps(100)
    });
    b.commit("b", 4);
    let sizes = Sizes::new(&b.m, 4 * 1024);
    let mut gate = Gate::new(&flow, &b.m, Some(&sizes));
    let more = b.batch("b", 1);
    let held = gate.item(&more.producer, &more.tgbs).unwrap_err();
    assert_eq!(held.bound, Bound::Bytes(4 * 1024));
    let without = FlowControl::new(Limits {
        bytes: None,
        ..flow.limits
    });
    let held = Gate::new(&without, &b.m, None)
        .item(&more.producer, &more.tgbs)
        .unwrap_err();
    assert_eq!(held.bound, Bound::LaneLead(4));
    assert!(held.to_string().contains("lane a: step 0"), "{held}");
    let first = b.batch("a", 8);
    gate.item(&first.producer, &first.tgbs).unwrap();
}

/// One producer's items of a run, and how many are committed.
type Plan = Vec<(&'static str, Vec<u64>)>;

/// Commits what the gate allows, in an order drawn from `order`, with a job that reads only when
/// nobody can commit. Panics when no producer and no job can proceed.
fn run(order: StreamOrder, plan: &Plan, limits: Limits, picks: &[u8]) {
    let names: Vec<_> = plan.iter().map(|(name, _)| *name).collect();
    let mut b = Bench::new(order, &names);
    for name in &names {
        b.one(b.opened(name)).unwrap();
    }
    let opened = job(&mut b, 1, "llm", 0, true);
    attempt(&mut b, "llm", opened, 0, 0);
    let mut flow = FlowControl::new(limits);
    let mut sizes = Sizes::new(&b.m, limits.bytes.unwrap_or(0));
    let mut done = vec![0; plan.len()];
    let (mut at, mut turn) = (0, 0);
    let mut refused = 0;
    while done
        .iter()
        .zip(plan)
        .any(|(done, (_, items))| *done <= items.len())
    {
        let pick = usize::from(picks[turn % picks.len()]);
        let who = (pick + refused) % plan.len();
        let (producer, items) = &plan[who];
        let before = b.m.next_step();
        let mut gate = Gate::new(&flow, &b.m, Some(&sizes));
        let entry = match items.get(done[who]) {
            Some(tgbs) => {
                let batch = b.batch(producer, *tgbs);
                let asked = gate.item(&batch.producer, &batch.tgbs).ok();
                asked.map(|()| Entry::Batch(batch))
            }
            None if done[who] == items.len() => {
                let finish = b.finish(producer);
                gate.finish(&finish).ok().map(|()| finish)
            }
            None => None,
        };
        let Some(entry) = entry else {
            refused += 1;
            if refused >= plan.len() {
                // All producers are held back: the job must have steps to read.
                assert!(
                    at < b.m.next_step(),
                    "stuck at step {at}: {done:?} {limits:?}"
                );
                at += 1 + (u64::from(picks[turn % picks.len()]) % (b.m.next_step() - at));
                seen(&mut flow, "llm", opened, 0, at);
                (refused, turn) = (0, turn + 1);
            }
            continue;
        };
        (refused, done[who], turn) = (0, done[who] + 1, turn + 1);
        sizes.note(&b.fold(vec![entry]).placed);
        assert_eq!(b.m.void_entries(), 0);
        if before > at {
            let most = limits.steps.map_or(u64::MAX, |steps| at + steps);
            assert!(
                b.m.next_step() <= most.max(before),
                "{} > {most}",
                b.m.next_step()
            );
            let bytes = (b.m.next_step() - at) * 1024;
            assert!(
                limits
                    .bytes
                    .is_none_or(|most| bytes <= most.max((before - at) * 1024))
            );
        }
    }
    assert_eq!(b.m.waiting(), 0);
}

fn plans() -> impl Strategy<Value = Plan> {
    let items = || prop::collection::vec(1..6_u64, 0..8);
    (items(), items(), items(), 1..4_usize).prop_map(|(a, b, c, lanes)| {
        let mut plan = vec![("a", a), ("b", b), ("c", c)];
        plan.truncate(lanes);
        plan
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let one = |most| prop::option::of(0..most);
    (one(12_u64), one(12_u64), one(6_u64)).prop_map(|(steps, kib, lane_lead)| Limits {
        steps,
        bytes: kib.map(|kib| kib * 1024),
        no_job: None,
        lane_lead,
    })
}

proptest! {
    #[test]
    fn bounds_hold_and_no_producer_is_stuck(
        plan in plans(), limits in limits(), picks in prop::collection::vec(0..=255_u8, 1..40),
        lanes in any::<bool>(),
    ) {
        let order = if lanes { StreamOrder::Lanes } else { StreamOrder::Arrival };
        run(order, &plan, limits, &picks);
    }

    /// A leader adds others' entries to its own: no record passes the ceiling.
    #[test]
    fn a_leader_includes_only_entries_within_the_bounds(
        plan in plans(), own in 1..5_u64, most in 0..20_u64, lanes in any::<bool>(),
    ) {
        let order = if lanes { StreamOrder::Lanes } else { StreamOrder::Arrival };
        let mut b = Bench::new(order, &["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            b.one(b.opened(name)).unwrap();
        }
        job(&mut b, 1, "llm", 0, true);
        b.commit("a", 1);
        let flow = FlowControl::new(steps(most));
        let mut gate = Gate::new(&flow, &b.m, None);
        let mine = Entry::Batch(b.batch("a", own));
        gate.count(&mine);
        let mut entries = vec![mine];
        for (name, items) in plan.iter().filter(|(name, _)| *name != "a") {
            let theirs = Entry::Batch(b.batch(name, items.first().copied().unwrap_or(1)));
            if gate.take_along(&theirs) {
                entries.push(theirs);
            }
        }
        let alone = b.m.next_step() + if lanes { 0 } else { own };
        let taken = entries.len() > 1;
        b.fold(entries);
        prop_assert!(!taken || b.m.next_step() <= most.max(alone));
    }

    #[test]
    fn sizes_are_sums(
        bytes in prop::collection::vec(0..50_u64, 0..60), cut in 0..60_usize, most in 0..400_u64,
    ) {
        let b = Bench::new(StreamOrder::Arrival, &[]);
        let mut sizes = Sizes::new(&b.m, most);
        let entry = |(step, bytes): (usize, &u64)| std::sync::Arc::new(crate::manifest::StepEntry {
            step: step as u64,
            producer: name("a"),
            epoch: 1 as Epoch,
            seq: step as u64,
            version: 0,
            tgb: {
                let mut tgb = tgb("k", 0);
                tgb.parts[0].length = *bytes;
                tgb
            },
        });
        let all: Vec<_> = bytes.iter().enumerate().map(entry).collect();
        // The oldest steps are added last, as a segment.
        let (older, newer) = all.split_at(cut.min(all.len()));
        sizes.note(newer);
        let segment = crate::manifest::Segment {
            format: 1,
            stream: b.m.stream_id(),
            segment: 0,
            filled: None,
            steps: older.to_vec(),
        };
        if !newer.is_empty() {
            sizes.add_older(&segment);
        }
        for step in 0..=bytes.len() {
            let sum: u64 = bytes[step..].iter().sum();
            match sizes.from(step as u64) {
                Some(found) if newer.is_empty() => prop_assert_eq!(found, 0),
                Some(found) => {
                    let same = found == sum || (found > most && sum > most);
                    prop_assert!(same, "from {}: {} for {}", step, found, sum);
                }
                None => prop_assert!(newer.is_empty() || sum > most),
            }
        }
    }
}
