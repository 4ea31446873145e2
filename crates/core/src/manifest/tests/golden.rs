//! Golden files of the stored JSON: what version 1 wrote stays readable and stays the same.
//! `BLESS=1` rewrites them, for a new format only.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::ids::JobName;
use crate::manifest::repair::Repair;

fn golden(name: &str, bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
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

/// A log in which every kind of entry is valid once.
fn history() -> Bench {
    let mut b = Bench::new(Order::Lanes, &["a", "b"]);
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
            .all(|e| *e == Ok(judge::Verdict::Applies)),
        "{folded:?}"
    );
    b
}

#[test]
fn records_and_snapshot_are_as_version_1_wrote_them() {
    let b = history();
    golden("stream-v1.json", &b.m.stream().to_json());
    golden("log-v1.jsonl", &b.records.concat());
    golden("snapshot-v1-digest.json", &b.m.snapshot().unwrap().1);
    let (stream, bad) = (b.m.stream_id(), Hash::of(b"bad"));
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
    assert_eq!(written, read("snapshot-v1-digest.json"));
}

/// The first builds wrote neither a digest nor since when a lane has its turn.
#[test]
fn a_snapshot_without_a_digest_is_read_too() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let old = std::fs::read(folder.join("snapshot-v1.json")).unwrap();
    let b = history();
    let (version, written) = b.m.snapshot().unwrap();
    let stream = std::sync::Arc::new(b.m.stream().clone());
    let read = Manifest::from_snapshot(stream, &old, version).unwrap();
    let written = String::from_utf8(written).unwrap();
    let turn_since = format!("\"turn_since\":{version},");
    assert!(written.contains(&turn_since), "{written}");
    let without = written.replacen(&turn_since, "", 1);
    let digest = |text: &str| text.rfind(",\"digest\"").unwrap();
    let again = String::from_utf8(read.snapshot().unwrap().1).unwrap();
    assert_eq!(again[..digest(&again)], without[..digest(&without)]);
}

#[test]
fn a_segment_is_as_version_1_wrote_it() {
    let mut b = Bench::new(Order::Arrival, &[]);
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
        Hash::of(record),
        "it names the record that filled it"
    );
}
