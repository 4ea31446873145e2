//! Stages: the numbers from which they are in force, each refusal, and what older releases see.

use serde_json::json;

use super::*;
use crate::error::FormatError;
use crate::guards::{Mutation, set};
use crate::limits::{NUMBER_MAX, STAGES_MAX};

fn stage(b: &Bench, n: u8, from: &[(&str, u64)]) -> Stage {
    Stage {
        request: request(n),
        id: b.m.stages().newest() + 1,
        name: "long".parse().unwrap(),
        from: from.iter().map(|(p, seq)| (name(p), *seq)).collect(),
        rows_per_slice: 4,
        seq_len: 32,
        form: "best_fit".to_owned(),
        fingerprint: Hash::sha256(b"long"),
        mixture: None,
    }
}

/// p0 and p1 are open; p0 has two batches.
fn bench(order: StreamOrder) -> Bench {
    let mut b = Bench::new(order, &["p0", "p1", "p2"]);
    b.one(b.opened("p0")).unwrap();
    b.one(b.opened("p1")).unwrap();
    b.commit("p0", 2);
    b
}

/// A batch entry with as many rows as the stage has, and in it.
fn made_in(b: &Bench, producer: &str, tgbs: u64, stage: u64) -> Entry {
    let mut entry = b.batch(producer, tgbs);
    entry.stage = stage;
    for tgb in &mut entry.tgbs {
        *tgb = b.shaped(tgb.clone(), stage);
    }
    Entry::Batch(entry)
}

#[test]
fn a_stage_is_in_force_from_its_sequence_of_each_producer_on() {
    let mut b = bench(StreamOrder::Arrival);
    let long = stage(&b, 1, &[("p0", 4), ("p1", 0)]);
    b.one(Entry::Stage(long)).unwrap();
    let at = |b: &Bench, producer, seq| b.m.stage_at(&name(producer), seq);
    assert_eq!(
        (at(&b, "p0", 3), at(&b, "p0", 4), at(&b, "p1", 0)),
        (0, 1, 1)
    );
    let across = made_in(&b, "p0", 3, 0);
    assert_eq!(
        b.one(across),
        Err(Void::WrongStage {
            seq: 4,
            current: 1,
            found: 0
        })
    );
    b.one(made_in(&b, "p0", 2, 0)).unwrap();
    assert!(matches!(
        b.one(made_in(&b, "p0", 1, 0)),
        Err(Void::WrongStage { .. })
    ));
    let Entry::Batch(mut few) = made_in(&b, "p0", 1, 1) else {
        unreachable!()
    };
    few.tgbs[0].rows -= 1;
    let why = b.one(Entry::Batch(few)).unwrap_err().to_string();
    assert!(
        why.contains("it has 15 rows, and a batch of stage 1 has 16"),
        "{why}"
    );
    b.one(made_in(&b, "p0", 2, 1)).unwrap();
    b.one(b.opened("p0")).unwrap();
    assert_eq!(at(&b, "p0", 6), 1, "an opening keeps them");
    assert_eq!(
        at(&b, "p0", 0),
        0,
        "earlier ones are kept, for steps far back"
    );
}

#[test]
fn a_producer_that_opens_later_begins_in_the_newest_stage() {
    let mut b = bench(StreamOrder::Arrival);
    let mixture = StageMixture {
        id: 1,
        spec: json!({"web": 1}),
    };
    let long = Stage {
        mixture: Some(mixture),
        ..stage(&b, 1, &[("p0", 2), ("p1", 7)])
    };
    b.one(Entry::Stage(long)).unwrap();
    assert_eq!(b.m.stage_at(&name("p2"), 0), 1, "before it opens");
    b.one(b.opened("p2")).unwrap();
    let of = |producer: &str, seq| {
        (
            b.m.stage_at(&name(producer), seq),
            b.m.mixture_at(&name(producer), seq),
        )
    };
    assert_eq!(
        (of("p2", 0), of("p1", 6), of("p1", 7)),
        ((1, 1), (0, 0), (1, 1))
    );
    assert_eq!(b.m.mixture().spec, json!({"web": 1}));
}

