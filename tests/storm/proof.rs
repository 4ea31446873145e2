//! The rules that a stream must keep whatever happened to its producers, checked from the store alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Hash, ProducerName, Version};
use batchweave_core::manifest::entry::BatchEntry;
use batchweave_core::manifest::{Entry, Record, StepEntry};
use batchweave_core::tgb::{FrameHeader, Layout, TgbRecord, check_object};
use batchweave_core::{intent, keys};
use batchweave_log::{Located, Log, LogOptions};
use batchweave_store::{Store, list_all};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::corpus::{Corpus, SEQ_LEN, SLICES};

/// Object reads that run at the same time.
const READS: usize = 64;
const HEADER_BYTES: usize = 64;

/// The log's own account of the stream.
#[derive(Debug, Default)]
pub(crate) struct LogSummary {
    pub(crate) records: u64,
    pub(crate) entries: u64,
    pub(crate) epochs: u64,
    pub(crate) intents_left: usize,
}

/// Gets many objects, several at a time.
async fn get_all(store: &Arc<dyn Store>, keys: Vec<String>) -> BTreeMap<String, Bytes> {
    let mut reads = JoinSet::new();
    let mut found = BTreeMap::new();
    for key in keys {
        if reads.len() == READS {
            let (key, bytes) = reads.join_next().await.unwrap().unwrap();
            found.insert(key, bytes);
        }
        let store = Arc::clone(store);
        reads.spawn(async move {
            let bytes = store.get(&key, u64::MAX).await.unwrap();
            (key, bytes)
        });
    }
    while let Some(read) = reads.join_next().await {
        let (key, bytes) = read.unwrap();
        found.insert(key, bytes);
    }
    found
}

/// Reads every record below `end` one by one, without the fold.
pub(crate) async fn records(store: &Arc<dyn Store>, end: Version) -> Vec<Record> {
    let bytes = get_all(store, (0..end).map(keys::log).collect()).await;
    (0..end)
        .map(|v| Record::from_json(&bytes[&keys::log(v)], v).unwrap())
        .collect()
}

/// Returns the entries of one producer, as the records have them.
struct Thread {
    epoch: Epoch,
    next_seq: u64,
    cursor: Hash,
    finished: bool,
}

impl Thread {
    fn new() -> Self {
        Self {
            epoch: 0,
            next_seq: 0,
            cursor: Cursor::default().hash(),
            finished: false,
        }
    }

    fn batch(&mut self, e: &BatchEntry) {
        let producer = &e.producer;
        assert!(!self.finished, "{producer}: a batch after the finish");
        assert_eq!(e.epoch, self.epoch, "{producer}: term of {}", e.first_seq);
        assert_eq!(e.first_seq, self.next_seq, "{producer}: sequence");
        assert_eq!(
            e.last_seq + 1 - e.first_seq,
            e.tgbs.len() as u64,
            "{producer}"
        );
        assert_eq!(
            e.cursor_before, self.cursor,
            "{producer}: cursor before {}",
            e.first_seq
        );
        self.cursor = e.cursor.hash();
        self.next_seq = e.last_seq + 1;
    }
}

/// Checks that sequence numbers, epochs and cursors are continuous from entry to entry.
fn check_records(records: &[Record], producers: &[ProducerName], tgbs: u64) -> LogSummary {
    let mut threads: BTreeMap<_, _> = producers.iter().map(|p| (p, Thread::new())).collect();
    let mut log_summary = LogSummary::default();
    for record in records {
        log_summary.records += 1;
        for entry in &record.entries {
            log_summary.entries += 1;
            let Some((producer, _)) = entry.producer() else {
                continue;
            };
            let thread = threads.get_mut(producer).expect("a producer of this run");
            match entry {
                Entry::Opened(e) => {
                    assert_eq!(e.epoch, thread.epoch + 1, "{producer}");
                    thread.epoch = e.epoch;
                }
                Entry::Batch(e) => thread.batch(e),
                Entry::Finished(e) => {
                    assert_eq!((e.epoch, e.final_seq), (thread.epoch, tgbs), "{producer}");
                    thread.finished = true;
                }
                other => panic!("{producer}: {other:?}"),
            }
        }
    }
    for (producer, thread) in threads {
        assert!(thread.finished, "{producer} has not finished");
        assert_eq!(thread.next_seq, tgbs, "{producer}");
        log_summary.epochs += thread.epoch;
    }
    log_summary
}

