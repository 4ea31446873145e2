//! A real stream in a folder, made by the real programs: two producers that were killed and restarted,
//! a job with two attempts, marks, progress, ledgers, a quarantine, a watermark, snapshots, a segment
//! and an intent; and the expected result of each reader.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use batchweave_client::{Client, ConnectOptions, Start};
use batchweave_core::ids::{JobName, RequestId, Step, Version};
use batchweave_core::intent;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{JobClosed, JobOpened};
use batchweave_log::{Log, LogOptions};
use batchweave_store::OpenOptions;
use batchweave_tests::{Process, eventually, program};
use tokio::runtime::Runtime;

use super::rank::Truth;
use crate::corpus::{Corpus, SEQ_LEN, SLICES};
use crate::proof::records;

/// The bound at which the producers stop, enough for a segment; and the least number of steps that
/// they must have committed, since all batches of an object are committed together.
const AHEAD: Step = 1200;
const NEAR: Step = AHEAD - 40;
/// Batches of a lane that may wait for their turn.
const LANE_LEAD: u64 = 12;
/// Batches of each producer: some remain for a producer that is restarted.
const TGBS: u64 = AHEAD / 2 + 2 * LANE_LEAD;
pub(super) const STEPS: Step = 2 * TGBS;
/// Records before the job begins, enough for three snapshots.
const RECORDS: Version = 800;
const SKIPPED: std::ops::RangeInclusive<Step> = 90..=92;
/// Steps that attempt 0 marks, and attempt 1.
const MARKS: [&[Step]; 2] = [&[16, 32, 48], &[64]];
/// Steps that each attempt reads.
const READ: [Step; 2] = [60, 80];
pub(super) const MINUTE: Duration = Duration::from_mins(1);

pub(super) struct Whole {
    folder: tempfile::TempDir,
    pub(super) truth: Truth,
    /// The number of steps in the stream.
    pub(super) committed: Step,
    /// The state that a rank saved at step 48, the oldest restart point.
    pub(super) state: String,
}

/// Numbers the configurations and sockets of one place.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) url: String,
    pub(super) endpoint: Option<String>,
}

impl Place {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(super) fn log_text(&self, log: &str) -> String {
        fs::read_to_string(self.path(log)).unwrap_or_default()
    }

    pub(super) fn env() -> Vec<(String, String)> {
        let keys = batchweave_dev_s3::Options::default();
        vec![
            ("AWS_ACCESS_KEY_ID".to_owned(), keys.access_key),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), keys.secret_key),
            ("AWS_REGION".to_owned(), "us-east-1".to_owned()),
            ("RUST_LOG".to_owned(), "info".to_owned()),
        ]
    }

    pub(super) fn cli(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("batchweave"));
        command.args(["--json", "--store", &self.url]).args(words);
        if let Some(endpoint) = &self.endpoint {
            command.args(["--endpoint", endpoint]);
        }
        command.envs(Self::env());
        command
    }

    /// Writes the configurations of all daemons; producers are at most `ahead` steps ahead of the
    /// job, 0 for no bound.
    pub(super) fn configure(&self, inputs: &Path, ahead: Step) {
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        let store = format!("[store]\nurl = {:?}\nendpoint = {endpoint:?}\n", self.url);
        for (n, name) in ["p0", "p1"].into_iter().enumerate() {
            // The beginnings of documents make frames of one length here, which need no index, and
            // of several lengths there, which do.
            let object = ["8KiB", "4KiB"][n];
            let text = format!(
                "{store}[stream]\nslices = {SLICES}\nrows_per_slice = 1\nseq_len = {SEQ_LEN}\norder = \"lanes\"\n\
                 producers = [\"p0\", \"p1\"]\n[producer]\nname = {name:?}\n[source]\npaths = [{:?}]\n\
                 [tokenizer]\nkind = \"bytes\"\nthreads = 1\n[packing]\nobject_bytes = {object:?}\nfields = [\"cu_seqlens\"]\n[commit]\nlinger = \"1ms\"\n\
                 max_batches = 2\n[ahead]\nmax_steps = {ahead}\nlane_lead = {LANE_LEAD}\nwhen_no_job = \"{}\"\n[upload]\n\
                 give_up_after = \"5s\"\n[admin]\nlisten = \"off\"\n",
                inputs.join(format!("{name}.jsonl")).display().to_string(),
                if ahead > 0 { "wait" } else { "run" },
            );
            fs::write(self.path(&format!("{name}.toml")), text).unwrap();
        }
        let text = format!(
            "{store}[job]\nname = \"llm\"\nprogress_steps = 8\n[socket]\npath = {:?}\n[arena]\n\
             bytes = \"16MiB\"\nsegment_bytes = \"4MiB\"\nhuge_pages = \"off\"\n[prefetch]\nbytes = \"8MiB\"\n\
             [admin]\nlisten = \"off\"\n",
            self.text("s"),
        );
        fs::write(self.path("c.toml"), text).unwrap();
    }

    /// Starts one daemon; its log is `<name>.log`.
    pub(super) fn start(&self, name: &str) -> Process {
        let of = if name == "c" { "consumer" } else { "producer" };
        let config = self.text(&format!("{name}.toml"));
        let log = self.path(&format!("{name}.log"));
        Process::start(
            &format!("batchweave-{of}"),
            &["--config", &config],
            &Self::env(),
            &log,
        )
    }

    fn done(&self, words: &[&str]) {
        let run = self.cli(words).output().unwrap();
        let output = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{words:?}: {output}");
    }
}

