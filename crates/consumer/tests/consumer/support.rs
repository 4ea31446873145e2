//! A stream in memory whose tokens are a function of step and slice, and a daemon in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchweave_consumer::config::ConsumerConfig;
use batchweave_consumer::{RunError, run_on};
use batchweave_core::ids::{Hash, RequestId, Step, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::manifest::entry::{JobClosed, QuarantineLifted, Quarantined, Watermark};
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_core::tgb::{Dtype, Layout, TgbData};
use batchweave_daemon::config::{ByteSize, Listen, Period};
use batchweave_log::{Log, LogOptions, create};
use batchweave_store::Store;
use batchweave_store::memory::MemoryStore;
use batchweave_testkit::{TestProducer, open_log};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const SEQ_LEN: u32 = 63;
pub(crate) const ROWS: u32 = 4;
/// The file of the stream's tokenizer, which tests store where they need it.
pub(crate) const TOKENIZER: &[u8] = br#"{"model": {"vocab": {"a": 0, "b": 7}}}"#;

/// A stream and its only producer.
pub(crate) struct Stream {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) config: StreamConfig,
    producer: TestProducer,
    layout: Layout,
}

/// The tokens of a slice.
pub(crate) fn tokens(step: Step, slice: u32) -> Vec<u32> {
    let count = u64::from(ROWS) * (u64::from(SEQ_LEN) + 1);
    let mix = |i: u64| (step * 7919 + u64::from(slice) * 104_729 + i * 31) % 65_521;
    (0..count).map(|i| mix(i) as u32).collect()
}

/// The same as bytes in the arena.
pub(crate) fn bytes(step: Step, slice: u32) -> Vec<u8> {
    tokens(step, slice)
        .iter()
        .flat_map(|t| (*t as u16).to_le_bytes())
        .collect()
}

fn config(slices: u32) -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([9; 16]),
        slices,
        order: StreamOrder::Arrival,
        producers: vec!["p".parse().unwrap()],
        tokenizer: TokenizerId {
            name: "test".into(),
            fingerprint: Hash::sha256(TOKENIZER),
        },
        seq_len: SEQ_LEN,
        rows_per_slice: ROWS,
        created: "2026-01-01T00:00:00Z".into(),
        form: None,
        parent: None,
    }
}

impl Stream {
    /// Creates an empty stream in memory.
    pub(crate) async fn new(slices: u32) -> Self {
        Self::on(MemoryStore::new(), slices).await
    }

    /// Creates an empty stream in a given store.
    pub(crate) async fn on(store: Arc<MemoryStore>, slices: u32) -> Self {
        let shared: Arc<dyn Store> = store.clone();
        let config = config(slices);
        create(&shared, &config).await.unwrap();
        let producer = TestProducer::open(open_log(&shared, 3).await, "p", "test").await;
        let width = u64::from(SEQ_LEN) + 1;
        let layout = Layout::tokens(Dtype::U16, u64::from(ROWS), width).unwrap();
        Self {
            store,
            config,
            producer,
            layout,
        }
    }

    /// Commits the next `steps`, `group` of them in an object.
    pub(crate) async fn commit(&mut self, steps: u64, group: u64) {
        let mut left = steps;
        while left > 0 {
            let count = left.min(group);
            self.commit_object(count).await;
            left -= count;
        }
    }

    /// Commits the next `steps` together: frames of one TGB differ in size, an object has about
    /// `object_bytes`.
    pub(crate) async fn commit_uneven(&mut self, steps: u64, object_bytes: u64) {
        let width = u64::from(SEQ_LEN) + 1;
        let payload = |step: Step, slice: u32| {
            let more = vec![7; (step as usize + slice as usize) % 3 * 64 + 1];
            let arrays = [
                ("tokens", Dtype::U16, vec![u64::from(ROWS), width]),
                ("more", Dtype::U8, vec![more.len() as u64]),
            ];
            let layout = Layout::new(arrays).unwrap();
            let data = [("tokens", &bytes(step, slice)[..]), ("more", &more[..])];
            layout.encode(&data).unwrap()
        };
        self.commit_payloads(steps, object_bytes, payload).await;
    }

    async fn commit_object(&mut self, count: u64) {
        let layout = self.layout.clone();
        let payload = |step, slice| layout.encode_tokens(&tokens(step, slice)).unwrap();
        self.commit_payloads(count, 1 << 30, payload).await;
    }

    async fn commit_payloads(
        &mut self,
        count: u64,
        object_bytes: u64,
        payload: impl Fn(Step, u32) -> Vec<u8>,
    ) {
        let first = self.producer.next_seq();
        let slice = |step, slice| payload(step, slice).into();
        let tgb = |seq| TgbData {
            seq,
            rows: u64::from(ROWS * self.config.slices),
            tokens: 1,
            provenance: None,
            slices: (0..self.config.slices).map(|s| slice(seq, s)).collect(),
        };
        let tgbs: Vec<TgbData> = (first..first + count).map(tgb).collect();
        self.producer.commit_data(&tgbs, object_bytes).await;
    }

