//! The stored reason: its golden form, what earlier programs say, and each fault that the check names.

use serde_json::{Value, json};

use super::*;
use crate::error::FormatError;
use crate::ids::AttemptId;
use crate::manifest::entry::Mixture;
use crate::manifest::testing::{Bench, golden, name, request};
use crate::manifest::{Entry, Record, Void};
use crate::order::{MixtureSpec, NumberedMixture, named_weights};
use crate::stream::StreamOrder;

pub(super) fn settings() -> DriveSettings {
    DriveSettings {
        rule: "odm".into(),
        every: 4,
        floor: 0.01,
        ceiling: 1.0,
        step_bound: 0.125,
        warm_up: 0,
        sum: false,
        targets: BTreeMap::new(),
        function: None,
    }
}

fn why() -> Why {
    let source = |number, name: &str, sum, reward_before| SourceWhy {
        number,
        name: name.into(),
        sum,
        weight: 8.0,
        before: 0.5,
        reward_before,
        reward: None,
        wanted: None,
        share: 0.5,
    };
    let mut why = Why {
        settings: settings(),
        job: "llm".parse().unwrap(),
        opened: 12,
        attempt: 3,
        attempt_id: AttemptId([0xcd; 16]),
        from: 512,
        to: 516,
        change: 2,
        after: Some(4),
        read: 8,
        counted: 8,
        sources: vec![
            source(0, "web", 16.0, Some(0.5)),
            source(1, "code", 12.0, Some(0.25)),
            source(2, "math", 10.0, None),
        ],
    };
    for (n, share) in [0.5, 0.25, 0.25].into_iter().enumerate() {
        why.sources[n].before = share;
    }
    why.decide(BTreeMap::new()).unwrap();
    why
}

pub(super) fn entry(b: &Bench, n: u8, from: u64, why: &Why) -> Mixture {
    let shares = why.sources.iter().map(|one| (one.name.clone(), one.share));
    let mixture = NumberedMixture {
        id: b.m.mixture().id + 1,
        weights: named_weights(&shares.collect()).unwrap(),
        from: [(name("p0"), from)].into(),
    };
    Mixture {
        request: request(n),
        id: mixture.id,
        from: mixture.from.clone(),
        spec: MixtureSpec::read(&b.m.mixture().spec)
            .unwrap()
            .with(mixture, 0)
            .to_json(),
        why: Some(why.to_json()),
    }
}

#[test]
fn a_record_with_a_reason_is_as_version_2_wrote_it() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    let mut why = why();
    // Exact numbers, so that the file is the same on every machine.
    for one in &mut why.sources {
        for number in [&mut one.reward, &mut one.wanted] {
            *number = number.map(|n| (n * 64.0).round() / 64.0);
        }
    }
    for (one, share) in why.sources.iter_mut().zip([0.375, 0.3125, 0.3125]) {
        one.share = share;
    }
    let mixture = entry(&b, 9, 900, &why);
    b.one(Entry::Mixture(mixture.clone())).unwrap();
    golden("log-v2-why.jsonl", &b.records[1]);
    let read = Record::from_json(&b.records[1], 1).unwrap();
    assert_eq!(read.entries, [Entry::Mixture(mixture)]);
    let Entry::Mixture(Mixture {
        why: Some(stored), ..
    }) = &read.entries[0]
    else {
        panic!("{read:?}");
    };
    assert_eq!(Why::read(stored).unwrap(), why);
    let old: Result<Value, _> = crate::json::parse(&b.records[1], "key", 1 << 20);
    assert!(matches!(
        old,
        Err(FormatError::UnknownFormat { found: 2, .. })
    ));
    // The state has no reason, so snapshots stay as they are.
    assert!(b.m.snapshot().unwrap().1.starts_with(b"{\"format\":1,"));
}

#[test]
fn a_reason_is_bounded_by_its_entry_and_its_depth() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let with = |why| Mixture {
        why: Some(why),
        ..entry(&b, 9, 900, &super::stored::why())
    };
    let (deep, long) = (with(deep), with(json!("x".repeat(70_000))));
    assert!(matches!(
        b.m.validate(&Entry::Mixture(deep)),
        Err(Void::TooDeep { .. })
    ));
    let size = crate::manifest::rules::size(&Entry::Mixture(long));
    assert!(matches!(size, Err(Void::TooLarge { .. })));
}

#[test]
fn a_reason_gives_its_shares_again_and_a_changed_one_is_named() {
    let good = why();
    assert_eq!(good.recompute(), Ok(()));
    assert_eq!(Why::read(&good.to_json()).unwrap(), good);
    type Change = fn(&mut Why);
    let cases: [(Change, &str); 6] = [
        (
            |w| w.sources[1].share += 2e-9,
            "the share of source code is",
        ),
        (
            |w| w.sources[1].reward = Some(1.0),
            "the reward of source code is 1, and its sums give",
        ),
        (|w| w.sources[0].sum *= 1.001, "source web"),
        (|w| w.change = 9, "source"),
        (|w| w.settings.step_bound = 0.0625, "the share of source"),
        (
            |w| w.settings.rule = "new".into(),
            "rule \"new\" is of a later release",
        ),
    ];
    for (change, says) in cases {
        let mut changed = good.clone();
        change(&mut changed);
        let error = changed.recompute().unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
    }
    let later = json!({"settings": {}, "more": 1});
    assert!(Why::read(&later).is_err());
}

#[test]
fn the_answer_of_a_function_is_stored_and_its_bounds_are_computed_again() {
    let mut why = why();
    why.settings.rule = "function".into();
    why.settings.function = Some("rule.py:weights".into());
    let answer = [("web", 8.0), ("code", 1.0), ("math", 1.0)];
    let answer = answer.map(|(name, weight)| (name.to_owned(), weight));
    why.decide(answer.into()).unwrap();
    close(why.sources[0].wanted.unwrap(), 0.8);
    close(why.sources[0].share, 0.625);
    assert_eq!(why.recompute(), Ok(()));
    assert_eq!(
        why.sources[1].reward,
        Some(0.25),
        "rewards are kept for a later rule"
    );
    why.sources[0].share = 0.8;
    assert!(why.recompute().is_err());
}