impl Whole {
    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().join("stream")
    }

    /// Returns the watermark that attempt 0 leaves: its second last mark.
    pub(super) fn watermark() -> Step {
        MARKS[0][1]
    }

    pub(super) fn inputs(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn make(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let corpora = [0, 1].map(|n| Corpus::new(seed, n, TGBS));
        for (n, corpus) in corpora.iter().enumerate() {
            corpus.write(&folder.path().join(format!("p{n}.jsonl")));
        }
        let place = Place {
            folder: folder.path().to_owned(),
            url: format!("file://{}", folder.path().join("stream").display()),
            endpoint: None,
        };
        fs::create_dir(folder.path().join("stream")).unwrap();
        place.configure(folder.path(), AHEAD);
        let truth = Truth::new(corpora.map(|corpus| corpus.expected()), SKIPPED);
        let committed = produce(&place);
        lengthen(&place);
        let state = train(&place);
        announce(&place);
        Self {
            folder,
            truth,
            committed,
            state,
        }
    }
}

/// Runs both producers, killed once, until the stream reaches the bound. Returns its length.
fn produce(place: &Place) -> Step {
    let runtime = Runtime::new().unwrap();
    let store = runtime
        .block_on(batchweave_store::open(&place.url, &OpenOptions::default()))
        .unwrap();
    let head = || {
        runtime.block_on(async {
            let options = LogOptions {
                write_snapshots: false,
                ..LogOptions::new([3; 32])
            };
            let log = Log::open(Arc::clone(&store), &options).await;
            log.map_or(0, |log| log.manifest().next_step())
        })
    };
    let mut first = place.start("p0");
    eventually("the stream is there", || {
        assert!(runs(&mut first), "{}", place.log_text("p0.log"));
        place.path("stream/stream.json").exists()
    });
    place.done(&["job", "open", "llm", "--keep", "2"]);
    let mut second = place.start("p1");
    eventually("something is committed", || {
        assert!(runs(&mut first), "{}", place.log_text("p0.log"));
        assert!(runs(&mut second), "{}", place.log_text("p1.log"));
        head() > AHEAD / 4
    });
    drop((first, second));
    let mut again = ["p0", "p1"].map(|name| place.start(name));
    eventually("nearly all that may be is committed", || head() > NEAR);
    for process in &mut again {
        process.signal("TERM");
        assert_eq!(
            process.wait(MINUTE),
            Some(0),
            "{}",
            place.log_text("p0.log")
        );
    }
    head()
}