/// Returns the rows of a TGB, from its objects.
fn rows(tgb: &TgbRecord, objects: &BTreeMap<String, Bytes>) -> Vec<Vec<u16>> {
    let mut rows = Vec::new();
    for part in &tgb.parts {
        let object = &objects[&part.key];
        let frame_bytes = part.frame_bytes.expect("rows of one length");
        for slice in 0..u64::from(part.slices) {
            let at = (part.offset + slice * frame_bytes) as usize;
            let header = FrameHeader::decode(&object[at..]).unwrap();
            let payload = &object[at + HEADER_BYTES..][..header.payload_bytes as usize];
            let layout = Layout::parse(payload).unwrap();
            let array = layout.array("tokens").unwrap();
            assert_eq!(array.shape, [1, SEQ_LEN as u64 + 1]);
            let data = &payload[array.offset as usize..][..2 * (SEQ_LEN + 1)];
            let tokens = data.chunks_exact(2);
            rows.push(tokens.map(|b| u16::from_le_bytes([b[0], b[1]])).collect());
        }
    }
    rows
}

async fn steps(log: &mut Log) -> Vec<Arc<StepEntry>> {
    let mut steps = Vec::new();
    for step in 0..log.manifest().next_step() {
        match log.locate(step).await.unwrap() {
            Located::At(entry) => steps.push(entry),
            other => panic!("step {step}: {other:?}"),
        }
    }
    steps
}

/// Checks that every TGB of every producer is there exactly once, in order, with the tokens of its
/// source.
async fn check_steps(store: &Arc<dyn Store>, log: &mut Log, corpora: &[(ProducerName, Corpus)]) {
    let steps = steps(log).await;
    let keys: BTreeSet<String> = steps
        .iter()
        .flat_map(|step| step.tgb.parts.iter().map(|part| part.key.clone()))
        .collect();
    let objects = get_all(store, keys.into_iter().collect()).await;
    for (key, bytes) in &objects {
        check_object(bytes, key).unwrap();
    }
    let mut of: BTreeMap<&ProducerName, Vec<&StepEntry>> = BTreeMap::new();
    for step in &steps {
        of.entry(&step.producer).or_default().push(step);
    }
    assert_eq!(of.len(), corpora.len());
    for (producer, corpus) in corpora {
        let mine = &of[producer];
        let expected = corpus.expected();
        assert_eq!(mine.len(), expected.len(), "{producer}");
        for (seq, (step, expected)) in mine.iter().zip(&expected).enumerate() {
            assert_eq!(step.seq, seq as u64, "{producer}");
            assert_eq!(expected.len(), SLICES);
            assert_eq!(&rows(&step.tgb, &objects), expected, "{producer}, {seq}");
        }
    }
}

/// Checks that no intent could still be committed. Returns the number of dead ones left.
async fn check_intents(store: &Arc<dyn Store>, log: &Log) -> usize {
    let mut listed = Vec::new();
    let intents = list_all(store.as_ref(), keys::INTENTS, |o| {
        listed.push((o.key, o.size))
    });
    intents.await.unwrap();
    let nobody = "nobody".parse().unwrap();
    let chosen = intent::select(log.manifest(), &listed, &nobody, 0);
    assert_eq!(chosen.wanted, Vec::<String>::new(), "intents still alive");
    assert_eq!(
        chosen.dead.len(),
        listed.len(),
        "intents neither wanted nor dead"
    );
    listed.len()
}

/// Checks the whole stream; panics at the first violation.
pub(crate) async fn prove(
    store: &Arc<dyn Store>,
    corpora: &[(ProducerName, Corpus)],
    tgbs: u64,
) -> LogSummary {
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new([7; 32])
    };
    let mut log = Log::open(Arc::clone(store), &options).await.unwrap();
    let m = log.manifest();
    assert_eq!((m.void_entries(), m.void_records()), (0, 0));
    assert_eq!(m.next_step(), tgbs * corpora.len() as u64);
    assert_eq!(m.end(), Some(m.next_step()), "the stream has ended");
    let producers: Vec<_> = corpora.iter().map(|(name, _)| name.clone()).collect();
    let records = records(store, m.next_version()).await;
    let mut log_summary = check_records(&records, &producers, tgbs);
    check_steps(store, &mut log, corpora).await;
    log_summary.intents_left = check_intents(store, &log).await;
    log_summary
}
