//! A store in memory with a tripwire, a corpus, and a naive packer to compare with.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot continue panics"
)]

mod forks;
mod seeds;
mod stops;
mod trip;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys::INPUTS;
use batchweave_core::provenance::{Provenance, Sources};
use batchweave_core::tgb::{FrameHeader, Layout};
use batchweave_log::reclaim::{Class, Limits, Reclaimer};
use batchweave_log::{Located, Log, LogOptions};
use batchweave_producer::config::{ProducerConfig, TokenizerKind};
use batchweave_producer::{Outcome, RunError, run_on};
use batchweave_store::Store;
use batchweave_store::memory::MemoryStore;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::seeds::{seeds, sized};
use self::trip::{Instant, Trip, Tripwire};

pub const SLICES: u32 = 2;
pub const ROWS: u32 = 2;
pub const SEQ_LEN: u32 = 16;
const END: u32 = 256;

/// The rows of tokens of a batch.
pub type Rows = Vec<Vec<u32>>;

/// A stream in memory and a folder for input files.
pub struct World {
    pub folder: tempfile::TempDir,
    pub store: Arc<MemoryStore>,
}

impl World {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            store: MemoryStore::new(),
        }
    }

    pub fn config(paths: &[String], name: &str) -> ProducerConfig {
        let mut config = ProducerConfig::default();
        config.store.url = "memory://unused".into();
        (
            config.stream.slices,
            config.stream.rows_per_slice,
            config.stream.seq_len,
        ) = (SLICES, ROWS, SEQ_LEN);
        config.stream.producers = vec![name.to_owned()];
        config.producer.name = name.into();
        config.source.paths = paths.to_vec();
        config.tokenizer.kind = TokenizerKind::Bytes;
        config.tokenizer.threads = 3;
        config.packing.object_bytes.0 = 2000;
        config.commit.linger.0 = Duration::from_millis(1);
        config
    }

    pub async fn run(&self, config: ProducerConfig) -> Result<Outcome, RunError> {
        run_on(self.store.clone(), config, CancellationToken::new()).await
    }

    pub fn spawn(
        &self,
        config: ProducerConfig,
    ) -> (JoinHandle<Result<Outcome, RunError>>, CancellationToken) {
        let stop = CancellationToken::new();
        (
            tokio::spawn(run_on(self.store.clone(), config, stop.clone())),
            stop,
        )
    }

    /// Requests a stop at an instant that the seed draws.
    pub async fn run_until(&self, config: ProducerConfig, seed: u64) -> Result<Outcome, RunError> {
        let stop = CancellationToken::new();
        let trip = Trip::Stop(stop.clone());
        let store = Tripwire::new(self.store.clone(), Instant::draw(seed), trip);
        run_on(store, config, stop).await
    }

    /// Returns true when it finished, and false when it was dropped at a request that the seed draws. That request had
    /// its effect (odd numbers) or not (even ones) and was never answered.
    pub async fn crash(&self, config: ProducerConfig, seed: u64, before: u64) -> bool {
        let at = Instant::draw(seed << 32 | before);
        let dead = Arc::new(Notify::new());
        let store = Tripwire::new(self.store.clone(), at, Trip::Die(dead.clone()));
        let run = run_on(store, config, CancellationToken::new());
        tokio::select! {
            biased;
            () = dead.notified() => false,
            outcome = run => {
                assert!(matches!(outcome.unwrap(), Outcome::Finished { .. }));
                true
            }
        }
    }

    /// Returns the log of the stream.
    pub async fn open_log(&self) -> Log {
        self.log().await.unwrap()
    }

    async fn log(&self) -> Option<Log> {
        let options = LogOptions {
            write_snapshots: false,
            ..LogOptions::new(rand::random())
        };
        Log::open(self.store.clone(), &options).await.ok()
    }

    /// Returns the keys of all links of input lists.
    pub fn inputs(&self) -> Vec<String> {
        let mut keys = self.store.keys();
        keys.retain(|key| key.starts_with(INPUTS));
        keys
    }

    /// Returns the total size of these links.
    pub async fn inputs_bytes(&self) -> u64 {
        let mut bytes = 0;
        for key in self.inputs() {
            bytes += self.store.head(&key).await.unwrap().size;
        }
        bytes
    }

    /// Runs a pass of reclamation. Returns the number of links of input lists that it deleted.
    pub async fn reclaim_inputs(&self) -> u64 {
        let mut log = self.log().await.unwrap();
        let report = Reclaimer::new().pass(&mut log, Limits::default()).await;
        let deleted = report.unwrap().deleted;
        deleted
            .get(&Class::Inputs)
            .map_or(0, |deleted| deleted.objects)
    }

    pub async fn ended(&self) -> bool {
        self.log()
            .await
            .is_some_and(|log| log.manifest().end().is_some())
    }

    pub async fn wait_for_batches(&self, batches: usize) {
        let seen = async {
            while self
                .log()
                .await
                .is_none_or(|log| log.manifest().next_step() < batches as u64)
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), seen)
            .await
            .expect("no progress in a minute");
    }

    /// Returns all committed batches, read from the data objects.
    pub async fn batches(&self) -> Vec<Rows> {
        let batches = self.payloads().await.into_iter();
        batches
            .map(|slices| slices.iter().flat_map(|p| payload_rows(p)).collect())
            .collect()
    }

    /// Returns the provenance of each batch.
    pub async fn sources(&self) -> Vec<Sources> {
        let Some(mut log) = self.log().await else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for step in log.manifest().watermark()..log.manifest().next_step() {
            let Located::At(entry) = log.locate(step).await.unwrap() else {
                panic!("step {step} is missing")
            };
            let key = entry.tgb.provenance.as_ref().unwrap();
            let object = self.store.get(key, u64::MAX).await.unwrap();
            let provenance = Provenance::decode(&object).unwrap();
            all.push(provenance.get(entry.seq).unwrap().clone());
        }
        all
    }

    /// Returns the payloads of each batch's slices.
    pub async fn payloads(&self) -> Vec<Vec<Vec<u8>>> {
        let Some(mut log) = self.log().await else {
            return Vec::new();
        };
        assert_eq!(
            (log.manifest().void_entries(), log.manifest().void_records()),
            (0, 0)
        );
        let mut batches = Vec::new();
        for step in log.manifest().watermark()..log.manifest().next_step() {
            let Located::At(entry) = log.locate(step).await.unwrap() else {
                panic!("step {step} is missing")
            };
            let mut slices = Vec::new();
            for part in &entry.tgb.parts {
                let object = self.store.get(&part.key, u64::MAX).await.unwrap();
                let mut from = part.offset as usize;
                for _ in 0..part.slices {
                    let header = FrameHeader::decode(&object[from..]).unwrap();
                    let payload = &object[from + 64..][..header.payload_bytes as usize];
                    slices.push(payload.to_vec());
                    from = (from + 64 + payload.len()).next_multiple_of(64);
                }
            }
            batches.push(slices);
        }
        batches
    }
}

