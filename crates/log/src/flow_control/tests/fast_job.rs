//! Jobs that read faster than a producer would poll for them by the clock alone.

use batchweave_store::Op;
use batchweave_store::counting::Counted;

use super::*;

/// Steps that the producer may be ahead.
const MOST: u64 = 16;
const STEPS: u64 = 2000;
/// The time in which the job reads a step.
const PACE: Duration = Duration::from_millis(5);

/// Commits all steps within the bound.
async fn produce(store: Arc<dyn Store>) {
    let producer = opened(&store, "p0", 1).await;
    let items: Vec<_> = (0..STEPS).map(|seq| item(&producer, seq, 1)).collect();
    let (reader, bounds) = PositionReader::new(steps_ahead(MOST));
    let options = CommitOptions {
        pace: Some(bounds),
        tgbs_per_entry: (MOST / 4) as usize,
        ..CommitOptions::default()
    };
    let queue = producer.spawn(dac(1), options);
    tokio::spawn(reader.follow(store, TokioClock::shared(), queue.flow_control(), [1; 32]));
    for item in items {
        assert!(queue.submit(item).await);
    }
    queue.close(true).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_bound_of_a_few_steps_does_not_slow_a_fast_job() {
    let memory = stream(&[]).await;
    let counted = Counted::new(Arc::clone(&memory));
    let mut log = reader(&memory, 7).await;
    let opened = open_job(&mut log, 0).await;
    open_attempt(&mut log, opened, 0).await;
    tokio::spawn(produce(Arc::new(counted.clone())));
    let began = tokio::time::Instant::now();
    let (mut at, mut published) = (0, 0);
    while at < STEPS {
        tokio::time::sleep(PACE).await;
        log.catch_up().await.unwrap();
        let head = log.manifest().next_step();
        assert!(
            head <= published + MOST,
            "{head} with {published} published"
        );
        at = head.min(at + 1);
        if at - published >= MOST / 4 {
            publish(&memory, opened, at).await;
            published = at;
        }
    }
    let speed = (PACE * STEPS as u32).as_secs_f64() / began.elapsed().as_secs_f64();
    let lists = counted.counts().of(Op::List).requests;
    println!("{speed:.3} of the job's own speed, {lists} LISTs for {STEPS} steps");
    assert!(speed > 0.9, "{speed}");
    assert!(lists < STEPS, "{lists}");
}
