//! Refusals at start and of hellos, with their messages.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use batchweave_client::{Client, ClientError, ConnectOptions, ErrorName, Start};
use batchweave_consumer::{RunError, run_on};
use batchweave_daemon::Exit;
use batchweave_daemon::config::ByteSize;
use batchweave_store::Op;
use batchweave_store::memory::MemoryStore;
use batchweave_store::testing::faults::{Fault, FaultStore};
use tokio_util::sync::CancellationToken;

use crate::serving::{TIMEOUT, options, read_all};
use crate::support::{Daemon, Stream, consumer};

pub(crate) async fn refused(options: ConnectOptions) -> ClientError {
    let connect = || {
        Client::connect(options)
            .map(drop)
            .expect_err("must be refused")
    };
    tokio::task::spawn_blocking(connect).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hellos_that_do_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(10, 10).await;
    stream.finish().await;
    let mut config = consumer(dir.path());
    config.job.name = "llm".into();
    let daemon = Daemon::start(stream.store.clone(), config);
    let good = options(&daemon.socket, 0, 4, 0);
    let reader = tokio::task::spawn_blocking({
        let good = good.clone();
        move || Client::connect(good).unwrap()
    })
    .await
    .unwrap();

    let twice = refused(good.clone()).await;
    assert_eq!(
        twice.name(),
        ErrorName::DuplicateCoordinate.name(),
        "{twice}"
    );
    let mesh = refused(ConnectOptions {
        dp_size: 3,
        attempt: Some("b".repeat(32)),
        ..good.clone()
    })
    .await;
    assert_eq!(mesh.name(), ErrorName::BadMesh.name(), "{mesh}");
    assert_eq!(mesh.to_string().matches("choose").count(), 1, "{mesh}");
    assert!(mesh.to_string().ends_with("1, 2, 4"), "{mesh}");
    let outside = refused(ConnectOptions {
        dp_rank: 4,
        ..good.clone()
    })
    .await;
    assert_eq!(outside.name(), ErrorName::BadHello.name(), "{outside}");
    let disagrees = refused(ConnectOptions {
        dp_rank: 1,
        dp_size: 2,
        ..good.clone()
    })
    .await;
    assert_eq!(
        disagrees.name(),
        ErrorName::AttemptDisagrees.name(),
        "{disagrees}"
    );
    let ended = refused(ConnectOptions {
        attempt: Some("b".repeat(32)),
        start: Start::Step(11),
        ..good.clone()
    })
    .await;
    assert_eq!(ended.name(), ErrorName::StreamEnded.name(), "{ended}");
    let job = refused(ConnectOptions {
        dp_rank: 1,
        job: Some("other".into()),
        ..good.clone()
    })
    .await;
    assert_eq!(job.name(), ErrorName::UnknownJob.name(), "{job}");
    let state = reader
        .state_dict()
        .replace(&reader.stream_id(), "00000000-0000-4000-8000-000000000000");
    let other = refused(ConnectOptions {
        dp_rank: 1,
        start: Start::State(state),
        ..good.clone()
    })
    .await;
    assert_eq!(other.name(), ErrorName::OtherStream.name(), "{other}");
    drop(reader);
    assert_eq!(
        read_all(good, 4, 0).await.unwrap(),
        10,
        "the coordinate is free again"
    );
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_larger_than_a_segment_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(1, 1).await;
    let mut config = consumer(dir.path());
    config.arena.segment_bytes = ByteSize(512);
    config.arena.bytes = ByteSize(4096);
    let daemon = Daemon::start(stream.store.clone(), config);
    let options = options(&daemon.socket, 0, 1, 0);
    let read = move || {
        Client::connect(options)
            .unwrap()
            .next(TIMEOUT)
            .map(drop)
            .expect_err("too large")
    };
    let error = tokio::task::spawn_blocking(read).await.unwrap();
    assert_eq!(error.name(), ErrorName::ArenaTooSmall.name(), "{error}");
    assert!(error.to_string().contains("arena.segment_bytes"), "{error}");
    daemon.stop().await.unwrap();
}

