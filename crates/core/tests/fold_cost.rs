//! The cost of a fold for growing numbers of producers. Prints; asserts nothing about time. `cargo test
//! --release -p batchweave-core --test fold_cost -- --ignored --nocapture`
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::expect_used)] // It measures time; it is a test.

use std::hint::black_box;
use std::time::Instant;

use batchweave_core::cursor::Cursor;
use batchweave_core::fixtures;
use batchweave_core::ids::{CommitId, Nonce, ProducerName};
use batchweave_core::keys;
use batchweave_core::manifest::entry::{BatchEntry, Opened};
use batchweave_core::manifest::{Entry, Hints, Manifest, Record, Writer};
use batchweave_core::stream::StreamOrder;
use batchweave_core::tgb::Digest;

fn empty() -> Manifest {
    let config = fixtures::stream([7; 16], StreamOrder::Arrival, Vec::new());
    let json = config.to_json();
    Manifest::new(config, &json)
}

fn record(m: &Manifest, entries: Vec<Entry>) -> Vec<u8> {
    let writer = Writer {
        name: "cost".into(),
        epoch: 0,
    };
    let record = Record {
        format: 1,
        stream: m.stream_id(),
        version: m.next_version(),
        prev: m.prev(),
        view: m.view(),
        commit: CommitId([1; 16]),
        writer,
        hints: Hints::default(),
        entries,
    };
    record.to_json()
}

fn batch(m: &Manifest, producer: &ProducerName) -> Entry {
    let state = m.producer(producer).expect("opened");
    let seq = state.next_seq;
    let key = keys::data(producer, 1, state.nonce, (seq, seq), 0, 0);
    let tgb = fixtures::tgb(&key, 0, 1024, Digest([1; 32]));
    Entry::Batch(BatchEntry {
        producer: producer.clone(),
        epoch: 1,
        first_seq: seq,
        last_seq: seq,
        cursor_before: state.cursor.hash(),
        cursor: Cursor(serde_json::json!({ "row": seq + 1 })),
        mixture: 0,
        stage: 0,
        first_step: None,
        tgbs: vec![tgb],
    })
}

fn fold(m: &mut Manifest, bytes: &[u8]) {
    let folded = m.fold(bytes).expect("readable");
    assert!(folded.entries.iter().all(Result::is_ok), "{folded:?}");
}

fn with_producers(count: usize) -> (Manifest, Vec<ProducerName>) {
    let mut m = empty();
    let names: Vec<ProducerName> = (0..count)
        .map(|n| format!("tok-{n:04}").parse().expect("a name"))
        .collect();
    for names in names.chunks(64) {
        let opened = |producer: &ProducerName| {
            Entry::Opened(Opened {
                producer: producer.clone(),
                instance: "host:1".into(),
                nonce: Nonce([1; 8]),
                epoch: 1,
                began: 0,
            })
        };
        let bytes = record(&m, names.iter().map(opened).collect());
        fold(&mut m, &bytes);
    }
    (m, names)
}

#[test]
#[ignore = "prints times"]
fn cost_by_producers() {
    println!(
        "producers   fold us   clone us   validate_all x1000 ms   fold x1000 ms   snapshot ms"
    );
    for count in [1, 16, 256, 1024, 4096] {
        let (mut m, names) = with_producers(count);
        let rounds = 2000;
        let mut seconds = 0.0;
        for n in 0..rounds {
            let bytes = record(&m, vec![batch(&m, &names[n * 7 % count])]);
            let start = Instant::now();
            fold(&mut m, &bytes);
            seconds += start.elapsed().as_secs_f64();
        }
        let start = Instant::now();
        for _ in 0..100 {
            black_box(m.clone());
        }
        let clone = start.elapsed().as_secs_f64() / 100.0;
        let some = &names[..count.min(1000)];
        let entries: Vec<_> = some.iter().map(|name| batch(&m, name)).collect();
        let start = Instant::now();
        assert!(m.validate_all(&entries).iter().all(Result::is_ok));
        let judge = start.elapsed().as_secs_f64();
        let bytes = record(&m, entries);
        let start = Instant::now();
        fold(&mut m, &bytes);
        let large = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let snapshot = m.snapshot().expect("folded").1.len();
        println!(
            "{count:9} {:9.1} {:10.2} {:20.1} {:15.1} {:13.1} ({snapshot} bytes)",
            seconds / rounds as f64 * 1e6,
            clone * 1e6,
            judge * 1e3,
            large * 1e3,
            start.elapsed().as_secs_f64() * 1e3,
        );
    }
}
