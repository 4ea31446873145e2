//! A job ten times slower than two producers, for ten minutes, which then speeds up.

use std::sync::Mutex;

use batchweave_store::counting::Counted;
use tokio::task::JoinHandle;

use super::*;

/// Steps that the producers may be ahead.
const MOST: u64 = 100;
/// Interval between two publications of progress.
const EVERY: u64 = MOST / 4;

/// A producer of one TGB every 200 ms, if it may, until it is stopped.
async fn produce(store: Arc<dyn Store>, name: &'static str, seed: u8) {
    let producer = opened(&store, name, seed).await;
    let (pacer, told) = PositionReader::new(steps_ahead(MOST));
    let all: Vec<_> = (0..4000).map(|seq| item(&producer, seq, 1)).collect();
    let options = CommitOptions {
        pace: Some(told),
        queue: 8,
        ..CommitOptions::default()
    };
    let queue = producer.spawn(dac(seed.into()), options);
    let clock = TokioClock::shared();
    tokio::spawn(pacer.follow(store, clock, queue.flow_control(), [seed; 32]));
    for item in all {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if !queue.submit(item).await {
            return;
        }
    }
}

/// The observations of the job.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    at: u64,
    published: u64,
    /// Times that it found no step to read.
    starved: u64,
    /// The furthest that the stream was ahead of what is published.
    furthest: u64,
}

/// Reads a step every `pace` and publishes its progress; checks the bound at every step.
async fn read(
    store: &Arc<dyn Store>,
    log: &mut Log,
    opened: Version,
    pace: Duration,
    steps: u64,
    seen: &Mutex<Seen>,
) {
    let until = seen.lock().unwrap().at + steps;
    loop {
        let mut now = *seen.lock().unwrap();
        if now.at == until {
            return;
        }
        tokio::time::sleep(pace).await;
        log.catch_up().await.unwrap();
        let head = log.manifest().next_step();
        assert!(
            head <= now.published + MOST,
            "{head} steps, {} published",
            now.published
        );
        now.furthest = now.furthest.max(head - now.published);
        if now.at < head {
            now.at += 1;
        } else {
            now.starved += 1;
        }
        // A rank that waits makes its daemon publish at once.
        if now.at.is_multiple_of(EVERY) || now.at == head {
            now.published = now.at;
            publish(store, opened, now.at).await;
        }
        *seen.lock().unwrap() = now;
    }
}

#[tokio::test(start_paused = true)]
async fn producers_stay_within_the_bound_and_lose_nothing_once_the_job_speeds_up() {
    for seed in [10, 20] {
        println!("seed {seed}");
        let memory: Arc<dyn Store> = stream(&[]).await;
        let counted = Counted::with_classes(Arc::clone(&memory), &keys::CLASSES);
        let store: Arc<dyn Store> = Arc::new(counted.clone());
        let mut log = reader(&memory, 7).await;
        let opened = open_job(&mut log, 0).await;
        open_attempt(&mut log, opened, 0).await;
        let mut producers: Vec<JoinHandle<()>> = Vec::new();
        for (name, seed) in [("p0", seed), ("p1", seed + 1)] {
            let store: Arc<dyn Store> = Distant::new(&store, seed.into());
            producers.push(tokio::spawn(produce(store, name, seed)));
        }
        // Without bounds the producers would commit ten steps per second.
        let seen = Mutex::new(Seen::default());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let pace = Duration::from_secs(1);
        read(&memory, &mut log, opened, pace, 600, &seen).await;
        let slowly = *seen.lock().unwrap();
        assert_eq!(slowly.starved, 0, "{slowly:?}");
        assert_eq!(slowly.furthest, MOST, "the bound is used up, to the step");
        let requests = counted.counts().requests();
        println!("{requests} requests in ten minutes, {slowly:?}");
        // About 700 steps are committed; a held-back producer does not poll faster.
        assert!(requests < 10 * 700, "{requests}");

        let pace = Duration::from_millis(125);
        read(&memory, &mut log, opened, pace, 1600, &seen).await;
        let quickly = *seen.lock().unwrap();
        println!("{quickly:?}");
        assert_eq!(
            quickly.starved, 0,
            "eight steps a second are there: {quickly:?}"
        );
        producers.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_stands_still_costs_few_requests() {
    let memory: Arc<dyn Store> = stream(&[]).await;
    let counted = Counted::with_classes(Arc::clone(&memory), &keys::CLASSES);
    let store: Arc<dyn Store> = Arc::new(counted.clone());
    let mut log = reader(&memory, 7).await;
    let opened = open_job(&mut log, 0).await;
    open_attempt(&mut log, opened, 0).await;
    let tasks: Vec<_> = [("p0", 1), ("p1", 2)]
        .map(|(name, seed)| {
            let store: Arc<dyn Store> = Distant::new(&store, seed.into());
            tokio::spawn(produce(store, name, seed))
        })
        .into();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let before = counted.counts().requests();
    tokio::time::sleep(Duration::from_hours(1)).await;
    let each = (counted.counts().requests() - before) / 2;
    log.catch_up().await.unwrap();
    assert_eq!(log.manifest().next_step(), MOST);
    println!("{each} requests an hour");
    // One poll of the log every five seconds, one LIST every ten.
    assert!(each < 1300, "{each}");
    tasks.iter().for_each(JoinHandle::abort);
}
