//! Objects that jobs leave in the store.

use batchweave_core::crc::crc32c;
use batchweave_core::ids::AttemptId;
use batchweave_core::keys;
use batchweave_core::proof::{Ledger, LedgerPlace};
use batchweave_core::retention::{Mark, Progress};
use batchweave_core::values::{MergedValues, ValuesObject};

use crate::check::{stable, stream_id};
use crate::seal::each_json;

/// Parses a sealed object without its digest, to know the key that it belongs to.
fn content<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let end = b",\"digest\":\"".len() + 64 + b"\"}\n".len();
    let body = bytes.get(..bytes.len().checked_sub(end)?)?;
    serde_json::from_slice(&[body, b"}"].concat()).ok()
}

pub(super) fn mark(input: &[u8]) {
    each_json(input, |bytes| {
        let key = content::<Mark>(bytes).map_or("jobs/llm@4/2/marks/x".into(), |mark| mark.key());
        let read = |bytes: &[u8]| Mark::from_json(bytes, &key, stream_id());
        if let Ok(mark) = read(bytes) {
            stable(&mark, Mark::to_json, read);
            if let Some(named) = keys::parse_mark(&key) {
                assert_eq!((named.step, named.coordinate), (mark.step, mark.dp_rank));
            }
        }
    });
}

pub(super) fn progress(input: &[u8]) {
    each_json(input, |bytes| {
        let key = content::<Progress>(bytes).map_or("jobs/llm@4/2/progress/x".into(), |p| p.key());
        let read = |bytes: &[u8]| Progress::from_json(bytes, &key, stream_id());
        if let Ok(progress) = read(bytes) {
            stable(&progress, Progress::to_json, read);
            if let Some(named) = keys::parse_progress(&key) {
                assert_eq!(named.step, progress.step);
                assert_eq!((named.first, named.last), (progress.first, progress.last));
            }
        }
    });
}

/// A ledger, and each step that it covers.
pub(super) fn ledger(input: &[u8]) {
    each_json(input, |bytes| {
        let Some(said) = content::<Ledger>(bytes) else {
            return;
        };
        let Ledger {
            opened, attempt, ..
        } = said;
        let key = keys::ledger(&said.job, opened, attempt, said.first(), &said.node, 0);
        let place = LedgerPlace {
            stream: stream_id(),
            job: &said.job,
            opened,
            attempt,
        };
        let read = |bytes: &[u8]| Ledger::from_json(bytes, &key, &place);
        let Ok(ledger) = read(bytes) else {
            return;
        };
        stable(&ledger, Ledger::to_json, read);
        for entry in &ledger.entries {
            let told: usize = entry.steps().map(|(_, crcs)| crcs.len()).sum();
            assert_eq!(told, entry.crcs.len());
            assert_eq!(entry.steps().count() as u64, entry.received());
            let _ = (entry.slice_range(), entry.reader());
        }
    });
}

/// An object of values, with a checksum that fits, and what counts of it.
pub(super) fn values(input: &[u8]) {
    let mut bytes = input.to_vec();
    if let Some((head, rest)) = bytes.split_at_mut_checked(12) {
        head[8..].copy_from_slice(&crc32c(rest).to_le_bytes());
    }
    let attempt = bytes.get(32..48).and_then(|id| id.try_into().ok());
    let attempt = AttemptId(attempt.unwrap_or_default());
    let key = "jobs/llm@4/2/reports/x.bwr";
    for bytes in [input, &bytes] {
        let Ok(object) = ValuesObject::decode(bytes, key, stream_id(), attempt) else {
            continue;
        };
        assert_eq!(object.encode(), bytes);
        let mut merged = MergedValues::default();
        merged.add(object, &(0..u64::MAX));
        let all = merged.take_below(u64::MAX);
        assert!(!all.is_empty());
    }
}
