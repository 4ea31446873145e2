//! Stored JSON objects of the log: each as it is decoded and used.

use std::sync::Arc;

use batchweave_core::drive::Why;
use batchweave_core::ids::{CommitId, Hash, StreamId};
use batchweave_core::intent::{self, Candidacy};
use batchweave_core::limits::{FORK_REPEATED_MAX, SEGMENT_STEPS};
use batchweave_core::manifest::fork::ForkState;
use batchweave_core::manifest::repair::Repair;
use batchweave_core::manifest::{Entry, Manifest, Record, Segment};
use batchweave_core::stream::{ParentStream, StreamConfig, StreamOrder};

use super::fold;
use crate::check::{self, good, manifest, producing, stable, stream_id, version_in};
use crate::seal::each_json;

pub(super) fn stream(input: &[u8]) {
    each_json(input, |bytes| {
        let Ok(config) = StreamConfig::from_json(bytes, "stream.json") else {
            return;
        };
        stable(&config, StreamConfig::to_json, |b| {
            StreamConfig::from_json(b, "stream.json")
        });
        let _ = config.differences(check::stream());
        assert_eq!(config.check(), Ok(()));
        let manifest = Manifest::new(config, bytes);
        let _ = (manifest.end(), manifest.awaited());
    });
}

/// A record unchanged, then its entries in the next record of states of the golden log.
pub(super) fn record(input: &[u8]) {
    each_json(input, |bytes| {
        let version = version_in(bytes);
        let Ok(record) = Record::from_json(bytes, version) else {
            return;
        };
        stable(&record, Record::to_json, |b| Record::from_json(b, version));
        for entry in &record.entries {
            let written = good(serde_json::to_vec(entry), "an entry is written");
            assert_eq!(entry.json_len(), written.len());
            reason(entry);
        }
        for state in [manifest(), producing()] {
            let mut state = state.clone();
            let _ = state.clone().fold(bytes);
            let folded = state.clone().fold_repaired(bytes);
            assert!(folded.void.is_some());
            let mut record = record.clone();
            fold::fit(&mut record, &state);
            fold::add(&mut state, &record);
            fold::same_snapshot(&state);
        }
    });
}

/// The reason of a mixture: computed again, whatever its numbers are, and stored as it is.
fn reason(entry: &Entry) {
    let Entry::Mixture(mixture) = entry else {
        return;
    };
    let Some(Ok(why)) = mixture.why.as_ref().map(Why::read) else {
        return;
    };
    let _ = why.recompute();
    assert_eq!(Why::read(&why.to_json()), Ok(why));
}

/// A snapshot of the version that it states, and records after it.
pub(super) fn snapshot(input: &[u8]) {
    each_json(input, |bytes| {
        let version = version_in(bytes);
        let config = Arc::new(check::stream().clone());
        let read = |bytes: &[u8]| Manifest::from_snapshot(Arc::clone(&config), bytes, version);
        let Ok(mut state) = read(bytes) else {
            return;
        };
        fold::same_snapshot(&state);
        fold::ask(&state);
        for entries in fold::typical(&state) {
            let mut record = fold::record(entries, CommitId([3; 16]));
            fold::fit(&mut record, &state);
            fold::add(&mut state, &record);
        }
        let _ = state.fold_repaired(bytes);
        fold::same_snapshot(&state);
    });
}

/// The state of a fork at the step that it states, and records after it.
pub(super) fn fork(input: &[u8]) {
    each_json(input, |bytes| {
        let read: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
        let step = read.and_then(|read| read.get("step")?.as_u64());
        let parent = ParentStream {
            stream: stream_id(),
            root: "memory://parent".to_owned(),
            step: step.unwrap_or_default(),
            version: Some(1),
            record: Hash([1; 32]),
            view: Hash([2; 32]),
            state: Hash::sha256(bytes),
        };
        let Ok(state) = ForkState::from_json(bytes, &parent) else {
            return;
        };
        let mut config = check::stream().clone();
        config.stream_id = StreamId::from_random([9; 16]);
        (config.format, config.parent) = (2, Some(parent));
        config.producers.clear();
        config.order = StreamOrder::Arrival;
        let Ok(mut state) = Manifest::forked(config, bytes, state) else {
            return;
        };
        let again = state.producers().map(|(_, p)| p.next_seq - p.made_from());
        assert!(
            again
                .max()
                .is_none_or(|most| most <= FORK_REPEATED_MAX as u64)
        );
        fold::ask(&state);
        let _ = state.fold_repaired(bytes);
    });
}

