//! `verify --job`: an honest run with five restarts in changing worlds is proved, also when its data is
//! reclaimed; every forgery is reported with a message of its own.

mod losses;
mod missing;
mod trained;

use std::collections::BTreeMap;
use std::fs;

use batchweave_core::crc::crc32c;
use batchweave_core::ids::{AttemptId, Step};
use batchweave_core::keys;
use batchweave_core::manifest::entry::{Quarantined, Watermark};
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::proof::{Ledger, LedgerEntry};
use serde_json::Value;

use crate::world::{SLICES, World, tgb};

const JOB: &str = "llm";
/// Steps in a ledger: small, so that a short run has many.
const CHUNK: Step = 4;

/// A stream of 40 steps and a run on it.
struct Run {
    world: World,
    opened: u64,
    dp: BTreeMap<u64, u32>,
}

fn crc(step: Step, slice: u32) -> u32 {
    crc32c(&tgb(step).slices[slice as usize])
}

impl Run {
    /// Attempts 0, 1, 3, 4 and 5 make the model; 2 is discarded. 4 coordinates, then 2, then 4 again.
    async fn honest() -> Self {
        let world = World::with_stream("p0");
        let mut p0 = world.producer("p0").await;
        for _ in 0..8 {
            world.commit(&mut p0, 5).await;
        }
        let opened = world.json(&["job", "open", JOB, "--keep", "2"]);
        let opened = opened["version"].as_u64().unwrap();
        let mut run = Self {
            world,
            opened,
            dp: BTreeMap::new(),
        };
        run.attempt(4, 0, None, 12, &[]).await;
        run.attempt(2, 10, Some((0, 10)), 20, &[]).await;
        run.quarantine(21, 22).await;
        run.attempt(2, 18, Some((1, 18)), 19, &[(21, 23)]).await;
        run.attempt(4, 18, Some((1, 18)), 30, &[(21, 23)]).await;
        run.attempt(4, 28, Some((3, 28)), 32, &[(21, 23)]).await;
        run.attempt(4, 30, Some((4, 30)), 40, &[(21, 23)]).await;
        run
    }

    async fn attempt(
        &mut self,
        dp: u32,
        start: Step,
        parent: Option<(u64, Step)>,
        end: Step,
        skips: &[(Step, Step)],
    ) {
        let number = self.dp.len() as u64;
        self.dp.insert(number, dp);
        self.world.attempt(JOB, dp, start, parent).await;
        let mut from = start;
        while from < end {
            let to = (from + CHUNK).min(end);
            for node in 0..dp / 2 {
                let ranks = [2 * node, 2 * node + 1];
                let entries = ranks.map(|rank| self.entry(number, rank, from, to, skips));
                self.store(number, &format!("{node}"), entries.into());
            }
            from = to;
        }
    }

    async fn quarantine(&self, first: Step, last: Step) {
        let mut log = self.world.log().await;
        let request = log.new_request();
        let reason = "bad crawl".to_owned();
        let entry = Entry::Quarantined(Quarantined {
            request,
            first,
            last,
            reason,
        });
        let made = log.commit_entry("test", |_: &Manifest| entry.clone()).await;
        assert!(made.unwrap().is_some());
    }

    fn entry(
        &self,
        attempt: u64,
        dp_rank: u32,
        from: Step,
        to: Step,
        skips: &[(Step, Step)],
    ) -> LedgerEntry {
        let each = SLICES / self.dp[&attempt];
        let own = dp_rank * each..(dp_rank + 1) * each;
        let cut = skips.iter().map(|(a, b)| ((*a).max(from), (*b).min(to)));
        let skipped: Vec<_> = cut.filter(|(a, b)| a < b).collect();
        let kept = (from..to).filter(|s| !skipped.iter().any(|(a, b)| (*a..*b).contains(s)));
        LedgerEntry {
            dp_rank,
            rank: None,
            first_slice: own.start,
            slices: each,
            from,
            to,
            resumed: false,
            crcs: kept
                .flat_map(|step| own.clone().map(move |slice| crc(step, slice)))
                .collect(),
            skipped,
        }
    }

