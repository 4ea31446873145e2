//! Peers that send without end: each receives one error, uses at most as much memory as its limits allow, and
//! delays no other rank.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use batchweave_arena::Interest;
use batchweave_client::State;
use batchweave_store::Op;
use batchweave_store::testing::faults::{Fault, FaultStore};
use batchweave_wire::{
    Checkpoint, ClientMessage, DaemonMessage, ErrorName, Hello, Progress, Release,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::spawn_blocking;

use crate::rude::{Rude, header};
use crate::serving::{options, read_all};
use crate::support::{Daemon, Stream, consumer};

/// More unread answers than the daemon queues for a peer, including those in the sockets.
const UNREAD_MAX: u64 = 4 << 10;
/// After this time without room to send, the daemon does not read from the peer, or the machine is slow. The test
/// continues in both cases.
const FULL: Duration = Duration::from_millis(300);

/// A peer that has received its welcome, before which it must not send anything.
fn welcomed(path: &Path, hello: Hello) -> Rude {
    let mut rude = Rude::with_hello(path, hello);
    while !matches!(rude.hear().expect("a welcome"), DaemonMessage::Welcome(_)) {}
    rude
}

fn mark(step: u64, state: &str) -> Vec<u8> {
    let state = state.to_owned();
    let mark = ClientMessage::Checkpoint(Checkpoint { step, state });
    mark.encode().unwrap()
}

/// A message of any kind that a session may send, and of two that it may not.
fn any_message(random: &mut StdRng) -> Vec<u8> {
    let message = match random.random_range(0..4) {
        0 => ClientMessage::Release(Release {
            next_step: 0,
            frames: Vec::new(),
        }),
        1 => ClientMessage::Progress(Progress {
            next_step: 0,
            waited_us: 0,
            waiting: true,
        }),
        2 => return vec![random.random(); 64],
        _ => return header(1, random.random_range(90..1000), 16),
    };
    message.encode().unwrap()
}

/// Sends until its socket stays full; returns the number of messages that expect an answer.
fn send_all(rude: &Rude, random: &mut StdRng, stop: &AtomicBool) -> u64 {
    let state = "x".repeat(1000);
    let mut asked = 0;
    while !stop.load(Relaxed) {
        // Answers accumulate; garbage is answered with one error.
        let asks = random.random_range(0..4) > 0;
        let message = if asks {
            mark(asked, &state)
        } else {
            any_message(random)
        };
        while rude.socket.send(&message, None).is_err() {
            if !rude.socket.wait(Interest::Writable, FULL).unwrap() {
                return asked;
            }
        }
        asked += u64::from(asks);
        assert!(
            asked < UNREAD_MAX,
            "a peer that does not read is heard without end"
        );
    }
    asked
}

/// Floods, then reads: each mark is answered, in order, and the error arrives once.
fn flood(path: &Path, random: &mut StdRng, stop: &AtomicBool) -> u64 {
    let mut rude = welcomed(path, Hello::new("flood", 0));
    rude.bytes(&[0xee; 100]);
    let asked = send_all(&rude, random, stop);
    let (mut answered, mut errors) = (0, Vec::new());
    while answered < asked || errors.is_empty() {
        match rude.hear().expect("the session stays") {
            DaemonMessage::Marked(step) => {
                assert_eq!(step, answered, "each is answered, in order");
                answered += 1;
            }
            DaemonMessage::Error(fault) => errors.push(fault.known_name().unwrap()),
            _ => {}
        }
    }
    assert_eq!(errors, [ErrorName::BadMessage], "it is told once");
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_messages_delays_no_other_rank() {
    let dir = tempfile::tempdir().unwrap();
    let seed = rand::random();
    println!("seed {seed}");
    let mut stream = Stream::new(2).await;
    stream.commit(200, 20).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let (stop, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (path, stopped, count) = (daemon.socket.clone(), stop.clone(), asked.clone());
    let flooding = spawn_blocking(move || {
        let mut random = StdRng::seed_from_u64(seed);
        while !stopped.load(Relaxed) {
            count.fetch_add(flood(&path, &mut random, &stopped), Relaxed);
        }
    });
    // Repeated until a flood has filled its socket.
    let mut reads = 0;
    while reads < 2 || asked.load(Relaxed) == 0 {
        let good = read_all(options(&daemon.socket, 0, 1, 0), 2, 3);
        assert_eq!(good.await.unwrap(), 200);
        reads += 1;
        assert!(
            !flooding.is_finished(),
            "the flood ended: {:?}",
            flooding.await
        );
    }
    stop.store(true, Relaxed);
    flooding.await.unwrap();
    println!("{reads} reads beside {} messages", asked.load(Relaxed));
    daemon.stop().await.unwrap();
}

/// Few marks may wait for the store; further ones are refused, and the other rank continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_marks_waits_for_the_store_with_few_and_is_refused_beyond() {
    const MARKS: usize = 5000;
    const WAITING_MAX: usize = 256;
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(200, 20).await;
    stream.finish().await;
    let store = FaultStore::new(stream.store.clone(), 41, []);
    let stream_id = stream.config.stream_id.to_string();
    let daemon = Daemon::start(Arc::new(store.clone()), consumer(dir.path()));
    let good = read_all(options(&daemon.socket, 1, 2, 0), 2, 3);
    let path = daemon.socket.clone();
    let flooding = spawn_blocking(move || {
        let hello = Hello {
            job: Some("llm".into()),
            attempt: Some("a".repeat(32)),
            dp_size: 2,
            global_rank: Some(0),
            ..Hello::new("flood", 0)
        };
        let mut rude = welcomed(&path, hello);
        // No mark is stored during this test.
        for _ in 0..MARKS {
            store.inject(
                Op::Create,
                "jobs/llm",
                Fault::Delay(Duration::from_hours(1)),
            );
        }
        let id = Some("a".repeat(32));
        let state = State::new(stream_id, 0, id, Some(0), Some(2)).inner();
        let (message, mut sent, mut refusals) = (mark(0, &state), 0, Vec::new());
        while refusals.len() < MARKS - WAITING_MAX {
            while sent < MARKS && rude.socket.send(&message, None).is_ok() {
                sent += 1;
            }
            match rude.hear().expect("the session stays") {
                DaemonMessage::MarkRefused(fault) => refusals.push(fault),
                DaemonMessage::Marked(_) => panic!("no mark can be stored"),
                DaemonMessage::Error(fault) => panic!("{fault}"),
                _ => {}
            }
        }
        (rude, refusals)
    });
    let (rude, refusals) = flooding.await.unwrap();
    for fault in refusals {
        assert_eq!(fault.known_name(), Some(ErrorName::MarkNotStored));
        assert!(
            fault.to_string().contains("256 marks of this rank"),
            "{fault}"
        );
    }
    assert_eq!(good.await.unwrap(), 200, "the rank beside it");
    drop(rude);
    // The daemon is not stopped, since stopping would wait for the marks.
    daemon.kill().await;
}