/// An input that begins with `+` is some steps, one per line: the others of a whole segment follow them.
pub(super) fn segment(input: &[u8]) {
    if let Some(steps) = input.strip_prefix(b"+") {
        return whole_segment(steps);
    }
    each_json(input, |bytes| {
        let _ = Segment::from_json(bytes, stream_id(), 0);
    });
}

fn whole_segment(steps: &[u8]) {
    let (digest, id) = (Hash([0; 32]), stream_id());
    let mut lines: Vec<String> = Vec::new();
    for line in String::from_utf8_lossy(steps).lines().take(8) {
        lines.push(line.to_owned());
    }
    for step in lines.len() as u64..SEGMENT_STEPS {
        lines.push(format!(
            r#"{{"step":{step},"producer":"a","epoch":1,"seq":{step},"version":1,"tgb":{{"rows":1,"tokens":1,"digest":"{digest}","parts":[]}}}}"#
        ));
    }
    let text = format!(
        r#"{{"format":1,"stream":"{id}","segment":0,"steps":[{}]}}"#,
        lines.join(",")
    );
    let read = |bytes: &[u8]| Segment::from_json(bytes, id, 0);
    let Ok(segment) = read(&crate::seal::json(text.as_bytes())) else {
        return;
    };
    stable(&segment, Segment::to_json, read);
    for step in [0, 7, SEGMENT_STEPS - 1, SEGMENT_STEPS, u64::MAX] {
        assert_eq!(segment.step(step).is_some(), step < SEGMENT_STEPS);
    }
    for entry in &segment.steps[..8] {
        super::tgb::plan(&entry.tgb, entry.seq, b"");
    }
}

pub(super) fn repair(input: &[u8]) {
    each_json(input, |bytes| {
        let version = version_in(bytes);
        let read = |bytes: &[u8]| Repair::from_json(bytes, stream_id(), version);
        if let Ok(repair) = read(bytes) {
            stable(&repair, Repair::to_json, read);
        }
    });
}

/// The first line is the key, the rest the object. A key that does not match is replaced by the right one.
pub(super) fn intent(input: &[u8]) {
    let split = input.iter().position(|&byte| byte == b'\n');
    let (key, body) = split.map_or((&b""[..], input), |at| (&input[..at], &input[at + 1..]));
    let key = String::from_utf8_lossy(key);
    each_json(body, |bytes| {
        if let Ok(entry) = intent::decode(&key, bytes, stream_id()) {
            announced(&entry);
        }
    });
}

/// Classifies the entry of an intent; one that may be committed can be read again.
pub(super) fn announced(entry: &Entry) {
    let (key, bytes) = good(
        intent::encode(stream_id(), entry, 1000).ok_or("none"),
        "its intent",
    );
    let again = good(
        intent::decode(&key, &bytes, stream_id()),
        "an intent is read again",
    );
    assert_eq!(*entry, again);
    if let Some(copy) = intent::carried(&key) {
        assert_eq!(good(copy, "the copy in its key"), bytes);
    }
    for state in [manifest(), producing()] {
        let mut state = state.clone();
        let mut record = fold::record(vec![entry.clone()], CommitId([2; 16]));
        fold::fit(&mut record, &state);
        if !matches!(
            intent::candidacy(&state, &record.entries[0]),
            Candidacy::Never(_)
        ) {
            fold::add(&mut state, &record);
            fold::same_snapshot(&state);
        }
    }
    assert!(entry.producer().is_some());
}
