//! Messages of a faulty daemon are refused by name, and nothing leaks. One test, because it counts descriptors.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod fake;

use std::fs;

use batchweave_client::Reader;
use batchweave_wire::{BatchMessage, DaemonMessage, SliceRef};

use fake::{Daemon, PATIENCE, Session, folder, options};

type Fault = fn(&Session);

fn one(session: &Session, change: impl Fn(&mut SliceRef)) {
    let mut slices = session.fill(0);
    slices.iter_mut().for_each(change);
    session.send(&DaemonMessage::Batch(BatchMessage {
        step: 0,
        first: 0,
        of: 2,
        slices,
    }));
}

/// Each fault and its error.
const FAULTS: &[(Fault, &str, &str)] = &[
    (
        |s| s.connection.send(b"GET / HTTP/1.1", None).unwrap(),
        "bad_message",
        "not a BatchWeave message",
    ),
    (
        |s| s.connection.send(&[b'x'; 70_000], None).unwrap(),
        "bad_message",
        "larger than 64 KiB",
    ),
    (
        |s| {
            s.connection
                .send(b"BWSK\x02\0\x48\0\x10\0\0\0\0\0\0\0", None)
                .unwrap()
        },
        "protocol_version",
        "install client and daemon of one release",
    ),
    (
        |s| one(s, |slice| slice.segment = 8),
        "bad_message",
        "segment 8 is not known",
    ),
    (
        |s| one(s, |slice| slice.layout = 4),
        "bad_message",
        "layout 4 is not known",
    ),
    (
        |s| one(s, |slice| slice.length = 128),
        "bad_message",
        "for 128 bytes",
    ),
    (
        |s| one(s, |slice| slice.offset = 1 << 40),
        "bad_message",
        "not a range of a segment",
    ),
    (
        |s| one(s, |slice| slice.slice += 1),
        "bad_message",
        "not the slices announced in the welcome",
    ),
    (
        |s| s.send_with_file(&DaemonMessage::Marked(1)),
        "bad_message",
        "only with one",
    ),
    (
        |s| {
            s.send(&DaemonMessage::Segment(batchweave_wire::SegmentMessage {
                id: 9,
                bytes: 64,
            }))
        },
        "bad_message",
        "only with one",
    ),
    (
        |s| {
            s.send_with_file(&DaemonMessage::Segment(batchweave_wire::SegmentMessage {
                id: 9,
                bytes: 64,
            }))
        },
        "system",
        "not a memfd",
    ),
];

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .matches("memfd:fake")
        .count()
}

fn refuse(reader: &mut Reader, session: &Session, (fault, name, says): &(Fault, &str, &str)) {
    fault(session);
    let error = reader.next(PATIENCE).unwrap_err();
    assert_eq!(error.name(), *name, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn faults_have_names_and_nothing_leaks() {
    let (_dir, path) = folder();
    let daemon = Daemon::bind(&path, 1);
    let round = || {
        for fault in FAULTS {
            let (mut reader, session) = daemon.connect(options(&path));
            refuse(&mut reader, &session, fault);
        }
    };
    round();
    let before = descriptors();
    (0..5).for_each(|_| round());
    assert_eq!((descriptors(), mappings()), (before, 0));

    // A long run: every step's frames are released, and nothing grows.
    let (mut reader, session) = daemon.connect(options(&path));
    let mut flat = None;
    let mut buffer = vec![0; 64 << 10];
    for step in 0..2000 {
        session.step(step);
        let batch = reader.next(PATIENCE).unwrap().unwrap();
        assert_eq!(batch.step(), step);
        drop(batch);
        while !session.is_silent() {
            session.connection.recv(&mut buffer).unwrap();
        }
        let now = (descriptors(), mappings());
        assert_eq!(*flat.get_or_insert(now), now, "after step {step}");
    }
    drop((reader, session));
    assert_eq!((descriptors(), mappings()), (before, 0));
}
