//! `mixture drive` and `mixture explain` on reports that a test wrote: the driver waits and says for whom, decides once, and
//! what others change or remove later is noticed.

use std::fs;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{AttemptId, Step, StreamId};
use batchweave_core::keys;
use batchweave_core::proof::{Ledger, ReportedStates};
use batchweave_core::values::{SourceLoss, StepValues, ValuesBlock, ValuesObject};
use serde_json::{Value, json};

use crate::world::{Ran, World, tgb};

const JOB: &str = "llm";

/// A stream of two sources with 40 steps, and an attempt of two coordinates.
struct Driven {
    world: World,
    opened: u64,
    stream: StreamId,
}

impl Driven {
    async fn new() -> Self {
        let world = World::with_stream("p0");
        let mut p0 = world.producer("p0").await;
        let source = |name: &str| json!({"name": name, "weight": 1.0});
        let settings = json!({"sources": [source("web"), source("code")]});
        let data: Vec<_> = (0..40).map(tgb).collect();
        let cursor = Cursor(json!({"settings": settings}));
        p0.commit_with(&data, 1 << 20, cursor).await;
        let opened = world.json(&["job", "open", JOB])["version"]
            .as_u64()
            .unwrap();
        world.attempt(JOB, 2, 0, None).await;
        let stream = world.log().await.manifest().stream_id();
        Self {
            world,
            opened,
            stream,
        }
    }

    fn drive(&self, more: &[&str]) -> Ran {
        let args = ["mixture", "drive", "--job", JOB, "--every", "10", "--json"];
        self.world.run(&[&args[..], more].concat())
    }

