//! A snapshot's round trip, field by field, after histories with entries of every kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::ids::{JobName, RequestId};

const NAMES: [&str; 3] = ["p0", "p1", "p2"];
const NONE: [&str; 0] = [];

/// An entry of some kind; most are valid in the state that they meet.
fn entry(b: &Bench, kind: u8, who: usize, n: u64) -> Entry {
    let request = RequestId([b.m.next_version() as u8; 16]);
    let (producer, reason) = (name(NAMES[who]), "because".to_owned());
    let job = format!("j{}", who % 2).parse::<JobName>().unwrap();
    let open = b.m.jobs().get(&job);
    let opened = open.map_or(0, |job| job.opened);
    match kind {
        0 => b.opened(NAMES[who]),
        1..=3 => Entry::Batch(b.batch(NAMES[who], n + 1)),
        4 if n == 0 => b.finish(NAMES[who]),
        4 => Entry::Retired(Retired {
            epoch: b.m.producer(&producer).map_or(0, |p| p.epoch),
            request,
            producer,
            reason,
        }),
        5 if b.m.sealed() => Entry::Unsealed(Unsealed { request, reason }),
        5 => Entry::Sealed(Sealed { request, reason }),
        6 => {
            let next = b.m.producer(&producer).map_or(0, |p| p.next_seq);
            Entry::Mixture(Mixture {
                request,
                id: b.m.mixture().id + 1,
                from: BTreeMap::from([(producer, next + n)]),
                spec: serde_json::json!({ "web": n }),
                why: (n % 2 == 1).then(|| serde_json::json!({ "loss": n })),
            })
        }
        7 if open.is_some() && n == 0 => Entry::JobClosed(JobClosed {
            request,
            job,
            opened,
            reason,
        }),
        7 if open.is_some() => Entry::AttemptOpened(AttemptOpened {
            predecessor: open.and_then(|job| job.attempts.last().map(|a| a.id)),
            job,
            opened,
            attempt: AttemptId([b.m.next_version() as u8; 16]),
            parent: None,
            inherited: None,
            start: b.m.watermark() + n,
            dp_size: 1,
            mesh: vec![Axis {
                name: "dp".into(),
                size: 1,
            }],
        }),
        7 => Entry::JobOpened(JobOpened {
            request,
            job,
            start: b.m.watermark(),
            keep: 1,
            holds: n.is_multiple_of(2),
            paces: n.is_multiple_of(3),
            lease_seconds: (n > 3).then_some(n),
        }),
        8 => Entry::Quarantined(Quarantined {
            request,
            first: n,
            last: 2 * n,
            reason,
        }),
        12 => {
            let open = b.m.producers().filter(|(_, p)| !p.finished);
            let from = open.map(|(name, p)| (name.clone(), p.next_seq + n));
            let unopened = NAMES.iter().map(|text| name(text));
            let unopened = unopened.filter(|name| b.m.producer(name).is_none());
            let unopened = unopened.map(|name| (name, n));
            Entry::Stage(Stage {
                request,
                id: b.m.stages().newest() + 1,
                name: "long".parse().unwrap(),
                from: from.chain(unopened).collect(),
                rows_per_slice: 4,
                seq_len: 8,
                form: String::new(),
                fingerprint: Hash::sha256(b"x"),
                mixture: None,
            })
        }
        9 => Entry::QuarantineLifted(QuarantineLifted {
            request,
            quarantine: b.m.quarantines().last().map_or(request, |q| q.id),
        }),
        _ => Entry::Watermark(Watermark {
            step: b.m.watermark() + 1,
            jobs: b.m.holding_jobs(),
            request: Some(request),
        }),
    }
}

