//! Entries into the fold: it gives every entry a verdict, and the state can be stored, read and queried.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{CommitId, Hash};
use batchweave_core::ids::{Nonce, RequestId};
use batchweave_core::limits::RECORD_BYTES_MAX;
use batchweave_core::manifest::entry::{BatchEntry, Finished, Opened, Sealed, Unsealed};
use batchweave_core::manifest::trial::Trial;
use batchweave_core::manifest::{Entry, FoldError, Hints, Manifest, Record, Writer};
use batchweave_core::proof::History;
use batchweave_core::retention::reclaim::{Reclaim, ReferencedObjects};
use batchweave_core::retention::{self};
use batchweave_core::stream::StreamOrder;
use batchweave_core::{intent, json};

use crate::check::{good, stream, stream_id};

/// The first byte selects the order of steps; then entries, one per line. An empty line ends a record. A
/// batch whose `cursor_before` is all zeros continues from its producer's cursor.
pub(super) fn fold(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let mut config = stream().clone();
    if *first == b'a' {
        (config.order, config.producers) = (StreamOrder::Arrival, Vec::new());
    }
    let bytes = config.to_json();
    let mut state = Manifest::new(config, &bytes);
    let mut history = History::default();
    let mut entries = Vec::new();
    for line in rest.split(|&byte| byte == b'\n').chain([&b""[..]]) {
        if line.is_empty() {
            let mut record = record(std::mem::take(&mut entries), CommitId([1; 16]));
            fit(&mut record, &state);
            let version = state.next_version();
            if let Some(folded) = add(&mut state, &record) {
                history.note(version, &folded);
            }
        } else if let Ok(entry) = serde_json::from_slice::<Entry>(line) {
            entries.push(entry);
        }
    }
    for job in history.jobs() {
        let _ = job.lineage();
    }
    same_snapshot(&state);
    ask(&state);
}

/// A record of these entries, for no particular place.
pub(super) fn record(entries: Vec<Entry>, commit: CommitId) -> Record {
    Record {
        format: 1,
        stream: stream_id(),
        version: 0,
        prev: Hash([0; 32]),
        view: Hash([0; 32]),
        commit,
        writer: Writer {
            name: "fuzz".into(),
            epoch: 0,
        },
        hints: Hints::default(),
        entries,
    }
}

/// Makes `record` the next of `state`.
pub(super) fn fit(record: &mut Record, state: &Manifest) {
    record.format = Record::format_of(&record.entries);
    record.stream = state.stream_id();
    record.version = state.next_version();
    record.prev = state.prev();
    record.view = state.view();
    for entry in &mut record.entries {
        if let Entry::Batch(batch) = entry
            && batch.cursor_before == Hash([0; 32])
            && let Some(producer) = state.producer(&batch.producer)
        {
            batch.cursor_before = producer.cursor.hash();
        }
    }
}

/// Folds a record that continues the state: its verdicts are those that its writer computed, and two folds
/// agree.
pub(super) fn add(
    state: &mut Manifest,
    record: &Record,
) -> Option<batchweave_core::manifest::Folded> {
    let bytes = json::compact(record);
    if bytes.len() > RECORD_BYTES_MAX {
        return None;
    }
    let judged = state.validate_all(&record.entries);
    for entry in &record.entries {
        let _ = intent::candidacy(state, entry);
    }
    let mut other = state.clone();
    let folded = match state.fold(&bytes) {
        Err(FoldError::VersionsUsedUp(_)) => return None,
        folded => good(folded, "a record that fits is folded"),
    };
    assert_eq!(folded.entries, judged, "verdicts before and in the fold");
    assert_eq!(other.fold(&bytes), Ok(folded.clone()));
    assert_eq!(*state, other, "two folds");
    Some(folded)
}

/// Checks that a state is stored and read as the same state.
pub(super) fn same_snapshot(state: &Manifest) {
    let Some((version, bytes)) = state.snapshot() else {
        return;
    };
    let config = Arc::new(state.stream().clone());
    let read = good(
        Manifest::from_snapshot(config, &bytes, version),
        "the snapshot of a state",
    );
    assert_eq!(*state, read, "a state and its snapshot");
    assert_eq!(read.snapshot(), Some((version, bytes)));
}

/// Runs the queries that programs make.
pub(super) fn ask(state: &Manifest) {
    let _ = (state.end(), state.awaited(), state.holding_jobs());
    let _ = (state.waiting(), state.waiting_bytes(), state.mixture());
    assert_eq!(state.waiting_tgbs().count(), state.waiting());
    for step in [state.first_open_step(), state.next_step(), u64::MAX] {
        let _ = state.open_step(step);
    }
    let signs = BTreeMap::default();
    let _ = retention::watermark(state, &BTreeMap::default());
    let reclaim = Reclaim::as_if(state, state.next_step());
    let named = ReferencedObjects::from_manifest(state, state.watermark());
    for (name, job) in state.jobs() {
        let _ = (retention::floor(job, &signs), job.attempts_opened());
        let _ = retention::restart_points(job, &signs);
        let _ = reclaim.job(
            &format!("jobs/{name}@{}/0/marks/000000000001-all.json", job.opened),
            None,
        );
    }
    for (name, producer) in state.producers() {
        let _ = reclaim.list_head(name);
        let _ = state.mixture_at(name, producer.next_seq);
        let mut trial = Trial::new(state);
        for entry in state.open_steps().take(1) {
            if let Some(part) = entry.tgb.parts.first() {
                let _ = reclaim.data(&part.key, &named);
            }
            if !producer.finished {
                trial.commit(name, std::slice::from_ref(&entry.tgb));
            }
        }
    }
}