    fn path(&self, attempt: u64, first: Step, node: &str) -> std::path::PathBuf {
        let job = JOB.parse().unwrap();
        let key = keys::ledger(&job, self.opened, attempt, first, node, 0);
        self.world.path(&key)
    }

    fn store(&self, attempt: u64, node: &str, entries: Vec<LedgerEntry>) {
        let stream = self.world.json(&["status"])["stream"]["stream_id"].clone();
        let ledger = Ledger {
            format: 1,
            stream: stream.as_str().unwrap().parse().unwrap(),
            job: JOB.parse().unwrap(),
            opened: self.opened,
            attempt,
            id: AttemptId([attempt as u8 + 1; 16]),
            node: node.to_owned(),
            entries,
            told: Vec::new(),
            states: Vec::new(),
        };
        let path = self.path(attempt, ledger.first(), node);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, ledger.to_json()).unwrap();
    }

    /// Changes a ledger and recomputes its digest, as a forger who knows the format would.
    fn edit(&self, attempt: u64, first: Step, node: &str, change: impl Fn(&mut Ledger)) {
        let path = self.path(attempt, first, node);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        value.as_object_mut().unwrap().remove("digest");
        let mut ledger: Ledger = serde_json::from_value(value).unwrap();
        change(&mut ledger);
        fs::write(path, ledger.to_json()).unwrap();
    }

    /// Ledgers are missing from step `to` on: nothing contradicts the log.
    fn lacks(&self, to: Step, parts: &[&str]) {
        let ran = self.world.run(&["verify", "--job", JOB, "--json"]);
        ran.fails(66, &["not proved"]);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let found = (&report["verdict"], &report["to"], &report["contradiction"]);
        assert_eq!(
            found,
            (&"not proved".into(), &to.into(), &Value::Null),
            "{report}"
        );
        for part in parts {
            assert!(
                report["not_proved"].as_str().unwrap().contains(part),
                "{report}"
            );
        }
    }

    /// The proof fails with these words, in the error and in the report.
    fn fails(&self, parts: &[&str]) {
        let ran = self.world.run(&["verify", "--job", JOB, "--json"]);
        ran.fails(76, parts);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(report["verdict"], "contradiction", "{report}");
        assert!(
            report["contradiction"].as_str().unwrap().contains(parts[0]),
            "{report}"
        );
    }
}

#[tokio::test]
async fn an_honest_run_is_proved_also_after_its_data_is_gone() {
    let run = Run::honest().await;
    let job = format!("{JOB}@{}", run.opened);
    run.world.mark(&job, 5, 36, Some(1)).await;
    let svg = run.world.path("lineage.svg");
    let verify = ["verify", "--job", JOB, "--svg", svg.to_str().unwrap()];
    let expected = [
        "lineage  5 attempts; 1 attempt has no part in the final model",
        "ATTEMPT  FROM  TO  WORLD  STEPS  SKIPPED  RESTARTED FROM",
        "      0     0  10      4     10        0  -",
        "      1    10  18      2      8        0  attempt 0, step 10",
        "      3    18  28      4      8        2  attempt 1, step 18",
        "      4    28  30      4      2        0  attempt 3, step 28",
        "      5    30  40      4     10        0  attempt 4, step 30",
        "proved: steps 0..39, 38 in all, each received by every data coordinate exactly once",
        "steps 0..29 are marked as trained, by the checkpoint at step 30: that is the trainer's word, and no proof; later ones are received only",
    ];
    run.world.run(&verify).prints(&expected);
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.contains("attempt 5") && picture.contains("prefers-color-scheme"));
    let at = run.world.json(&["verify", "--job", &job, "--to", "25"]);
    let found = ["to", "steps", "trained"].map(|name| at[name].as_u64());
    assert_eq!(found, [Some(25), Some(23), Some(25)]);

    let mut log = run.world.log().await;
    let jobs = log.manifest().holding_jobs();
    let step = 28;
    let entry = |_: &Manifest| {
        let (jobs, request) = (jobs.clone(), None);
        Entry::Watermark(Watermark {
            step,
            jobs,
            request,
        })
    };
    assert!(log.commit_entry("test", entry).await.unwrap().is_some());
    fs::remove_dir_all(run.world.path("data")).unwrap();
    run.world.run(&verify).prints(&expected);
    run.world
        .run(&["verify"])
        .fails(76, &["is missing: steps 2"]);
}