    fn once(&self) -> Value {
        let ran = self.drive(&["--rule", "odm", "--once"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.out).unwrap()
    }

    fn refused(&self, more: &[&str], parts: &[&str]) {
        let before = self.mixture();
        self.drive(more).fails(1, parts);
        assert_eq!(self.mixture(), before, "nothing is written");
    }

    fn mixture(&self) -> Value {
        self.world.json(&["status"])["mixture"]["id"].clone()
    }

    fn explain(&self) -> Ran {
        self.world.run(&["mixture", "explain", "1"])
    }

    /// Stores the states of steps below an end, for each coordinate.
    fn states(&self, ends: [Step; 2]) {
        let job = JOB.parse().unwrap();
        let states = (0..).zip(ends).filter(|(_, end)| *end > 0);
        let ledger = Ledger {
            format: 2,
            stream: self.stream,
            job,
            opened: self.opened,
            attempt: 0,
            id: AttemptId([1; 16]),
            node: "0f".into(),
            entries: Vec::new(),
            told: Vec::new(),
            states: states
                .map(|(dp_rank, end)| ReportedStates {
                    dp_rank,
                    trained: vec![(0, end)],
                    ..ReportedStates::default()
                })
                .collect(),
        };
        let n = ends[0] + ends[1];
        let key = keys::ledger(&ledger.job, self.opened, 0, 0, "0f", n);
        self.put(&key, &ledger.to_json());
    }

    fn values_key(&self, steps: (Step, Step)) -> String {
        keys::values(&JOB.parse().unwrap(), self.opened, 0, steps, "0f", 0)
    }

    /// Stores losses of both coordinates; that of `source` is `mean`, that of web 1.
    fn values(&self, steps: (Step, Step), source: u16, mean: f32) {
        let values = |step| StepValues {
            step,
            sum: f64::from(10.0 + 10.0 * mean),
            weight: 20.0,
            sources: vec![of(0, 1.0), of(source, mean)],
            ..StepValues::default()
        };
        let block = |dp_rank| ValuesBlock {
            dp_rank,
            first_slice: 2 * dp_rank,
            slices: 2,
            steps: (steps.0..=steps.1).map(values).collect(),
            ..ValuesBlock::default()
        };
        let object = ValuesObject {
            stream: self.stream,
            attempt: AttemptId([1; 16]),
            blocks: vec![block(0), block(1)],
        };
        self.put(&self.values_key(steps), &object.encode());
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.world.path(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn of(source: u16, mean: f32) -> SourceLoss {
    SourceLoss {
        source,
        sum: 10.0 * mean,
        weight: 10.0,
    }
}

#[tokio::test]
async fn a_driver_waits_for_the_slowest_coordinate_and_then_decides_once() {
    let driven = Driven::new().await;
    let waits = |says: &str| {
        let report = driven.once();
        let waiting = report["waiting"].as_str().unwrap().to_owned();
        assert!(waiting.contains(says), "{waiting}");
        report
    };
    waits(
        "steps 0..9 are needed, and coordinate 0 of attempt 0 has no report of step 0, like 1 other coordinate",
    );
    driven.states([12, 7]);
    waits("coordinate 1 of attempt 0 has no report of step 7");
    driven.states([12, 12]);
    // All is trained, and losses are missing: these steps may never have them.
    let report =
        waits("steps 10..19 are needed, and coordinate 0 of attempt 0 has no report of step 12");
    assert_eq!(report["without_values"], json!([[0, 10]]));
    driven.values((0, 9), 1, 3.0);
    let change = driven.once();
    assert_eq!(
        (&change["id"], &change["change"]),
        (&json!(1), &json!(1)),
        "{change}"
    );
    assert_eq!(change["sources"][1]["loss"], 3.0);
    // The first change of the rule is equal shares, whatever the losses.
    assert_eq!(change["sources"][1]["after"], 0.5);
    waits("producer p0 begins mixture 1 with its batch 104, and has 40 in the stream so far");
    driven.explain().prints(&[
        "change 1 by rule odm, the first of its chain",
        "checked: rule odm gives the stored shares from the stored sums",
        "checked: the stored losses of these steps give the stored sums",
    ]);
    let none = driven.world.run(&["mixture", "explain", "2"]);
    none.fails(1, &["no driver set mixture 2"]);
    fs::remove_file(driven.world.path(&driven.values_key((0, 9)))).unwrap();
    driven.explain().prints(&[
        "not checked: the sums",
        "kept in part (0 pairs of step and coordinate, the change had 20)",
    ]);
    driven.values((0, 9), 1, 3.5);
    driven.explain().fails(
        76,
        &["the stored losses of steps 0..9 give other sums of source code"],
    );
    let log = driven.world.run(&["log", "--limit", "1"]);
    log.prints(&["mixture 1 for 1 producer, by the losses"]);
}

#[tokio::test]
async fn what_a_driver_cannot_use_is_refused_and_nothing_is_written() {
    let driven = Driven::new().await;
    driven.states([40, 40]);
    driven.values((0, 9), 7, 2.0);
    let odm = ["--rule", "odm", "--once"];
    driven.refused(&odm, &["source number 7, which no producer has"]);
    driven.values((0, 9), 1, 2.0);
    let floor = [&odm[..], &["--floor", "0.6"]].concat();
    driven.refused(&floor, &["2 sources cannot all have shares from 0.6 to 1"]);
    let target = ["--rule", "target", "--once", "--target", "web=1"];
    driven.refused(&target, &["source code has no target"]);
    let file = driven.world.path("rule.py");
    let function = format!("{}:weights", file.display());
    let function = ["--rule", "function", "--once", "--function", &function];
    for (body, says) in [
        ("{'web': 1.0}", "no weight for source code"),
        ("{'web': 1, 'code': 1, 'wiki': 1}", "a weight for wiki"),
        ("{'web': float('nan'), 'code': 1}", "nothing is changed"),
        ("{'web': -1, 'code': 1}", "source web a weight that is not"),
        ("None", "nothing is changed"),
    ] {
        fs::write(&file, format!("def weights(state):\n    return {body}\n")).unwrap();
        driven.refused(&function, &[says]);
    }
    let body = "def weights(state):\n    return {s['name']: s['loss'] for s in state['sources']}\n";
    fs::write(&file, body).unwrap();
    let ran = driven.drive(&function);
    assert_eq!(ran.code, 0, "{ran:?}");
    driven.explain().prints(&[
        "the bounds give the stored shares from the answer of",
        "66.7 %",
    ]);
    let strange = driven.world.run(&[
        "mixture", "drive", "--job", "other", "--every", "5", "--rule", "odm",
    ]);
    strange.fails(1, &["no job other"]);
}
