//! A corpus, streams in folders, their producers as processes, and the content of a stream afterwards.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::manifest::StepEntry;
use batchweave_log::{Located, Log, LogOptions};
use batchweave_store::OpenOptions;
use batchweave_tests::Process;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Longer than a healthy process needs.
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// One corpus of 6,000 documents and any number of streams.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    streams: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
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
        let streams = folder.path().to_owned();
        Self { folder, streams }
    }

    /// Puts its streams into another folder than configurations, logs and the corpus.
    pub(crate) fn with_streams_in(streams: &Path) -> Self {
        Self {
            streams: streams.to_owned(),
            ..Self::new()
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn stream(&self, stream: &str) -> PathBuf {
        self.streams.join(stream)
    }

    pub(crate) fn url(&self, stream: &str) -> String {
        format!("file://{}", self.stream(stream).display())
    }

    /// Starts a producer of `stream` with its own configuration file.
    pub(crate) fn producer(&self, stream: &str, instance: &str) -> Process {
        self.start(stream, instance, "p0", &["p0"], "")
    }

    /// Starts one of several producers of `stream`, with more lines of configuration.
    pub(crate) fn producer_of(
        &self,
        stream: &str,
        name: &str,
        all: &[&str],
        more: &str,
    ) -> Process {
        self.start(stream, name, name, all, more)
    }

    fn start(&self, stream: &str, instance: &str, name: &str, all: &[&str], more: &str) -> Process {
        std::fs::create_dir_all(self.stream(stream)).unwrap();
        let file = self.path(&format!("{stream}-{instance}.toml"));
        let text = format!(
            "[store]\nurl = {:?}\n[stream]\nslices = 4\nrows_per_slice = 1\nseq_len = 64\n\
             producers = {all:?}\n[producer]\nname = {name:?}\nindex = {}\nof = {}\n[source]\npaths = [{:?}]\n\
             [tokenizer]\nkind = \"bytes\"\n[packing]\nobject_bytes = \"8KiB\"\n\
             [commit]\nlinger = \"1ms\"\nmax_batches = 8\n{more}",
            self.url(stream),
            all.iter().position(|n| *n == name).unwrap(),
            all.len(),
            self.path("documents.jsonl").display().to_string(),
        );
        std::fs::write(&file, text).unwrap();
        let config = file.display().to_string();
        let log = self.path(&format!("{stream}-{instance}.log"));
        Process::start("batchweave-producer", &["--config", &config], &[], &log)
    }

    pub(crate) fn log_text(&self, log: &str) -> String {
        std::fs::read_to_string(self.path(log)).unwrap_or_default()
    }

    /// Returns every step, and the number of void entries in the log.
    fn read(&self, stream: &str) -> (Vec<Arc<StepEntry>>, u64) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = batchweave_store::open(&self.url(stream), &OpenOptions::default()).await;
            let options = LogOptions {
                write_snapshots: false,
                ..LogOptions::new([1; 32])
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

    /// Returns the number of steps of a stream that has ended.
    pub(crate) fn steps(&self, stream: &str) -> usize {
        self.read(stream).0.len()
    }

    pub(crate) fn records(&self, stream: &str) -> usize {
        count(&self.stream(stream).join("log"))
    }

    /// Returns the digests by sequence number, which identify the batches whichever instance
    /// committed them.
    pub(crate) fn digests(&self, stream: &str) -> BTreeMap<u64, String> {
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
