//! The logs of the model of stages, their folds, and the oracle over them.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{CommitId, Hash, Nonce, ProducerName, RequestId, Seq};
use batchweave_core::manifest::entry::{BatchEntry, Opened, Stage};
use batchweave_core::manifest::{Entry, Hints, Manifest, Record, Writer};
use batchweave_core::stream::{StreamConfig, StreamOrder};
use batchweave_core::tgb::Digest;
use batchweave_core::{fixtures, keys};

/// A record of one entry, as the model writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Written {
    Opened(usize),
    /// A batch of a producer, with the stage by which it was made.
    Batch(usize, u64),
    Stage(BTreeMap<usize, Seq>),
}

pub(super) fn name(producer: usize) -> ProducerName {
    ["p0", "p1"][producer].parse().expect("a name")
}

fn stream() -> StreamConfig {
    fixtures::stream([7; 16], StreamOrder::Arrival, Vec::new())
}

/// Folds of logs, each made from that of the log without its last record.
#[derive(Debug, Default)]
pub(super) struct Folds(BTreeMap<Vec<Written>, Manifest>);

impl Folds {
    pub(super) fn of(&mut self, log: &[Written]) -> Manifest {
        if let Some(known) = self.0.get(log) {
            return known.clone();
        }
        let folded = match log.split_last() {
            None => {
                let config = stream();
                let json = config.to_json();
                Manifest::new(config, &json)
            }
            Some((last, before)) => {
                let mut m = self.of(before);
                fold(&mut m, last, before.len() as u64);
                m
            }
        };
        self.0.insert(log.to_vec(), folded.clone());
        folded
    }
}

fn fold(m: &mut Manifest, written: &Written, version: u64) {
    let entry = entry(m, written, version);
    let record = Record {
        format: Record::format_of(std::slice::from_ref(&entry)),
        stream: m.stream_id(),
        version,
        prev: m.prev(),
        view: m.view(),
        commit: CommitId([1; 16]),
        writer: Writer {
            name: "model".to_owned(),
            epoch: 0,
        },
        hints: Hints::default(),
        entries: vec![entry],
    };
    m.fold(&record.to_json()).expect("a readable record");
}

pub(super) fn entry(m: &Manifest, written: &Written, version: u64) -> Entry {
    match written {
        Written::Opened(producer) => {
            let epoch = m.producer(&name(*producer)).map_or(0, |p| p.epoch) + 1;
            Entry::Opened(Opened {
                producer: name(*producer),
                instance: "i".to_owned(),
                nonce: Nonce([epoch as u8; 8]),
                epoch,
                began: m.next_version(),
            })
        }
        Written::Batch(producer, stage) => Entry::Batch(batch(m, &name(*producer), *stage)),
        Written::Stage(from) => {
            let mut request = [0; 16];
            request[..8].copy_from_slice(&(version + 1).to_le_bytes());
            Entry::Stage(Stage {
                request: RequestId(request),
                id: m.stages().newest() + 1,
                name: "long".parse().expect("a name"),
                from: from.iter().map(|(p, seq)| (name(*p), *seq)).collect(),
                rows_per_slice: 2 + m.stages().newest() as u32,
                seq_len: 8,
                form: String::new(),
                fingerprint: Hash::sha256(b"long"),
                mixture: None,
            })
        }
    }
}

pub(super) fn batch(m: &Manifest, producer: &ProducerName, stage: u64) -> BatchEntry {
    let state = m.producer(producer).expect("opened");
    let seq = state.next_seq;
    let key = keys::data(producer, state.epoch, state.nonce, (seq, seq), 0, 0);
    let mut tgb = fixtures::tgb(&key, 0, 1024, Digest([1; 32]));
    let shape = m.stages().all.get(&stage);
    let rows = shape.map(|s| u64::from(m.stream().slices) * u64::from(s.rows_per_slice));
    tgb.rows = rows.unwrap_or(tgb.rows);
    BatchEntry {
        producer: producer.clone(),
        epoch: state.epoch,
        first_seq: seq,
        last_seq: seq,
        cursor_before: state.cursor.hash(),
        cursor: Cursor(serde_json::json!({ "row": seq + 1 })),
        mixture: 0,
        stage,
        first_step: None,
        tgbs: vec![tgb],
    }
}

/// Checks the stage of each committed batch by a plain reading of docs/format.md.
pub(super) fn oracle(log: &[Written]) -> Result<(), String> {
    let mut stages: Vec<BTreeMap<usize, Seq>> = Vec::new();
    let (mut opened, mut next) = (BTreeSet::new(), [0_u64; 2]);
    // A producer that opens behind a stage begins in it.
    let mut began: BTreeMap<usize, usize> = BTreeMap::new();
    for written in log {
        match written {
            Written::Opened(producer) => {
                if opened.insert(*producer) {
                    began.insert(*producer, stages.len());
                }
            }
            Written::Stage(from) => {
                for producer in &opened {
                    let Some(first) = from.get(producer) else {
                        return Err(format!("stage {} leaves out a producer", stages.len() + 1));
                    };
                    if *first < next[*producer] {
                        return Err("a stage begins before a committed batch".to_owned());
                    }
                }
                stages.push(from.clone());
            }
            Written::Batch(producer, made_by) => {
                let seq = next[*producer];
                let begun = (1..)
                    .zip(&stages)
                    .filter(|(_, from)| from.get(producer).is_some_and(|first| *first <= seq));
                let last = begun.map(|(id, _)| id).last();
                let wanted = last.unwrap_or(began[producer] as u64);
                if *made_by != wanted {
                    return Err(format!(
                        "batch {seq} of producer {producer} is of stage {made_by}, not {wanted}"
                    ));
                }
                next[*producer] += 1;
            }
        }
    }
    Ok(())
}