fn payload_rows(payload: &[u8]) -> Rows {
    let layout = Layout::parse(payload).unwrap();
    let array = layout.array("tokens").unwrap();
    assert_eq!(array.shape, [u64::from(ROWS), u64::from(SEQ_LEN) + 1]);
    let data = &payload[array.offset as usize..];
    let tokens: Vec<u32> = data
        .chunks_exact(2)
        .map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])))
        .collect();
    tokens
        .chunks_exact(SEQ_LEN as usize + 1)
        .map(<[u32]>::to_vec)
        .collect()
}

/// Returns lines of JSON with texts of all lengths.
pub struct Corpus {
    pub lines: Vec<String>,
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ z >> 27
    }
}

impl Corpus {
    pub fn new(seed: u64, lines: usize) -> Self {
        let mut random = Random(seed);
        let line = |n: usize| {
            let words = random.next() % 24;
            let text: Vec<String> = (0..=words)
                .map(|_| format!("w{:x}", random.next() % 4096))
                .collect();
            format!("{{\"n\":{n},\"text\":\"{}\"}}", text.join(" ")).replace("\"n\":0,", "")
        };
        Self {
            lines: (0..lines).map(line).collect(),
        }
    }

    /// The lines of each file.
    fn files(&self, files: usize) -> Vec<Range<usize>> {
        let n = self.lines.len();
        (0..files)
            .map(|f| f * n / files..(f + 1) * n / files)
            .collect()
    }

    pub fn write(&self, world: &World, files: usize) -> Vec<String> {
        let write = |(f, lines): (usize, Range<usize>)| {
            let path = world.folder.path().join(format!("{f}.jsonl"));
            std::fs::write(&path, self.lines[lines].join("\n") + "\n").unwrap();
            path.display().to_string()
        };
        self.files(files)
            .into_iter()
            .enumerate()
            .map(write)
            .collect()
    }

    fn tokens(lines: &[&String]) -> Vec<u32> {
        let document = |line: &&String| {
            let json: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).unwrap();
            let text = json["text"].as_str().unwrap().as_bytes().to_vec();
            text.into_iter().map(u32::from).chain([END])
        };
        lines.iter().flat_map(document).collect()
    }

    pub fn expected(&self, passes: usize) -> Vec<Rows> {
        let lines: Vec<&String> = self.lines.iter().collect();
        pack(&Self::tokens(&lines).repeat(passes), false)
    }

    pub fn expected_padded(&self, passes: usize) -> Vec<Rows> {
        let lines: Vec<&String> = self.lines.iter().collect();
        pack(&Self::tokens(&lines).repeat(passes), true)
    }

    pub fn expected_of_lines(lines: &[String]) -> Vec<Rows> {
        pack(&Self::tokens(&lines.iter().collect::<Vec<_>>()), false)
    }

    /// Returns the first `batches` of an endless run.
    pub fn expected_passes(&self, batches: usize) -> Vec<Rows> {
        let mut passes = 1;
        loop {
            let mut all = self.expected(passes);
            if all.len() >= batches {
                all.truncate(batches);
                return all;
            }
            passes += 1;
        }
    }

    /// Returns the batches that producer `index` of `of` makes of `files` files.
    pub fn expected_of(&self, of: usize, index: usize, files: usize) -> Vec<Rows> {
        let mut mine = Vec::new();
        for (f, range) in self.files(files).into_iter().enumerate() {
            mine.extend(
                self.lines[range]
                    .iter()
                    .enumerate()
                    .filter(|(d, _)| (f + d) % of == index)
                    .map(|(_, l)| l),
            );
        }
        pack(&Self::tokens(&mine), false)
    }
}

/// Packs by the definition in docs/format.md, over the whole sequence at once.
fn pack(tokens: &[u32], pad: bool) -> Vec<Rows> {
    let rows = (SLICES * ROWS) as usize;
    let row = SEQ_LEN as usize;
    let mut tokens = tokens.to_vec();
    let advance = rows * row;
    let left = (tokens.len() - 1) % advance;
    if pad && left > 0 {
        tokens.resize(tokens.len() + advance - left, END);
    }
    let batch = |b: usize| {
        (0..rows)
            .map(|r| tokens[b * advance + r * row..=b * advance + (r + 1) * row].to_vec())
            .collect()
    };
    (0..(tokens.len() - 1) / advance).map(batch).collect()
}