#[test]
fn lanes_that_never_opened_have_numbers_of_their_own() {
    let mut b = bench(StreamOrder::Lanes);
    let partial = stage(&b, 1, &[("p0", 3), ("p1", 3)]);
    assert_eq!(
        b.one(Entry::Stage(partial)),
        Err(Void::StageProducers(name("p2")))
    );
    let long = stage(&b, 2, &[("p0", 3), ("p1", 3), ("p2", 3)]);
    b.one(Entry::Stage(long)).unwrap();
    let sooner = stage(&b, 3, &[("p0", 3), ("p1", 3), ("p2", 2)]);
    assert!(matches!(
        b.one(Entry::Stage(sooner)),
        Err(Void::StageTooLate {
            next: 3,
            found: 2,
            ..
        })
    ));
    b.one(b.opened("p2")).unwrap();
    assert!(b.m.stages().unopened.is_empty());
    let at = |seq| b.m.stage_at(&name("p2"), seq);
    assert_eq!((at(2), at(3)), (0, 1));
}

#[test]
fn a_mistaken_stage_is_replaced_before_its_first_commit() {
    let mut b = bench(StreamOrder::Arrival);
    for (n, replaced) in [(1, 1), (2, 2)] {
        let next = stage(&b, n, &[("p0", 4), ("p1", 1)]);
        b.one(Entry::Stage(next)).unwrap();
        assert_eq!(b.m.stage_at(&name("p0"), 4), replaced);
    }
    b.one(made_in(&b, "p1", 1, 0)).unwrap();
    b.one(made_in(&b, "p1", 1, 2)).unwrap();
    let late = stage(&b, 3, &[("p0", 4), ("p1", 1)]);
    assert!(matches!(
        b.one(Entry::Stage(late)),
        Err(Void::StageTooLate {
            next: 2,
            found: 1,
            ..
        })
    ));
}

#[test]
fn a_stage_is_refused_for_each_broken_rule() {
    type Break = fn(&mut Stage);
    let cases: Vec<(&str, Break)> = vec![
        ("does not follow", |e| e.id = 2),
        ("does not follow", |e| e.id = 0),
        ("must be at least 1", |e| e.seq_len = 0),
        ("must be at least 1", |e| e.rows_per_slice = 0),
        ("names no sequence of producer p1", |e| {
            e.from.remove(&name("p1"));
        }),
        ("was never opened", |e| {
            e.from.insert(name("p2"), 3);
        }),
        ("begins at sequence 1 of producer p0, before 2", |e| {
            e.from.insert(name("p0"), 1);
        }),
        ("larger than", |e| {
            e.from.insert(name("p0"), NUMBER_MAX);
        }),
        ("longer than", |e| e.form = "x".repeat(5000)),
        ("mixture 2 does not follow", |e| {
            let spec = json!(1);
            e.mixture = Some(StageMixture { id: 2, spec });
        }),
    ];
    for (part, break_rule) in cases {
        let mut b = bench(StreamOrder::Arrival);
        let mut bad = stage(&b, 1, &[("p0", 2), ("p1", 0)]);
        break_rule(&mut bad);
        let why = b.one(Entry::Stage(bad)).unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
        assert!(
            b.m.stages().is_empty() && b.m.mixture().id == 0,
            "all of it is void"
        );
    }
    let mut b = bench(StreamOrder::Arrival);
    b.one(b.finish("p1")).unwrap();
    let finished = stage(&b, 1, &[("p0", 2), ("p1", 0)]);
    assert_eq!(
        b.one(Entry::Stage(finished)),
        Err(Void::Finished(name("p1")))
    );
    let mut b = bench(StreamOrder::Arrival);
    for n in 0..=STAGES_MAX {
        let mut id = [0x55; 16];
        id[..8].copy_from_slice(&n.to_le_bytes());
        let next = Stage {
            request: crate::ids::RequestId(id),
            ..stage(&b, 0, &[("p0", 2), ("p1", 0)])
        };
        let expected = match n {
            STAGES_MAX => Err(Void::StageCount { limit: STAGES_MAX }),
            _ => Ok(()),
        };
        assert_eq!(b.one(Entry::Stage(next)), expected, "{n}");
    }
}

