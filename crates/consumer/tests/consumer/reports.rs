//! Reports of ranks: stored before marks, once each, and bounded beside a rank that floods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use batchweave_client::{
    Client, ConnectOptions, DetailLoss, DetailOf, SourceLoss, State, StepValues,
};
use batchweave_core::ids::{AttemptId, Step, StreamId};
use batchweave_core::keys;
use batchweave_core::values::{MergedValues, ValuesObject};
use batchweave_store::testing::faults::{Fault, FaultStore};
use batchweave_store::{Op, Store};
use batchweave_wire::{Checkpoint, ClientMessage, DaemonMessage, Hello, Mode, Report, StepStates};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::spawn_blocking;

use crate::ledger::Seen;
use crate::rude::Rude;
use crate::serving::{TIMEOUT, options};
use crate::support::{Daemon, Stream, consumer};

/// Slices as in the proof of `ledger`.
const SLICES: u32 = 4;
const STEPS: Step = 120;

async fn stream() -> Stream {
    let mut stream = Stream::new(SLICES).await;
    stream.commit(STEPS, 9).await;
    stream.finish().await;
    stream
}

/// Reads all steps and reports each, 7 of them as left out; marks the end.
fn train(options: ConnectOptions) -> tokio::task::JoinHandle<()> {
    spawn_blocking(move || {
        let mut reader = Client::connect(options).unwrap();
        while let Some(batch) = reader.next(TIMEOUT).unwrap() {
            let left_out = (50..57).contains(&batch.step()).then_some("nan");
            reader.report(batch.step(), left_out).unwrap();
        }
        reader.checkpoint(&reader.state_dict()).unwrap();
        reader.close(TIMEOUT).unwrap();
    })
}

