//! A folder with a stream, and runs of the real binary on it.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use batchweave_core::ids::Nonce;
use batchweave_core::keys;
use batchweave_core::manifest::entry::Opened;
use batchweave_core::manifest::{Entry, Hints, Record, Writer};
use batchweave_core::tgb::{Dtype, Layout, TgbData};
use batchweave_log::{Log, LogOptions};
use batchweave_store::{Create, OpenOptions, Store};
use batchweave_testkit::TestProducer;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const SLICES: u32 = 4;
pub(crate) const ROWS: u32 = 2;
pub(crate) const SEQ_LEN: u32 = 8;
const FINGERPRINT: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// A temporary root folder, removed at the end.
pub(crate) struct World {
    dir: TempDir,
}

/// The result of a run of the binary.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    /// Returns an empty root.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    /// Returns a root with a stream that names `producers` (`a,b`; may be empty).
    pub(crate) fn with_stream(producers: &str) -> Self {
        let world = Self::new();
        assert_eq!(world.init(producers, &[]).code, 0);
        world
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.dir.path().display())
    }

    pub(crate) fn path(&self, key: &str) -> PathBuf {
        self.dir.path().join(key)
    }

    pub(crate) fn init(&self, producers: &str, more: &[&str]) -> Ran {
        let mut args = vec![
            "init",
            "--slices",
            "4",
            "--rows-per-slice",
            "2",
            "--seq-len",
            "8",
        ];
        args.extend(["--tokenizer", "bytes", "--fingerprint", FINGERPRINT]);
        if !producers.is_empty() {
            args.extend(["--producers", producers]);
        }
        args.extend(more);
        self.run(&args)
    }

    /// Runs the binary on this root.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let url = self.url();
        Ran::of(command(args).env("BATCHWEAVE_STORE", url))
    }

    /// Runs with `--json`, which must succeed, and returns the output.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        let ran = self.run(&all);
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.out).unwrap()
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        let options = OpenOptions::default();
        batchweave_store::open(&self.url(), &options).await.unwrap()
    }

    pub(crate) async fn log(&self) -> Log {
        let options = LogOptions::new(rand::random());
        Log::open(self.store().await, &options).await.unwrap()
    }

    pub(crate) async fn producer(&self, name: &str) -> TestProducer {
        TestProducer::open(self.log().await, name, "host:1").await
    }

    /// `producer` commits `tgbs` TGBs in one object and one record.
    pub(crate) async fn commit(&self, producer: &mut TestProducer, tgbs: u64) {
        let first = producer.next_seq();
        let data: Vec<_> = (first..first + tgbs).map(tgb).collect();
        producer.commit_data(&data, 1 << 20).await;
    }

    /// Commits a record with an entry that can't be valid, as a faulty writer would.
    pub(crate) async fn commit_void_entry(&self) {
        let log = self.log().await;
        let m = log.manifest();
        let opened = Opened {
            producer: "p0".parse().unwrap(),
            instance: "faulty:1".into(),
            nonce: Nonce([9; 8]),
            epoch: 77,
            began: 0,
        };
        let record = Record {
            format: 1,
            stream: m.stream_id(),
            version: m.next_version(),
            prev: m.prev(),
            view: m.view(),
            commit: batchweave_core::ids::CommitId([0xab; 16]),
            writer: Writer {
                name: "faulty".into(),
                epoch: 0,
            },
            hints: Hints::default(),
            entries: vec![Entry::Opened(opened)],
        };
        let key = keys::log(m.next_version());
        let put = self
            .store()
            .await
            .create(&key, record.to_json().into())
            .await;
        assert_eq!(put.unwrap(), Create::Created);
    }
}

/// Slice s of TGB n begins with the token 100 n + s.
pub(crate) fn tgb(seq: u64) -> TgbData {
    let width = u64::from(SEQ_LEN) + 1;
    let layout = Layout::tokens(Dtype::U16, u64::from(ROWS), width).unwrap();
    let slice = |s: u32| {
        let first = seq as u32 * 100 + s;
        let tokens: Vec<u32> = (first..first + ROWS * width as u32).collect();
        layout.encode_tokens(&tokens).unwrap().into()
    };
    TgbData {
        seq,
        rows: u64::from(SLICES * ROWS),
        tokens: u64::from(SLICES * ROWS * SEQ_LEN),
        provenance: None,
        slices: (0..SLICES).map(slice).collect(),
    }
}

/// Returns the binary, without settings from the environment of these tests.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchweave"));
    command.args(args);
    for variable in [
        "BATCHWEAVE_STORE",
        "RUST_LOG",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
    ] {
        command.env_remove(variable);
    }
    command
}

impl Ran {
    pub(crate) fn of(command: &mut Command) -> Self {
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        let ran = Self {
            code: status.code().unwrap(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        };
        assert!(!ran.out.contains('\x1b'), "colours in a pipe: {ran:?}");
        ran
    }

    /// Asserts the exit code and that the error message contains all of `parts`.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        let first = self.err.lines().next().unwrap_or_default();
        assert!(first.starts_with("error: "), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {self:?}");
        }
    }

    /// Asserts success and that the output contains all of `parts`.
    #[track_caller]
    pub(crate) fn prints(&self, parts: &[&str]) {
        assert_eq!(self.code, 0, "{self:?}");
        for part in parts {
            assert!(self.out.contains(part), "no {part:?} in {}", self.out);
        }
    }
}