#[test]
fn older_releases_stop_with_the_advice_to_upgrade() {
    let mut b = bench(StreamOrder::Arrival);
    let before = b.m.snapshot().unwrap().1;
    assert!(before.starts_with(b"{\"format\":1,"));
    let long = Entry::Stage(stage(&b, 1, &[("p0", 2), ("p1", 0)]));
    b.one(long).unwrap();
    let batch = made_in(&b, "p0", 1, 1);
    b.one(batch.clone()).unwrap();
    let snapshot = b.m.snapshot().unwrap().1;
    let (_, intent) = crate::intent::encode(b.m.stream_id(), &batch, 0).unwrap();
    let records = b.records[b.records.len() - 2..].to_vec();
    for object in records.iter().chain([&snapshot, &intent]) {
        assert!(object.starts_with(b"{\"format\":2,"));
        let old: Result<serde_json::Value, _> = crate::json::parse(object, "key", 1 << 20);
        assert!(matches!(
            old,
            Err(FormatError::UnknownFormat { found: 2, .. })
        ));
    }
    let other = Record {
        format: 2,
        ..b.record(vec![b.opened("p0")])
    };
    let why = Record::from_json(&other.to_json(), other.version)
        .unwrap_err()
        .to_string();
    assert!(
        why.contains("has format 2, and its content is that of format 1"),
        "{why}"
    );
}

#[test]
fn each_mistake_with_stages_is_found() {
    type Test = fn();
    let tests: [(Mutation, Test); 4] = [
        (
            Mutation::AnyStage,
            a_stage_is_in_force_from_its_sequence_of_each_producer_on,
        ),
        (
            Mutation::PartialStage,
            lanes_that_never_opened_have_numbers_of_their_own,
        ),
        (
            Mutation::LateStage,
            a_mistaken_stage_is_replaced_before_its_first_commit,
        ),
        (
            Mutation::StagesForgotten,
            a_stage_is_in_force_from_its_sequence_of_each_producer_on,
        ),
    ];
    for (mutation, test) in tests {
        set(Some(mutation));
        let outcome = std::panic::catch_unwind(test);
        set(None);
        assert!(outcome.is_err(), "{mutation:?}");
    }
}

/// A log with two stages, of which one begins with a mixture and one replaces the other.
#[test]
fn records_and_snapshots_with_stages_are_as_version_2_wrote_them() {
    let mut b = bench(StreamOrder::Lanes);
    let numbers = [("p0", 3), ("p1", 1), ("p2", 1)];
    b.one(Entry::Stage(stage(&b, 1, &numbers))).unwrap();
    let spec = json!({"mixtures": []});
    let replacing = Stage {
        name: "longer".parse().unwrap(),
        mixture: Some(StageMixture { id: 1, spec }),
        ..stage(&b, 2, &numbers)
    };
    b.one(Entry::Stage(replacing)).unwrap();
    b.commit("p1", 1);
    let batch = b.batch("p1", 1);
    assert_eq!((batch.stage, batch.mixture), (2, 1));
    let intent = crate::intent::encode(b.m.stream_id(), &Entry::Batch(batch.clone()), 0).unwrap();
    b.one(Entry::Batch(batch)).unwrap();
    golden::golden("log-v2-stages.jsonl", &b.records.concat());
    golden::golden("snapshot-v2-stages.json", &b.m.snapshot().unwrap().1);
    golden::golden("intent-v2-stages.json", &intent.1);
    let mut again = Manifest::new(b.m.stream().clone(), &b.m.stream().to_json());
    for record in &b.records {
        again.fold(record).unwrap();
    }
    assert_eq!(again, b.m);
}

#[test]
fn a_fork_carries_the_stages_that_begin_before_it() {
    let mut b = bench(StreamOrder::Arrival);
    b.one(Entry::Stage(stage(&b, 1, &[("p0", 4), ("p1", 0)])))
        .unwrap();
    b.one(Entry::Stage(stage(&b, 2, &[("p0", 9), ("p1", 7)])))
        .unwrap();
    let border = crate::manifest::fork::Border::new(&b.m, None, 0);
    let (state, left) = border.state().unwrap();
    assert_eq!(state.stages.newest(), 1);
    let own = |name: &str| state.producers[&name.parse().unwrap()].stages.clone();
    assert_eq!((own("p0"), own("p1")), ([(4, 1)].into(), [(0, 1)].into()));
    assert_eq!(left.stages.len(), 1);
}