/// Otherwise a rank would hold the first slices and wait for the others for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_larger_than_the_arena_is_named_with_the_size_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(1, 1).await;
    let mut config = consumer(dir.path());
    config.arena.segment_bytes = ByteSize(1024);
    config.arena.bytes = ByteSize(3072);
    let daemon = Daemon::start(stream.store.clone(), config);
    let options = options(&daemon.socket, 0, 1, 0);
    let read = move || {
        let mut reader = Client::connect(options).unwrap();
        reader.next(TIMEOUT).map(drop).expect_err("too large")
    };
    let error = tokio::task::spawn_blocking(read).await.unwrap();
    assert_eq!(error.name(), ErrorName::ArenaTooSmall.name(), "{error}");
    let text = error.to_string();
    assert!(text.contains("4096 bytes, the arena has 3072"), "{text}");
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn starts_that_can_not_be() {
    let dir = tempfile::tempdir().unwrap();
    let stream = Stream::new(1).await;
    let end = |config| run_on(stream.store.clone(), config, CancellationToken::new());

    let mut huge = consumer(dir.path());
    huge.arena.bytes = ByteSize(1 << 50);
    let error = end(huge).await.expect_err("a pebibyte");
    assert!(matches!(error, RunError::ArenaTooLarge(_)), "{error}");
    assert_eq!(error.exit(), Exit::Config);

    let mut folder = consumer(dir.path());
    folder.socket.path = dir.path().join("no/such/folder/s.sock");
    let error = end(folder).await.expect_err("no folder");
    assert!(error.to_string().contains("mkdir -p"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_heard_while_the_store_hangs_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let stream = Stream::new(1).await;
    let silent = FaultStore::new(stream.store.clone(), 1, []);
    silent.inject(Op::Get, "stream.json", Fault::Delay(Duration::MAX));
    let stop = CancellationToken::new();
    let run = run_on(Arc::new(silent.clone()), consumer(dir.path()), stop.clone());
    let ask = async {
        while silent.struck() == 0 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let both = Box::pin(async { tokio::join!(run, ask).0 });
    let ended = tokio::time::timeout(Duration::from_mins(1), both).await;
    ended.expect("it does not hear").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_daemon_a_socket_and_stale_files_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(3, 3).await;
    stream.finish().await;
    let config = consumer(dir.path());
    // A killed daemon leaves a socket file on which no process listens.
    drop(UnixListener::bind(&config.socket.path).unwrap());
    assert!(config.socket.path.exists());
    let daemon = Daemon::start(stream.store.clone(), config.clone());
    assert_eq!(
        read_all(options(&daemon.socket, 0, 1, 0), 1, 0)
            .await
            .unwrap(),
        3
    );

    let second = run_on(stream.store.clone(), config, CancellationToken::new());
    let error = second.await.expect_err("the socket is served");
    assert!(error.to_string().contains("second daemon"), "{error}");
    assert_eq!(error.exit(), Exit::Config);
    let socket = daemon.socket.clone();
    daemon.stop().await.unwrap();
    assert!(!socket.exists(), "a stopped daemon leaves no file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_comes_later_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::new();
    let daemon = Daemon::start(store.clone(), consumer(dir.path()));
    let impatient = ConnectOptions {
        timeout: Duration::from_secs(3),
        ..options(&daemon.socket, 0, 1, 0)
    };
    let error = refused(impatient).await;
    let text = error.to_string();
    for part in [
        "daemon_starting",
        "waiting for the stream",
        "start a producer",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let rank = read_all(options(&daemon.socket, 0, 1, 0), 1, 0);
    while !daemon.socket.exists() {
        tokio::task::yield_now().await;
    }
    let mut stream = Stream::on(store, 1).await;
    stream.commit(3, 3).await;
    stream.finish().await;
    assert_eq!(rank.await.unwrap(), 3);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_below_the_watermark_is_told_where_the_data_begins() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(10, 5).await;
    stream.finish().await;
    stream.publish_watermark(4).await;
    let mut config = consumer(dir.path());
    config.job.start = 4;
    let daemon = Daemon::start(stream.store.clone(), config);
    let below = refused(options(&daemon.socket, 0, 1, 3)).await;
    assert_eq!(below.name(), ErrorName::StepReclaimed.name(), "{below}");
    let text = below.to_string();
    assert!(text.contains("step 3 is below the watermark 4"), "{text}");
    assert!(text.contains("start at step 4 or later"), "{text}");
    let from = options(&daemon.socket, 0, 1, 4);
    assert_eq!(read_all(from, 1, 0).await.unwrap(), 10);
    daemon.stop().await.unwrap();
}