    /// Seals the stream at its head.
    pub(crate) async fn finish(&mut self) {
        self.producer.finish().await;
    }

    /// Commits an entry to the log, as an operator's tool does.
    pub(crate) async fn put(&self, seed: u8, make: impl Fn(&Manifest) -> Entry) -> Version {
        let options = LogOptions::new([seed; 32]);
        let mut log = Log::open(self.store.clone(), &options).await.unwrap();
        log.commit_entry("test", make).await.unwrap().unwrap()
    }

    /// Quarantines steps for attempts that are opened later.
    pub(crate) async fn quarantine(&self, id: u8, first: Step, last: Step) {
        let entry = Entry::Quarantined(Quarantined {
            request: RequestId([id; 16]),
            first,
            last,
            reason: "a test".into(),
        });
        self.put(id, |_| entry.clone()).await;
    }

    /// Lifts the quarantine with this id.
    pub(crate) async fn lift(&self, id: u8, quarantine: u8) {
        let entry = Entry::QuarantineLifted(QuarantineLifted {
            request: RequestId([id; 16]),
            quarantine: RequestId([quarantine; 16]),
        });
        self.put(id, |_| entry.clone()).await;
    }

    /// Closes the job of the tests.
    pub(crate) async fn close_job(&self, id: u8) {
        let close = |m: &Manifest| {
            let (job, state) = m.jobs().first_key_value().unwrap();
            Entry::JobClosed(JobClosed {
                request: RequestId([id; 16]),
                job: job.clone(),
                opened: state.opened,
                reason: "a test".into(),
            })
        };
        self.put(id, close).await;
    }

    /// Returns the folded state of the log.
    pub(crate) async fn manifest(&self) -> Manifest {
        let options = LogOptions::new([77; 32]);
        let log = Log::open(self.store.clone(), &options).await.unwrap();
        log.manifest().clone()
    }

    /// Raises the watermark to `step`, as an operator does.
    pub(crate) async fn publish_watermark(&self, step: Step) {
        let options = LogOptions::new([4; 32]);
        let mut log = Log::open(self.store.clone(), &options).await.unwrap();
        let entry = Entry::Watermark(Watermark {
            step,
            jobs: Vec::new(),
            request: Some(RequestId([1; 16])),
        });
        let committed = log.commit_entry("test", |_| entry.clone()).await;
        assert!(committed.unwrap().is_some());
    }

    /// Raises the watermark while jobs hold data, as a reclaimer does.
    pub(crate) async fn publish_watermark_of_jobs(&self, step: Step) {
        let publish = |m: &Manifest| {
            Entry::Watermark(Watermark {
                step,
                jobs: m.holding_jobs(),
                request: None,
            })
        };
        self.put(90, publish).await;
    }

    /// The keys of all data objects.
    pub(crate) fn data_keys(&self) -> Vec<String> {
        let mut all = self.store.keys();
        all.retain(|key| key.starts_with(keys::DATA));
        all
    }
}

/// A configuration for a socket in `dir`.
pub(crate) fn consumer(dir: &Path) -> ConsumerConfig {
    let mut config = ConsumerConfig::default();
    config.socket.path = dir.join("consumer.sock");
    config.arena.bytes = ByteSize::mib(8);
    // Small, so that the arena grows in every test.
    config.arena.segment_bytes = ByteSize(64 << 10);
    config.arena.grow_after = Period::millis(0);
    config.prefetch.bytes = ByteSize::mib(4);
    config.follow.starved = Period::millis(5);
    config.follow.idle = Period::millis(50);
    config.admin.listen = Listen(None);
    config.job.name = "llm".into();
    config.job.open = true;
    config
}

/// A daemon on a thread and runtime of its own, so that clients may block.
pub(crate) struct Daemon {
    stop: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
    pub(crate) socket: PathBuf,
}

impl Daemon {
    pub(crate) fn start(store: Arc<dyn Store>, config: ConsumerConfig) -> Self {
        let stop = CancellationToken::new();
        let socket = config.socket.path.clone();
        let task = tokio::spawn(run_on(store, config, stop.clone()));
        Self { stop, task, socket }
    }

    /// Stops the daemon and returns its outcome.
    pub(crate) async fn stop(self) -> Result<(), RunError> {
        self.stop.cancel();
        self.task.await.unwrap()
    }

    /// Drops the daemon without notifying its ranks, like a kill.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.is_err_and(|end| end.is_cancelled()));
    }
}
