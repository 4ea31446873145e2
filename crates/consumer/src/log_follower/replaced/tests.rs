//! A daemon whose log is another one at the next poll.

use batchweave_arena::Peer;
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{AttemptId, Hash as Sha, StreamId};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_core::tgb::{Digest, ObjectPart, TgbRecord};
use batchweave_daemon::config::ByteSize;
use batchweave_log::create;
use batchweave_store::Store;
use batchweave_store::memory::MemoryStore;
use batchweave_testkit::{TestProducer, open_log};
use batchweave_wire::{Begin, DaemonMessage, ErrorName, Hello, Mode};
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{ArenaTable, JobTable};
use crate::context::Context;
use crate::engine::{Limits, SessionId};
use crate::fetch::Fetcher;
use crate::job::attempts::{open_attempt, open_job};
use crate::job::deliveries::Deliveries;
use crate::job::membership::AttemptRequest;
use crate::metrics::Metrics;
use crate::node::{Outgoing, Parts};
use crate::resources::Resources;
use crate::segments::{Growth, SegmentMaker};

const ID: AttemptId = AttemptId([1; 16]);

fn config() -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([9; 16]),
        slices: 2,
        order: StreamOrder::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "test".into(),
            fingerprint: Sha([1; 32]),
        },
        seq_len: 1,
        rows_per_slice: 1,
        created: "2026-01-01T00:00:00Z".into(),
        form: None,
        parent: None,
    }
}

fn job() -> JobTable {
    JobTable {
        name: "llm".into(),
        ..JobTable::default()
    }
}

/// A stream with the job, its attempt, and a batch for each digest.
async fn stream(digests: &[u8]) -> (Arc<dyn Store>, Log) {
    let store: Arc<dyn Store> = MemoryStore::new();
    let _ = create(&store, &config()).await.unwrap();
    let mut log = open_log(&store, 1).await;
    let table = job();
    open_job(&mut log, &table.name, &table, "test")
        .await
        .unwrap();
    let request = AttemptRequest {
        job: "llm".parse().unwrap(),
        opened: 0,
        id: ID,
        parent: None,
        stream: None,
        start: 0,
        begin: Begin::Stated,
        dp_size: 2,
        yields: false,
    };
    open_attempt(&mut log, &request, "test").await.unwrap();
    let mut producer = TestProducer::open(open_log(&store, 2).await, "p", "test").await;
    for digest in digests {
        let seq = producer.next_seq();
        let part = ObjectPart {
            key: producer.data_key((seq, seq), 0),
            offset: 0,
            length: 256,
            first_slice: 0,
            slices: 2,
            frame_bytes: Some(128),
            index: None,
        };
        let tgb = TgbRecord {
            rows: 2,
            tokens: 2,
            digest: Digest([*digest; 32]),
            parts: vec![part],
            provenance: None,
            cost: None,
        };
        let committed = producer.try_commit(vec![tgb], Cursor::default()).await;
        committed.unwrap();
    }
    log.catch_up().await.unwrap();
    (store, log)
}

fn node(store: Arc<dyn Store>, log: &Log) -> Arc<Node> {
    let metrics = Arc::new(Metrics::new(&Registry::new()).unwrap());
    let arena = ArenaTable {
        bytes: ByteSize(64 << 10),
        segment_bytes: ByteSize(64 << 10),
        ..ArenaTable::default()
    };
    let segments = SegmentMaker::new(&arena).unwrap();
    let first_segment = segments.create().unwrap();
    let deliveries = Deliveries::channel(metrics.clone()).0;
    let resources = Arc::new(Resources {
        stream: config(),
        instance: [3; 16],
        store,
        store_health: Arc::default(),
        context: Arc::new(Context::system()),
        metrics,
        states: Arc::default(),
        values: Arc::default(),
        stop: CancellationToken::new(),
    });
    let parts = Parts {
        job: job(),
        requests: mpsc::channel(1).0,
        deliveries,
        fetcher: Fetcher::new(Arc::clone(&resources), 1, 1 << 20),
        resources,
        limits: Limits {
            ahead_bytes: 1 << 15,
            refill_bytes: 1 << 13,
            steps_ahead: 4,
            segment_bytes: 64 << 10,
            arena_bytes: 64 << 10,
        },
        segments,
        first_segment,
        growth: Growth {
            after: std::time::Duration::ZERO,
            ranks: 0,
        },
    };
    Node::new(parts, Head::from_manifest(log.manifest()))
}

fn join(node: &Arc<Node>, dp_rank: u32, mode: Mode, next_step: Step) -> SessionId {
    let mut hello = Hello::new("test", next_step);
    (hello.dp_rank, hello.dp_size, hello.mode) = (dp_rank, 2, mode);
    (hello.job, hello.attempt) = (Some("llm".into()), Some(ID.to_string()));
    node.join(&hello, Peer { uid: 0, pid: None }).unwrap().0
}

fn error(node: &Node, id: SessionId) -> Option<String> {
    let (outbox, _) = node.lock().take_messages(id);
    outbox.into_iter().find_map(|message| match message {
        Outgoing::Message(DaemonMessage::Error(fault)) => {
            assert_eq!(fault.known_name(), Some(ErrorName::StreamRewound));
            Some(fault.message)
        }
        _ => None,
    })
}

#[tokio::test]
async fn another_log_stops_the_ranks_that_have_what_it_does_not_hold() {
    let (store, mut log) = stream(&[1, 2, 3, 4, 5, 6]).await;
    let (_, mut other) = stream(&[1, 2, 3, 40, 50]).await;
    for (marked, witness) in [(false, "given step 3"), (true, "marks or progress")] {
        let node = node(store.clone(), &log);
        for step in 0..6 {
            node.lock().note_step(step, Digest([step as u8 + 1; 32]), 0);
        }
        let has = join(&node, 0, Mode::Resume, 4);
        let new = join(&node, 1, Mode::Join, 0);
        if marked {
            let key = keys::mark(&"llm".parse().unwrap(), 0, 0, 6, Some(0));
            let _ = store.create(&key, "a mark".into()).await.unwrap();
        }
        let mut lookups = Lookups::new(node.clone());
        let mut followed = FollowedLog::new(&log);
        followed
            .handle_replacement(&mut log, &node, &mut lookups)
            .await
            .unwrap();
        assert_eq!(error(&node, has), None, "the same log");
        followed
            .handle_replacement(&mut other, &node, &mut lookups)
            .await
            .unwrap();
        let text = error(&node, has).unwrap();
        assert!(text.contains(witness), "{text}");
        assert_eq!(error(&node, new).is_some(), marked, "it has nothing itself");
        let state = node.lock();
        assert_eq!(state.head.next_step, 5);
        let known: Vec<Step> = state.known_steps().iter().map(|(step, _)| *step).collect();
        assert_eq!(known, [0, 1, 2], "of both logs");
    }
}