/// The fields that are the same, and those that differ: one by one, so that none can be left out.
fn compare(a: &Manifest, b: &Manifest) -> (Vec<&'static str>, Vec<&'static str>) {
    let Manifest {
        stream,
        next_version,
        prev,
        producers,
        next_step,
        lanes,
        open_steps,
        watermark,
        sealed,
        jobs,
        quarantine,
        mixture,
        stages,
        requests,
        void_entries,
        void_records,
        genesis,
        view,
        repaired,
    } = a;
    let fields = [
        ("stream", *stream == b.stream),
        ("next_version", *next_version == b.next_version),
        ("prev", *prev == b.prev),
        ("producers", *producers == b.producers),
        ("next_step", *next_step == b.next_step),
        ("lanes", *lanes == b.lanes),
        ("open_steps", *open_steps == b.open_steps),
        ("watermark", *watermark == b.watermark),
        ("sealed", *sealed == b.sealed),
        ("jobs", *jobs == b.jobs),
        ("quarantine", *quarantine == b.quarantine),
        ("mixture", *mixture == b.mixture),
        ("stages", *stages == b.stages),
        ("requests", *requests == b.requests),
        ("void_entries", *void_entries == b.void_entries),
        ("void_records", *void_records == b.void_records),
        ("genesis", *genesis == b.genesis),
        ("view", *view == b.view),
        ("repaired", *repaired == b.repaired),
    ];
    let (same, differing): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(_, same)| *same);
    let names = |fields: Vec<(&'static str, bool)>| fields.into_iter().map(|(name, _)| name);
    (names(same).collect(), names(differing).collect())
}

fn differing(a: &Manifest, b: &Manifest) -> Vec<&'static str> {
    compare(a, b).1
}

fn again(m: &Manifest) -> Manifest {
    let (version, bytes) = m.snapshot().unwrap();
    Manifest::from_snapshot(Arc::new(m.stream().clone()), &bytes, version).unwrap()
}

fn bench(lanes: bool) -> Bench {
    let order = if lanes {
        StreamOrder::Lanes
    } else {
        StreamOrder::Arrival
    };
    let mut b = Bench::new(order, &NAMES);
    for producer in NAMES {
        b.one(b.opened(producer)).unwrap();
    }
    b
}

/// A record of another root: void, and counted.
fn foreign(b: &mut Bench) {
    let mut record = b.record(Vec::new());
    record.stream = crate::ids::StreamId::from_random([9; 16]);
    let bytes = record.to_json();
    assert!(b.m.fold(&bytes).unwrap().void.is_some());
    b.records.push(bytes);
}

/// The comparison is meaningful: after one entry of each kind every field has changed.
#[test]
fn a_history_of_every_kind_changes_every_field_but_the_stream() {
    let mut b = bench(true);
    let new = Bench::new(StreamOrder::Lanes, &NAMES).m;
    b.commit("p1", 2);
    b.commit("p0", 1);
    for (kind, who, n) in [
        (4, 2, 1),
        (6, 0, 2),
        (7, 0, 0),
        (7, 0, 1),
        (7, 1, 4),
        (8, 0, 3),
        (9, 0, 0),
        (8, 1, 2),
        (10, 0, 0),
        (5, 0, 0),
        (12, 0, 1),
        (1, 0, 1),
    ] {
        b.fold(vec![entry(&b, kind, who, n)]);
    }
    foreign(&mut b);
    b.m.fold_repaired(b"garbage");
    assert_eq!(compare(&b.m, &new).0, ["stream", "genesis"]);
    assert!(differing(&again(&b.m), &b.m).is_empty());
}

proptest! {
    /// A manifest read from a snapshot equals the one that wrote it in every field, and stays equal: the
    /// records after it have the same effects on both.
    #[test]
    fn a_snapshot_keeps_every_field(
        lanes in any::<bool>(),
        deeds in prop::collection::vec((0..13_u8, 0..3_usize, 0..6_u64), 1..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut b = bench(lanes);
        let cut = cut.index(deeds.len());
        let mut copy = None;
        for (at, (kind, who, n)) in deeds.into_iter().enumerate() {
            if kind == 11 { foreign(&mut b) } else { b.fold(vec![entry(&b, kind, who, n)]); }
            prop_assert_eq!(differing(&again(&b.m), &b.m), NONE);
            if let Some(copy) = &mut copy {
                let copy: &mut Manifest = copy;
                copy.fold(b.records.last().unwrap()).unwrap();
                prop_assert_eq!(differing(copy, &b.m), NONE);
            }
            if at == cut { copy = Some(again(&b.m)); }
        }
    }
}
