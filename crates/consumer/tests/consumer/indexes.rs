//! Frames of different sizes: index entries are read once per node, and a corrupt or missing index is treated as a
//! corrupt or missing frame.

use std::sync::Arc;

use batchweave_client::{Client, ErrorName};
use batchweave_core::tgb::{TRAILER_BYTES, Trailer};
use batchweave_daemon::config::Period;
use batchweave_store::counting::Counted;
use batchweave_store::testing::faults::{Fault, FaultStore};
use batchweave_store::{Op, Store};

use crate::faults::failure;
use crate::serving::{TIMEOUT, options, read_all};
use crate::support::{Daemon, Stream, consumer};

/// Approximate bytes per object: two slices.
const TWO_SLICES: u64 = 1920;

/// A stream of two slices per step and four steps per object, whose frames differ in size.
async fn uneven(steps: u64) -> Stream {
    let mut stream = Stream::new(2).await;
    for _ in 0..steps / 4 {
        stream.commit_uneven(4, 1 << 30).await;
    }
    stream.finish().await;
    stream
}

/// Returns the offset of an object's index.
async fn index_of(stream: &Stream, key: &str) -> (Vec<u8>, usize) {
    let body = stream.store.get(key, 1 << 30).await.unwrap().to_vec();
    let trailer = Trailer::decode(&body[body.len() - TRAILER_BYTES as usize..]).unwrap();
    (body, trailer.index_offset as usize)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_index_is_read_again_and_again() {
    for flips in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let stream = uneven(8).await;
        let faulty = FaultStore::new(stream.store.clone(), 31, []);
        for _ in 0..flips {
            faulty.inject(Op::GetRange, "data/", Fault::FlippedByte);
        }
        let daemon = Daemon::start(Arc::new(faulty.clone()), consumer(dir.path()));
        let read = read_all(options(&daemon.socket, 0, 1, 0), 2, 0);
        assert_eq!(read.await.unwrap(), 8, "{flips} flips");
        assert_eq!(faulty.struck(), flips);
        daemon.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_index_entry_is_refused_to_ranks_that_need_it() {
    let dir = tempfile::tempdir().unwrap();
    let stream = uneven(12).await;
    let key = stream.data_keys()[1].clone();
    let (mut body, index) = index_of(&stream, &key).await;
    // The entry of step 5, slice 0.
    body[index + 80 + 9] ^= 1;
    stream.store.overwrite(&key, body.into());
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let (step, error) = failure(&daemon, 0).await;
    assert_eq!((step, error.name()), (5, ErrorName::CorruptData.name()));
    let text = error.to_string();
    for part in [key.as_str(), "slice 0", "step 5", "also when fetched again"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let other = read_all(options(&daemon.socket, 1, 2, 0), 2, 0);
    assert_eq!(other.await.unwrap(), 12, "the other slice is good");
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_with_an_index_is_missing_data() {
    let dir = tempfile::tempdir().unwrap();
    let stream = uneven(12).await;
    let key = stream.data_keys()[1].clone();
    let (body, index) = index_of(&stream, &key).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    stream.store.overwrite(&key, body[..index].to_vec().into());
    let (step, error) = failure(&daemon, 0).await;
    assert_eq!((step, error.name()), (4, ErrorName::CorruptData.name()));
    assert!(
        error.to_string().contains("shorter than the log says"),
        "{error}"
    );
    stream.store.delete(&key).await.unwrap();
    let (step, error) = failure(&daemon, 0).await;
    assert_eq!((step, error.name()), (4, ErrorName::MissingData.name()));
    let text = error.to_string();
    for part in [key.as_str(), "steps 4 to 7 are gone", "quarantine 4..7"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reclaimed_object_with_an_index_is_reclaimed() {
    let dir = tempfile::tempdir().unwrap();
    let stream = uneven(12).await;
    let mut config = consumer(dir.path());
    config.job.name = String::new();
    config.job.open = false;
    // The daemon reads the watermark only when it looks for the reason of a failure.
    config.follow.starved = Period::millis(3_600_000);
    config.follow.idle = config.follow.starved;
    let daemon = Daemon::start(stream.store.clone(), config);
    let mut options = options(&daemon.socket, 0, 2, 0);
    (options.job, options.attempt) = (None, None);
    // The daemon has folded the log once a rank reads.
    let before = read_all(options.clone(), 2, 0);
    assert_eq!(before.await.unwrap(), 12);
    stream.publish_watermark(4).await;
    let key = stream.data_keys()[0].clone();
    stream.store.delete(&key).await.unwrap();
    let read = move || {
        let mut reader = Client::connect(options).unwrap();
        reader.next(TIMEOUT).map(drop).unwrap_err()
    };
    let error = tokio::task::spawn_blocking(read).await.unwrap();
    assert_eq!(error.name(), ErrorName::StepReclaimed.name(), "{error}");
    daemon.stop().await.unwrap();
}

/// Returns the data reads per step when `ranks` ranks of this node read the stream. On a busy machine some late
/// reads are hedged, at most one in twenty and two more, and some neighbours are read separately: the bounds lie
/// half way to the number of reads without any sharing.
async fn requests(slices: u32, ranks: u32, dp_size: u32) -> f64 {
    const STEPS: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(slices).await;
    for _ in 0..STEPS {
        stream.commit_uneven(1, TWO_SLICES).await;
    }
    stream.finish().await;
    let objects = stream.data_keys().len() as u64 / STEPS;
    assert_eq!(objects, u64::from(slices / 2), "objects a step");
    let counted = Counted::new(stream.store.clone());
    let daemon = Daemon::start(Arc::new(counted.clone()), consumer(dir.path()));
    let rank = |rank| read_all(options(&daemon.socket, rank, dp_size, 0), slices, 1);
    let ranks: Vec<_> = (0..ranks).map(rank).collect();
    for rank in ranks {
        assert_eq!(rank.await.unwrap(), STEPS);
    }
    daemon.stop().await.unwrap();
    counted.counts().of(Op::GetRange).requests as f64 / STEPS as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_costs_two_reads_in_each_object_that_holds_slices_of_the_node() {
    for objects in [2, 8, 32] {
        let one = requests(objects * 2, 1, objects * 2).await;
        assert!(one <= 2.5, "{one} reads a step of {objects} objects");
    }
    // Four slices of the node, neighbours in two objects: 4 reads, and 6 if each were read separately.
    let four = requests(16, 1, 4).await;
    assert!(
        four <= 5.0,
        "{four} reads a step for four slices in two objects"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_and_steps_of_one_object_share_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(8).await;
    for _ in 0..10 {
        stream.commit_uneven(16, 1 << 30).await;
    }
    stream.finish().await;
    let counted = Counted::new(stream.store.clone());
    let daemon = Daemon::start(Arc::new(counted.clone()), consumer(dir.path()));
    let rank = |rank| read_all(options(&daemon.socket, rank, 8, 0), 8, 1);
    let ranks = [rank(0), rank(5)];
    for rank in ranks {
        assert_eq!(rank.await.unwrap(), 160);
    }
    let reads = counted.counts().of(Op::GetRange).requests;
    // A lookup covers four steps or more, 80 reads for two ranks far apart; separate lookups would be 320.
    assert!(
        reads <= 2 * 160 + 160,
        "{reads} reads for 160 steps of two ranks in 10 objects"
    );
    daemon.stop().await.unwrap();
}