/// Entries that are likely to be valid in any state: for a decoded snapshot.
pub(super) fn typical(state: &Manifest) -> Vec<Vec<Entry>> {
    let request = |n| RequestId([n; 16]);
    let reason = || "fuzz".to_owned();
    let mut opened: Vec<Entry> = Vec::new();
    let mut batches = Vec::new();
    let mut finished = Vec::new();
    for (name, producer) in state.producers() {
        let (producer_name, epoch) = (name.clone(), producer.epoch);
        opened.push(Entry::Opened(Opened {
            producer: producer_name.clone(),
            instance: reason(),
            nonce: Nonce([9; 8]),
            epoch: epoch.saturating_add(1),
            began: state.next_version(),
        }));
        if let Some(entry) = state.open_steps().next() {
            let first = producer.next_seq;
            let folder = batchweave_core::keys::data_folder(name, epoch, producer.nonce);
            let mut tgb = entry.tgb.clone();
            for part in &mut tgb.parts {
                part.key = format!("{folder}{first:012}-{first:012}.0000000000000000.0.tgb");
            }
            batches.push(Entry::Batch(BatchEntry {
                producer: producer_name.clone(),
                epoch,
                first_seq: first,
                last_seq: first,
                cursor_before: producer.cursor.hash(),
                cursor: producer.cursor.clone(),
                mixture: state.mixture_at(name, first),
                stage: state.stage_at(name, first),
                first_step: None,
                tgbs: vec![tgb],
            }));
        }
        finished.push(Entry::Finished(Finished {
            producer: producer_name,
            epoch,
            final_seq: producer.next_seq.saturating_add(1),
        }));
    }
    let mut people = Vec::new();
    if state.sealed() {
        let (request, reason) = (request(0xf1), reason());
        people.push(Entry::Unsealed(Unsealed { request, reason }));
    }
    people.extend(attempts(state));
    people.extend(administration(state));
    let (request, reason) = (request(0xf2), reason());
    let sealed = vec![Entry::Sealed(Sealed { request, reason })];
    vec![people, batches, finished, opened, sealed]
}

fn attempts(state: &Manifest) -> impl Iterator<Item = Entry> {
    use batchweave_core::ids::AttemptId;
    use batchweave_core::manifest::entry::AttemptOpened;
    state.jobs().iter().map(|(name, job)| {
        Entry::AttemptOpened(AttemptOpened {
            job: name.clone(),
            opened: job.opened,
            attempt: AttemptId([0xf3; 16]),
            predecessor: job.attempts.last().map(|attempt| attempt.id),
            parent: None,
            inherited: None,
            start: state.watermark(),
            dp_size: 1,
            mesh: Vec::new(),
        })
    })
}

fn stage(state: &Manifest) -> Option<Entry> {
    use batchweave_core::manifest::entry::Stage;
    let name = "long".parse().ok()?;
    let open = state.producers().filter(|(_, p)| !p.finished);
    let named = state.stream().producers.iter();
    let unopened = named.filter(|name| state.producer(name).is_none());
    let opened = open.map(|(name, p)| (name.clone(), p.next_seq));
    Some(Entry::Stage(Stage {
        request: RequestId([0xf6; 16]),
        id: state.stages().newest().saturating_add(1),
        name,
        from: unopened
            .map(|name| (name.clone(), 0))
            .chain(opened)
            .collect(),
        rows_per_slice: 1,
        seq_len: 32,
        form: String::new(),
        fingerprint: batchweave_core::ids::Hash::sha256(b"stage"),
        mixture: None,
    }))
}

fn administration(state: &Manifest) -> Vec<Entry> {
    use batchweave_core::manifest::entry::{Mixture, Watermark};
    let from = state
        .producers()
        .map(|(name, p)| (name.clone(), p.next_seq));
    let entries = [
        Entry::Mixture(Mixture {
            request: RequestId([0xf4; 16]),
            id: state.mixture().id.saturating_add(1),
            from: from.collect(),
            spec: serde_json::Value::Null,
            why: None,
        }),
        Entry::Watermark(Watermark {
            step: state.next_step(),
            jobs: state.holding_jobs(),
            request: Some(RequestId([0xf5; 16])),
        }),
    ];
    entries.into_iter().chain(stage(state)).collect()
}
