//! Golden files of the stored JSON: objects of version 1 stay readable and stay the same. `BLESS=1`
//! rewrites them, for a new format only.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::ids::{AttemptId, JobName};
use crate::intent;
use crate::manifest::bundle::{Bundle, RecentRecords};
use crate::manifest::fork::Border;
use crate::manifest::repair::Repair;
use crate::proof::{Ledger, LedgerEntry, LedgerPlace, ReaderCoverage};
use crate::retention::{Mark, Progress};

pub(super) use crate::manifest::testing::golden;

#[test]
fn the_state_of_a_fork() {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b"]);
    b.one(b.opened("a")).unwrap();
    b.one(b.opened("b")).unwrap();
    b.commit("a", 2);
    let before = b.m.clone();
    let folded = b.commit("b", 3);
    // Steps 0 to 3 are a:0, b:0, a:1, b:1, and b:2 waits.
    let mut border = Border::new(&b.m, Some(&folded), 3);
    border.see(&before, &folded);
    let (state, _) = border.state().unwrap();
    golden("fork-v1.json", &state.to_json());
}

/// A log in which every kind of entry is valid once.
fn history() -> Bench {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b"]);
    let job: JobName = "llm".parse().unwrap();
    b.one(b.opened("a")).unwrap();
    b.one(b.opened("b")).unwrap();
    b.commit("a", 2);
    b.commit("b", 1);
    let opened = b.m.next_version();
    let entries = vec![
        Entry::JobOpened(JobOpened {
            request: request(1),
            job: job.clone(),
            start: 0,
            keep: 2,
            holds: true,
            paces: true,
            lease_seconds: Some(3600),
        }),
        Entry::AttemptOpened(AttemptOpened {
            job: job.clone(),
            opened,
            attempt: attempt(1),
            predecessor: None,
            parent: None,
            inherited: None,
            start: 0,
            dp_size: 2,
            mesh: vec![Axis {
                name: "dp".into(),
                size: 2,
            }],
        }),
        Entry::AttemptOpened(AttemptOpened {
            job: job.clone(),
            opened,
            attempt: attempt(2),
            predecessor: Some(attempt(1)),
            parent: Some(Parent {
                attempt: 0,
                step: 1,
            }),
            inherited: None,
            start: 1,
            dp_size: 4,
            mesh: Vec::new(),
        }),
        Entry::Quarantined(Quarantined {
            request: request(2),
            first: 5,
            last: 9,
            reason: "bad data".into(),
        }),
        Entry::Mixture(Mixture {
            request: request(3),
            id: 1,
            from: [(name("a"), 4)].into(),
            spec: json!({"web": 0.7}),
            why: None,
        }),
        Entry::Sealed(Sealed {
            request: request(4),
            reason: "pause".into(),
        }),
        Entry::Unsealed(Unsealed {
            request: request(5),
            reason: "go on".into(),
        }),
        Entry::Watermark(Watermark {
            step: 1,
            jobs: vec![HoldingJob {
                job: job.clone(),
                opened,
                attempt: Some(1),
            }],
            request: None,
        }),
        Entry::QuarantineLifted(QuarantineLifted {
            request: request(6),
            quarantine: request(2),
        }),
        Entry::Finished(Finished {
            producer: name("b"),
            epoch: 1,
            final_seq: 1,
        }),
        Entry::Retired(Retired {
            request: request(7),
            producer: name("a"),
            epoch: 1,
            reason: "its machine is gone".into(),
        }),
    ];
    let folded = b.fold(entries);
    assert!(
        folded
            .entries
            .iter()
            .all(|e| *e == Ok(rules::Validity::Applies)),
        "{folded:?}"
    );
    b
}

#[test]
fn records_and_snapshot_are_as_version_1_wrote_them() {
    let b = history();
    golden("stream-v1.json", &b.m.stream().to_json());
    golden("log-v1.jsonl", &b.records.concat());
    golden("snapshot-v1.json", &b.m.snapshot().unwrap().1);
    let (stream, bad) = (b.m.stream_id(), Hash::sha256(b"bad"));
    let repair = Repair {
        format: 1,
        stream,
        version: 7,
        bad,
        reason: "test".into(),
    };
    golden("repair-v1.json", &repair.to_json());
    assert_eq!(
        Repair::from_json(&repair.to_json(), stream, 7).unwrap(),
        repair
    );
    assert!(Repair::from_json(&repair.to_json(), stream, 8).is_err());
}

#[test]
fn the_golden_log_folds_to_the_golden_snapshot() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let stream_json = read("stream-v1.json");
    let stream = crate::stream::StreamConfig::from_json(&stream_json, "stream.json").unwrap();
    let mut manifest = Manifest::new(stream, &stream_json);
    for record in read("log-v1.jsonl").split_inclusive(|byte| *byte == b'\n') {
        assert_eq!(manifest.fold(record).unwrap().void, None);
    }
    let written = manifest.snapshot().unwrap().1;
    assert_eq!(written, read("snapshot-v1.json"));
}

#[test]
fn a_segment_is_as_version_1_wrote_it() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("a")).unwrap();
    b.commit("a", 200);
    let segments: Vec<_> = (0..5).flat_map(|_| b.commit("a", 200).segments).collect();
    let bytes = segments[0].to_json();
    let ends = [&bytes[..700], b"\n...\n", &bytes[bytes.len() - 600..]].concat();
    golden("segment-v1-ends.txt", &ends);
    let read = Segment::from_json(&bytes, b.m.stream_id(), 0).unwrap();
    assert_eq!(read, segments[0]);
    let filled = read.filled.unwrap();
    let record = &b.records[filled.version as usize];
    assert_eq!(
        filled.record,
        Hash::sha256(record),
        "it names the record that filled it"
    );
}