fn range(from: Step, to: Step) -> StepStates {
    StepStates {
        from,
        to,
        left_out: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_are_stored_before_the_mark() {
    let dir = tempfile::tempdir().unwrap();
    let stream = stream().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    train(options(&daemon.socket, 0, 1, 0)).await.unwrap();
    // The mark is stored: whatever happens now, the states are, too.
    daemon.kill().await;
    let seen = Seen::read(&stream.store, &stream).await;
    let states = seen.trained(STEPS).remove(0);
    assert_eq!((states.trained, states.missing), (STEPS - 7, Vec::new()));
    let left: Vec<_> = states
        .left_out
        .iter()
        .map(|left| (left.steps.clone(), left.reason.as_str()))
        .collect();
    assert_eq!(left, [(50..57, "nan")]);
}

/// Returns the loss that a rank reports of a step.
fn loss_of(step: Step) -> StepValues {
    let source = |source, sum| SourceLoss {
        source,
        sum,
        weight: 4.0,
    };
    StepValues {
        step,
        sum: step as f64,
        weight: 8.0,
        sources: vec![source(0, 1.0), source(1, step as f32 - 1.0)],
        ..StepValues::default()
    }
}

/// Reads the stored losses: how often each step is there, and those that count.
async fn stored_losses(stream: &Stream) -> (Vec<u64>, Vec<(Step, f64)>) {
    let (mut times, mut merged) = (vec![0; STEPS as usize], MergedValues::default());
    for key in stream.store.keys() {
        if keys::parse_values(&key).is_none() {
            continue;
        }
        let bytes = stream.store.get(&key, u64::MAX).await.unwrap();
        let id = AttemptId([0xaa; 16]);
        let object = ValuesObject::decode(&bytes, &key, stream.config.stream_id, id).unwrap();
        for values in object.blocks.iter().flat_map(|block| &block.steps) {
            times[values.step as usize] += 1;
        }
        merged.add(object, &(0..STEPS));
    }
    let counted = merged.take_below(STEPS).into_iter();
    (times, counted.map(|one| (one.step, one.loss.sum)).collect())
}

/// The daemon is killed when it has taken half of the reports, and some are stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losses_of_all_steps_are_stored_and_count_once_over_a_killed_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let stream = stream().await;
    let mut daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let (half, reached) = tokio::sync::oneshot::channel();
    let (go, restarted) = std::sync::mpsc::channel();
    let options = options(&daemon.socket, 0, 1, 0);
    let rank = spawn_blocking(move || {
        let mut half = Some(half);
        let mut reader = Client::connect(options).unwrap();
        while let Some(batch) = reader.next(TIMEOUT).unwrap() {
            reader.report_loss(loss_of(batch.step())).unwrap();
            if batch.step() == STEPS / 3 {
                reader.checkpoint(&reader.state_dict()).unwrap();
            }
            if batch.step() == STEPS / 2 {
                half.take().unwrap().send(()).unwrap();
                restarted.recv().unwrap();
            }
        }
        assert_eq!(reader.losses_cut(), 0);
        reader.checkpoint(&reader.state_dict()).unwrap();
        reader.close(TIMEOUT).unwrap();
    });
    reached.await.unwrap();
    daemon.kill().await;
    daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    go.send(()).unwrap();
    rank.await.unwrap();
    daemon.stop().await.unwrap();
    let (times, counted) = stored_losses(&stream).await;
    assert!(
        times.iter().all(|times| (1..=2).contains(times)),
        "{times:?}"
    );
    let expected: Vec<_> = (0..STEPS).map(|step| (step, step as f64)).collect();
    assert_eq!(counted, expected);
}

const LARGE: DetailLoss = DetailLoss {
    mean: f32::MAX,
    weight: f32::MAX,
};

/// Sends reports without end: of steps that it has, or has not, in ranges of any size.
fn flood(mut rude: Rude, random: &mut StdRng, stop: &AtomicBool) -> (Rude, u64) {
    let mut sent = 0;
    while !stop.load(Relaxed) {
        let count = random.random_range(1..=512);
        let mut states = Vec::new();
        for _ in 0..count {
            let from = random.random_range(0..4 * STEPS);
            let reason = random.random_range(0..9_u32);
            states.push(StepStates {
                left_out: (reason > 4).then(|| "x".repeat(reason as usize)),
                ..range(from, from + random.random_range(1..1 << 40))
            });
        }
        let next_step = random.random_range(0..2 * STEPS);
        // One large loss beside a few states, or none.
        states.truncate(if count % 3 == 0 { 4 } else { 512 });
        let trained = states.iter().find(|one| one.left_out.is_none());
        let large = trained.filter(|_| states.len() <= 4).map(|one| StepValues {
            step: one.from,
            of: DetailOf::Document,
            details: vec![LARGE; 7168],
            ..loss_of(one.from)
        });
        let report = Report {
            next_step,
            values: large.into_iter().collect(),
            states,
        };
        rude.say(&ClientMessage::Report(report));
        sent += 1;
        // The daemon sends it batches and confirmations.
        while rude
            .socket
            .wait(
                batchweave_arena::Interest::Readable,
                std::time::Duration::ZERO,
            )
            .unwrap()
        {
            if let Some(DaemonMessage::Error(fault)) = rude.hear() {
                panic!("{fault}");
            }
        }
    }
    (rude, sent)
}

/// The flood is counted and ends nothing; the rank beside it is proved as trained.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_reports_harms_no_other_rank() {
    let dir = tempfile::tempdir().unwrap();
    let seed = rand::random();
    println!("seed {seed}");
    let stream = stream().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let stop = Arc::new(AtomicBool::new(false));
    let (path, stopped) = (daemon.socket.clone(), stop.clone());
    let flooding = spawn_blocking(move || {
        let hello = Hello {
            job: Some("llm".into()),
            attempt: Some("a".repeat(32)),
            dp_size: 2,
            global_rank: Some(0),
            ..Hello::new("flood", 0)
        };
        let mut rude = Rude::with_hello(&path, hello);
        while !matches!(rude.hear().expect("a welcome"), DaemonMessage::Welcome(_)) {}
        let mut random = StdRng::seed_from_u64(seed);
        flood(rude, &mut random, &stopped)
    });
    train(options(&daemon.socket, 1, 2, 0)).await.unwrap();
    stop.store(true, Relaxed);
    let (rude, sent) = flooding.await.unwrap();
    println!("beside {sent} reports");
    assert!(sent > 0);
    drop(rude);
    daemon.stop().await.unwrap();
    let states = Seen::read(&stream.store, &stream)
        .await
        .trained(STEPS)
        .remove(0);
    let of_good = states.missing.iter().filter(|steps| steps.dp_rank == 1);
    assert_eq!(of_good.count(), 0);
    let left = states.left_out.iter().filter(|left| left.dp_rank == 1);
    let left: Vec<_> = left
        .map(|left| (left.steps.start, left.steps.end))
        .collect();
    assert_eq!(left, [(50, 57)]);
    // Of the other rank only steps that it was sent count, once each.
    assert!(states.differing.is_empty());
    assert!(states.left_out.iter().all(|left| left.steps.end <= STEPS));
}

/// Returns a rank that was sent the first two steps.
fn rank_at_two(path: &std::path::Path, hello: Hello) -> Rude {
    let mut rank = Rude::with_hello(path, hello);
    while !matches!(rank.hear(), Some(DaemonMessage::Batch(batch)) if batch.step == 1) {}
    rank
}

