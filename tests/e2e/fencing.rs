//! Two instances of one producer fight: the old one frozen, replaced, woken. And an undisturbed
//! run beside it, since the same input must give the same batches whatever happened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::manifest::StepEntry;
use batchweave_log::{Located, Log, LogOptions};
use batchweave_store::OpenOptions;
use batchweave_tests::{Process, eventually, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FENCED: Option<i32> = Some(75);
const MINUTE: Duration = Duration::from_mins(1);

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = StdRng::seed_from_u64(5);
        let mut text = String::new();
        for line in 0..6000 {
            let words: Vec<String> = (0..60)
                .map(|_| format!("w{}", rng.random_range(0..5000)))
                .collect();
            let document = serde_json::json!({ "text": words.join(" "), "id": line });
            writeln!(text, "{document}").unwrap();
        }
        std::fs::write(folder.path().join("documents.jsonl"), text).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, stream: &str) -> String {
        format!("file://{}", self.path(stream).display())
    }

    /// A producer of `stream`, with its own configuration file.
    fn producer(&self, stream: &str, instance: &str) -> Process {
        std::fs::create_dir_all(self.path(stream)).unwrap();
        let config = self.path(&format!("{stream}-{instance}.toml"));
        let text = format!(
            "[store]\nurl = {:?}\n[stream]\nslices = 4\nrows_per_slice = 1\nseq_len = 64\n\
             producers = [\"p0\"]\n[producer]\nname = \"p0\"\n[source]\npaths = [{:?}]\n\
             [tokenizer]\nkind = \"bytes\"\n[packing]\nobject_bytes = \"8KiB\"\n\
             [commit]\nlinger = \"1ms\"\nmax_batches = 8\n",
            self.url(stream),
            self.path("documents.jsonl").display().to_string(),
        );
        std::fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let log = self.path(&format!("{stream}-{instance}.log"));
        Process::start("batchweave-producer", &["--config", &config], &[], &log)
    }

    fn said(&self, log: &str) -> String {
        std::fs::read_to_string(self.path(log)).unwrap_or_default()
    }

    /// Every step, and the number of void entries in the log.
    fn read(&self, stream: &str) -> (Vec<Arc<StepEntry>>, u64) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = batchweave_store::open(&self.url(stream), &OpenOptions::default()).await;
            let options = LogOptions {
                seed: [1; 32],
                write_snapshots: false,
            };
            let mut log = Log::open(store.unwrap(), &options).await.unwrap();
            assert_eq!(
                log.manifest().end(),
                Some(log.manifest().next_step()),
                "it has ended"
            );
            let mut steps = Vec::new();
            for step in 0..log.manifest().next_step() {
                match log.locate(step).await.unwrap() {
                    Located::At(entry) => steps.push(entry),
                    other => panic!("step {step}: {other:?}"),
                }
            }
            (steps, log.manifest().void_entries())
        })
    }

    fn records(&self, stream: &str) -> usize {
        count(&self.path(stream).join("log"))
    }

    /// The digests by sequence number: what the batches are, whoever committed them.
    fn digests(&self, stream: &str) -> BTreeMap<u64, String> {
        let (steps, void) = self.read(stream);
        assert_eq!(void, 0, "no correct writer writes a void entry");
        let count = steps.len();
        let digests: BTreeMap<_, _> = steps
            .iter()
            .map(|s| (s.seq, s.tgb.digest.to_string()))
            .collect();
        assert_eq!(digests.len(), count, "no sequence number twice");
        assert!(
            digests.keys().copied().eq(0..count as u64),
            "none is missing"
        );
        digests
    }
}

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn the_old_instance_stops_with_its_own_code_and_nothing_is_lost_or_doubled() {
    let scene = Scene::new();
    assert_eq!(
        scene.producer("calm", "only").wait(MINUTE),
        Some(0),
        "{}",
        scene.said("calm-only.log")
    );
    let mut old = scene.producer("fight", "old");
    eventually("the old instance commits", || scene.records("fight") > 3);
    old.signal("STOP");
    let frozen_at = scene.records("fight");
    let mut new = scene.producer("fight", "new");
    eventually("the new instance commits", || {
        scene.records("fight") > frozen_at + 3
    });
    old.signal("CONT");
    assert_eq!(old.wait(MINUTE), FENCED, "{}", scene.said("fight-old.log"));
    assert_eq!(new.wait(MINUTE), Some(0), "{}", scene.said("fight-new.log"));
    let said = scene.said("fight-old.log");
    assert!(
        said.contains("epoch 2") && said.contains("fenced"),
        "{said}"
    );
    assert_eq!(scene.digests("fight"), scene.digests("calm"));
}

#[test]
fn a_producer_killed_at_random_instants_makes_the_same_batches() {
    let scene = Scene::new();
    let mut rng = StdRng::seed_from_u64(seed());
    assert_eq!(
        scene.producer("calm", "only").wait(MINUTE),
        Some(0),
        "{}",
        scene.said("calm-only.log")
    );
    let mut kills = 0;
    loop {
        let mut producer = scene.producer("stormy", "any");
        std::thread::sleep(Duration::from_millis(rng.random_range(5..250)));
        if kills < 8 {
            producer.signal("KILL");
        }
        match producer.wait(MINUTE) {
            None => kills += 1,
            Some(0) => break,
            Some(code) => panic!("exit {code}: {}", scene.said("stormy-any.log")),
        }
    }
    eprintln!("{kills} kills");
    assert_eq!(scene.digests("stormy"), scene.digests("calm"));
}