#[test]
fn a_bundle_is_as_version_1_wrote_it() {
    let b = history();
    let mut recent = RecentRecords::default();
    for (version, record) in (0..).zip(&b.records).take(3) {
        recent.push(version, record.clone().into());
    }
    let bundle = recent.bundle(b.m.stream_id(), 3).unwrap();
    golden("bundle-v1.json", &bundle.to_json());
    let read = Bundle::from_json(&bundle.to_json(), b.m.stream_id(), 2).unwrap();
    let records: Vec<_> = read.records_from(0).unwrap().collect();
    assert_eq!(records, b.records[..3]);
}

/// The content of the store under each key, line by line.
fn stored(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let pairs = text.lines().map(|line| line.split_once(' ').unwrap());
    pairs
        .map(|(key, body)| (key.to_owned(), format!("{body}\n").into_bytes()))
        .collect()
}

fn lines(objects: &[(String, Vec<u8>)]) -> Vec<u8> {
    let lines = objects
        .iter()
        .map(|(key, body)| [key.as_bytes(), b" ", body].concat());
    lines.collect::<Vec<_>>().concat()
}

#[test]
fn intents_are_as_version_1_wrote_them() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    let opened = b.opened("a");
    b.one(opened.clone()).unwrap();
    b.commit("a", 2);
    let entries = [opened, Entry::Batch(b.batch("a", 3)), b.finish("a")];
    let stream = b.m.stream_id();
    let written = |max| {
        let encoded = |entry| intent::encode(stream, entry, max).unwrap();
        entries.iter().map(encoded).collect::<Vec<_>>()
    };
    golden("intents-v1.txt", &lines(&written(0)));
    // Another release of the compression may pack the copy in a key in another way: it must only be
    // readable.
    if std::env::var_os("BLESS").is_some() {
        golden("intents-v1-carried.txt", &lines(&written(1000)));
    }
    for name in ["intents-v1.txt", "intents-v1-carried.txt"] {
        let old = stored(name);
        assert_eq!(old.len(), entries.len());
        for ((key, body), entry) in old.iter().zip(&entries) {
            assert_eq!(&intent::decode(key, body, stream).unwrap(), entry);
            let copy = intent::carried(key).map(Result::unwrap);
            assert_eq!(copy.is_some(), name.contains("carried"));
            assert!(copy.is_none_or(|copy| copy == *body), "{key}");
        }
    }
}

#[test]
fn objects_of_jobs_are_as_version_1_wrote_them() {
    let stream = Bench::new(StreamOrder::Arrival, &[]).m.stream_id();
    let (job, id): (JobName, _) = ("llm".parse().unwrap(), AttemptId([7; 16]));
    let mark = |dp_rank| Mark {
        format: 1,
        stream,
        job: job.clone(),
        opened: 4,
        attempt: 2,
        id,
        dp_rank,
        dp_size: 4,
        step: 500,
        state: "{\"batchweave\":\"{\\\"format\\\":1}\"}".into(),
    };
    let progress = Progress {
        format: 1,
        stream,
        job: job.clone(),
        opened: 4,
        attempt: 2,
        id,
        node: "a1".into(),
        first: 0,
        last: 3,
        step: 500,
        at: "2026-11-21T00:00:00Z".into(),
    };
    let ledger = Ledger {
        format: 1,
        stream,
        job: job.clone(),
        opened: 4,
        attempt: 2,
        id,
        node: "a1".into(),
        entries: vec![LedgerEntry {
            dp_rank: 3,
            rank: Some(7),
            first_slice: 6,
            slices: 2,
            from: 498,
            to: 501,
            resumed: true,
            crcs: vec![1, 0xffff_ffff, 0xa0, 7],
            skipped: vec![(499, 500)],
        }],
        told: Vec::new(),
        states: Vec::new(),
    };
    let told = |dp_rank, rank, to| ReaderCoverage { dp_rank, rank, to };
    let later = Ledger {
        told: vec![told(2, None, 400), told(3, Some(7), 501)],
        ..ledger.clone()
    };
    let at = |n| crate::keys::ledger(&job, 4, 2, 498, "a1", n);
    let written = [
        (mark(Some(3)).key(), mark(Some(3)).to_json()),
        (mark(None).key(), mark(None).to_json()),
        (progress.key(), progress.to_json()),
        (at(0), ledger.to_json()),
        (at(1), later.to_json()),
    ];
    golden("jobs-v1.txt", &lines(&written));
    let old = stored("jobs-v1.txt");
    let read = |n: usize| (old[n].1.as_slice(), old[n].0.as_str());
    for (n, expected) in [mark(Some(3)), mark(None)].into_iter().enumerate() {
        let (body, key) = read(n);
        assert_eq!(Mark::from_json(body, key, stream).unwrap(), expected);
    }
    let (body, key) = read(2);
    assert_eq!(Progress::from_json(body, key, stream).unwrap(), progress);
    let place = LedgerPlace {
        stream,
        job: &job,
        opened: 4,
        attempt: 2,
    };
    for (n, expected) in [(3, ledger), (4, later)] {
        let (body, key) = read(n);
        assert_eq!(Ledger::from_json(body, key, &place).unwrap(), expected);
    }
}