/// Opens and closes jobs: enough records for three snapshots, and with them a segment.
fn lengthen(place: &Place) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let options = OpenOptions::default();
        let store = batchweave_store::open(&place.url, &options).await.unwrap();
        let mut log = Log::open(store, &LogOptions::new([5; 32])).await.unwrap();
        let job: JobName = "eval".parse().unwrap();
        let mut number: u128 = 0;
        let mut request = || {
            number += 1;
            RequestId(number.to_be_bytes())
        };
        while log.manifest().next_version() < RECORDS {
            let opened = Entry::JobOpened(JobOpened {
                request: request(),
                job: job.clone(),
                start: 0,
                keep: 1,
                holds: false,
                paces: false,
                lease_seconds: None,
            });
            let opened = log.commit_entry("t", |_| opened.clone()).await;
            let closed = Entry::JobClosed(JobClosed {
                request: request(),
                job: job.clone(),
                opened: opened.unwrap().unwrap(),
                reason: "done".to_owned(),
            });
            let _ = log.commit_entry("t", |_| closed.clone()).await.unwrap();
        }
        log.settle_snapshots().await;
    });
}

fn runs(process: &mut Process) -> bool {
    matches!(process.0.try_wait(), Ok(None))
}

/// Runs two attempts of two ranks each, a reclaimer between them, a quarantine after both. Returns
/// the state at step 48.
fn train(place: &Place) -> String {
    let mut saved = BTreeMap::new();
    for (n, (marks, steps)) in MARKS.into_iter().zip(READ).enumerate() {
        let mut daemon = place.start("c");
        let start = saved.get(&48).cloned().map_or(Start::Step(0), Start::State);
        let ranks = [0, 1].map(|rank| {
            let options = ConnectOptions {
                job: Some("llm".to_owned()),
                attempt: Some(format!("{:02x}", 0xa0 + n).repeat(16)),
                dp_rank: rank,
                dp_size: 2,
                global_rank: Some(rank),
                start: start.clone(),
                timeout: MINUTE,
                ..ConnectOptions::new(place.path("s"))
            };
            thread::spawn(move || {
                let mut reader = Client::connect(options).unwrap();
                let mut states = BTreeMap::new();
                while reader.next_step() < steps {
                    let batch = reader.next(MINUTE).unwrap().unwrap();
                    let (next, state) = (batch.step() + 1, batch.state_dict());
                    drop(batch);
                    if marks.contains(&next) {
                        reader.checkpoint(&state).unwrap();
                        states.insert(next, state);
                    }
                }
                reader.close(MINUTE).unwrap();
                states
            })
        });
        for rank in ranks {
            saved.extend(rank.join().unwrap());
        }
        daemon.signal("TERM");
        assert_eq!(daemon.wait(MINUTE), Some(0), "{}", place.log_text("c.log"));
        if n == 0 {
            place.done(&["reclaim", "--apply"]);
        }
    }
    let range = format!("{}..{}", SKIPPED.start(), SKIPPED.end());
    place.done(&["quarantine", &range, "--reason", "a shard of garbage"]);
    saved.remove(&48).unwrap()
}

/// Leaves an intent, as a producer does that dies between a commit and the intent's deletion.
fn announce(place: &Place) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let options = OpenOptions::default();
        let store = batchweave_store::open(&place.url, &options).await.unwrap();
        let log = Log::open(Arc::clone(&store), &LogOptions::new([4; 32])).await;
        let manifest = log.unwrap().manifest().clone();
        let records = records(&store, manifest.next_version()).await;
        let mut batches = records.iter().flat_map(|record| &record.entries);
        let last = batches.rfind(|entry| matches!(entry, Entry::Batch(_)));
        // Without a copy in its key, so that it has to be read.
        let (key, bytes) = intent::encode(manifest.stream_id(), last.unwrap(), 0).unwrap();
        let _ = store.create(&key, bytes.into()).await.unwrap();
    });
}