#[tokio::test]
async fn other_bytes_are_caught() {
    let run = Run::honest().await;
    for (rank, node, other) in [(0, "0", 1), (1, "0", 0)] {
        run.edit(0, 4, node, |l| {
            l.entries
                .iter_mut()
                .filter(|e| e.dp_rank == rank)
                .for_each(|e| e.crcs[1] = crc(5, other));
        });
    }
    run.fails(&["step 5", "slices 0 and 1 are swapped"]);
    let run = Run::honest().await;
    run.edit(5, 34, "1", |l| l.entries[0].crcs[2] ^= 0x100);
    run.fails(&["step 36", "attempt 5", "at least one slice had other bytes"]);
}

#[tokio::test]
async fn wrong_counts_are_caught() {
    let run = Run::honest().await;
    let again = run.entry(3, 2, 27, 28, &[]);
    run.store(3, "9", vec![again]);
    run.fails(&[
        "doubled step",
        "coordinate 2 of attempt 3 received step 27 again",
    ]);
    let run = Run::honest().await;
    for first in [30, 34, 38] {
        fs::remove_file(run.path(5, first, "1")).unwrap();
    }
    run.lacks(
        30,
        &["coordinate 2 of attempt 5 received steps 30..39", "--to 30"],
    );
    let run = Run::honest().await;
    fs::remove_file(run.path(0, 4, "1")).unwrap();
    run.lacks(
        4,
        &[
            "coordinate 2 of attempt 0 received steps 4..7",
            "no ledger has them (and 1 coordinate more)",
            "--mend",
            "--to 4",
        ],
    );
    // Behind the hole the run contradicts the log.
    run.edit(5, 34, "1", |l| l.entries[0].crcs[2] ^= 0x100);
    run.fails(&["step 36", "attempt 5", "at least one slice had other bytes"]);
}

#[tokio::test]
async fn edited_ledgers_and_forged_lineages_are_caught() {
    let run = Run::honest().await;
    let path = run.path(1, 14, "0");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"to\":18", "\"to\":17")).unwrap();
    run.fails(&[
        "ledger: ",
        "000000000014-0.0.json",
        "it was edited or damaged",
    ]);
    let run = Run::honest().await;
    run.edit(1, 14, "0", |l| l.id = AttemptId([9; 16]));
    run.fails(&["ledger: ", "has the attempt id 0909"]);
    let run = Run::honest().await;
    fs::create_dir_all(run.path(9, 0, "0").parent().unwrap()).unwrap();
    fs::copy(run.path(5, 30, "0"), run.path(9, 30, "0")).unwrap();
    run.fails(&["ledger: ", "is of an attempt that the log does not have"]);
    let mut run = Run::honest().await;
    run.attempt(4, 36, Some((3, 36)), 40, &[(21, 23)]).await;
    run.lacks(
        30,
        &["of attempt 3 received steps 30..35, by what followed"],
    );
    let mut run = Run::honest().await;
    run.attempt(4, 36, Some((5, 34)), 40, &[(21, 23)]).await;
    run.fails(&[
        "lineage",
        "attempt 6 starts at step 36",
        "stands at step 34",
    ]);
    run.attempt(4, 36, None, 40, &[(21, 23)]).await;
    run.fails(&[
        "lineage",
        "attempt 7 starts at step 36 and names no checkpoint",
    ]);
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let run = Run::honest().await;
    let known = format!("it had {JOB}@{}", run.opened);
    run.world
        .run(&["verify", "--job", "other"])
        .fails(1, &["no job other in file://", &known]);
    run.world
        .run(&["verify", "--job", "llm@77"])
        .fails(1, &["no job llm@77"]);
    assert_eq!(run.world.run(&["verify", "--job", "LLM"]).code, 64);
    assert_eq!(run.world.run(&["verify", "--to", "3"]).code, 64);
    run.world.json(&["job", "open", "idle"]);
    run.world
        .run(&["verify", "--job", "idle"])
        .fails(1, &["has no attempt"]);
}