fn hello(mode: Mode, next_step: Step) -> Hello {
    Hello {
        job: Some("llm".into()),
        attempt: Some("a".repeat(32)),
        mode,
        ..Hello::new("rank", next_step)
    }
}

fn mark(step: Step) -> ClientMessage {
    let stream = StreamId::from_random([9; 16]).to_string();
    let state = State::new(stream, step, Some("a".repeat(32)), Some(0), Some(1));
    let state = state.inner();
    ClientMessage::Checkpoint(Checkpoint { step, state })
}

/// Were they confirmed before, a daemon that is killed would take losses with it that no rank sends again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_confirmed_once_their_losses_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let stream = stream().await;
    let store = FaultStore::new(stream.store.clone(), 41, []);
    let daemon = Daemon::start(Arc::new(store.clone()), consumer(dir.path()));
    let (path, objects) = (daemon.socket.clone(), stream.store.clone());
    let confirmed = spawn_blocking(move || {
        let mut rank = rank_at_two(&path, hello(Mode::Join, 0));
        let report = |step, values| Report {
            next_step: 2,
            states: vec![range(step, step + 1)],
            values,
        };
        rank.say(&ClientMessage::Report(report(0, Vec::new())));
        rank.say(&mark(1));
        while !matches!(rank.hear(), Some(DaemonMessage::Marked(1))) {}
        let keys = objects.keys();
        let ledger = keys.iter().find(|key| key.contains("/ledger/")).unwrap();
        let (attempt, _) = ledger.split_once("ledger/").unwrap();
        for _ in 0..5 {
            store.inject(Op::Create, &format!("{attempt}reports/"), Fault::Throttled);
        }
        rank.say(&ClientMessage::Report(report(1, vec![loss_of(1)])));
        rank.say(&mark(2));
        let mut heard = (false, 0);
        while heard != (true, 2) {
            match rank.hear().expect("the session stays") {
                DaemonMessage::Marked(2) => heard.0 = true,
                DaemonMessage::Reported(count) => heard.1 = count,
                DaemonMessage::Error(fault) => panic!("{fault}"),
                _ => {}
            }
            let stored = objects
                .keys()
                .iter()
                .any(|key| keys::parse_values(key).is_some());
            assert!(
                heard.1 < 2 || stored,
                "confirmed before the losses are stored"
            );
        }
        assert_eq!(store.struck(), 5);
    });
    confirmed.await.unwrap();
    daemon.stop().await.unwrap();
}

/// A rank connects again while the store is down: it repeats its reports, and each is stored once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_reports_are_confirmed_and_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let stream = stream().await;
    let store = FaultStore::new(stream.store.clone(), 41, []);
    let daemon = Daemon::start(Arc::new(store.clone()), consumer(dir.path()));
    let path = daemon.socket.clone();
    let confirmed = spawn_blocking(move || {
        let welcomed = |hello| {
            let mut rude = Rude::with_hello(&path, hello);
            while !matches!(rude.hear(), Some(DaemonMessage::Welcome(_))) {}
            rude
        };
        let first = rank_at_two(&path, hello(Mode::Join, 0));
        // No ledger is stored at once.
        for _ in 0..3 {
            store.inject(Op::Create, "jobs/llm", Fault::Throttled);
        }
        let report = |states: Vec<StepStates>| {
            ClientMessage::Report(Report {
                next_step: 2,
                states,
                ..Report::default()
            })
        };
        first.say(&report(vec![range(0, 1)]));
        drop(first);
        let again = welcomed(hello(Mode::Resume, 2));
        again.say(&report(vec![range(0, 1)]));
        again.say(&report(vec![range(1, 2)]));
        again.say(&ClientMessage::Bye);
        drop(again);
        let mut last = welcomed(hello(Mode::Resume, 2));
        last.say(&report(vec![range(0, 2)]));
        last.say(&mark(2));
        let mut heard = (false, 0);
        while heard != (true, 1) {
            match last.hear().expect("the session stays") {
                DaemonMessage::Marked(2) => heard.0 = true,
                DaemonMessage::Reported(count) => heard.1 = count,
                DaemonMessage::Error(fault) => panic!("{fault}"),
                _ => {}
            }
        }
    });
    confirmed.await.unwrap();
    daemon.kill().await;
    let seen = Seen::read(&stream.store, &stream).await;
    assert_eq!(seen.trained(2).remove(0).trained, 2);
    assert_eq!(seen.stored_states(), 2, "each step once");
}
