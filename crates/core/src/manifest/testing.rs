//! Builders for tests: a small log in memory and entries that are valid until a test changes one.

use serde_json::json;

use super::entry::{BatchEntry, Entry, Finished, Opened};
use super::{Folded, Hints, Manifest, Record, Void, Writer};
use crate::cursor::Cursor;
use crate::ids::{CommitId, Nonce, ProducerName, RequestId};
use crate::stream::{StreamConfig, StreamOrder};
use crate::tgb::{Digest, TgbRecord};
use crate::{fixtures, keys};

pub(crate) fn name(text: &str) -> ProducerName {
    text.parse().unwrap()
}

pub(crate) fn config(order: StreamOrder, producers: &[&str]) -> StreamConfig {
    fixtures::stream([7; 16], order, producers.iter().map(|p| name(p)).collect())
}

/// A manifest and the records that were folded into it.
pub(crate) struct Bench {
    pub(crate) m: Manifest,
    pub(crate) records: Vec<Vec<u8>>,
}

impl Bench {
    pub(crate) fn new(order: StreamOrder, producers: &[&str]) -> Self {
        let config = config(order, producers);
        let json = config.to_json();
        Self {
            m: Manifest::new(config, &json),
            records: Vec::new(),
        }
    }

    pub(crate) fn record(&self, entries: Vec<Entry>) -> Record {
        Record {
            format: Record::format_of(&entries),
            stream: self.m.stream_id(),
            version: self.m.next_version(),
            prev: self.m.prev(),
            view: self.m.view(),
            commit: CommitId([1; 16]),
            writer: Writer {
                name: "test".into(),
                epoch: 0,
            },
            hints: Hints::default(),
            entries,
        }
    }

    pub(crate) fn fold(&mut self, entries: Vec<Entry>) -> Folded {
        let bytes = self.record(entries).to_json();
        let folded = self.m.fold(&bytes).unwrap();
        self.records.push(bytes);
        folded
    }

    /// Folds one entry and returns its validity.
    pub(crate) fn one(&mut self, entry: Entry) -> Result<(), Void> {
        self.fold(vec![entry]).entries.remove(0).map(|_| ())
    }

    pub(crate) fn opened(&self, producer: &str) -> Entry {
        let producer = name(producer);
        let epoch = self.m.producer(&producer).map_or(0, |p| p.epoch) + 1;
        let nonce = Nonce([epoch as u8; 8]);
        Entry::Opened(Opened {
            producer,
            instance: "host:1".into(),
            nonce,
            epoch,
            began: self.m.next_version(),
        })
    }

    /// Returns an entry with the next `tgbs` TGBs of a producer, all in one object.
    pub(crate) fn batch(&self, producer: &str, tgbs: u64) -> BatchEntry {
        let producer = name(producer);
        let state = self.m.producer(&producer).expect("opened");
        let (first_seq, last_seq) = (state.next_seq, state.next_seq + tgbs - 1);
        let seqs = (first_seq, last_seq);
        let stage = self.m.stage_at(&producer, first_seq);
        let key = keys::data(&producer, state.epoch, state.nonce, seqs, first_seq, 0);
        BatchEntry {
            first_seq,
            last_seq,
            epoch: state.epoch,
            cursor_before: state.cursor.hash(),
            cursor: Cursor(json!({ "row": last_seq + 1 })),
            mixture: self.m.mixture_at(&producer, first_seq),
            stage,
            first_step: None,
            tgbs: (0..tgbs)
                .map(|i| self.shaped(tgb(&key, i), stage))
                .collect(),
            producer,
        }
    }

    /// Returns a TGB with the rows of `stage`.
    pub(crate) fn shaped(&self, tgb: TgbRecord, stage: u64) -> TgbRecord {
        let shape = self.m.stages().all.get(&stage);
        let rows = shape.map(|s| u64::from(self.m.stream().slices) * u64::from(s.rows_per_slice));
        TgbRecord {
            rows: rows.unwrap_or(tgb.rows),
            ..tgb
        }
    }

    pub(crate) fn commit(&mut self, producer: &str, tgbs: u64) -> Folded {
        let entry = Entry::Batch(self.batch(producer, tgbs));
        self.fold(vec![entry])
    }

    pub(crate) fn finish(&self, producer: &str) -> Entry {
        let producer = name(producer);
        let state = self.m.producer(&producer).expect("opened");
        Entry::Finished(Finished {
            epoch: state.epoch,
            final_seq: state.next_seq,
            producer,
        })
    }
}

pub(crate) fn tgb(key: &str, index: u64) -> TgbRecord {
    fixtures::tgb(key, index, 1024, Digest([index as u8; 32]))
}

pub(crate) fn request(n: u8) -> RequestId {
    RequestId([n; 16])
}

/// Returns the producer and sequence number of each step, as `0=p0:3`.
pub(crate) fn placed(folded: &Folded) -> Vec<String> {
    folded
        .placed
        .iter()
        .map(|s| format!("{}={}:{}", s.step, s.producer, s.seq))
        .collect()
}

/// Compares with a file of tests/golden, or writes it with BLESS=1.
pub(crate) fn golden(name: &str, bytes: &[u8]) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let path = folder.join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let stored = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(
        String::from_utf8_lossy(&stored),
        String::from_utf8_lossy(bytes),
        "{name}"
    );
}
