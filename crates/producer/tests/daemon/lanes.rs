//! Lanes: the stream is the same whichever daemons run them, and a lane whose daemon is gone is taken over.

use std::time::Duration;

use batchweave_core::stream::StreamOrder;
use batchweave_producer::config::{OnBadDocument, ProducerConfig};
use batchweave_producer::{Outcome, RunError};

use crate::order::three;
use crate::support::World;

const LANES: [&str; 5] = ["l0", "l1", "l2", "l3", "l4"];

/// The input of five lanes of three sources.
struct Input(ProducerConfig);

impl Input {
    fn write(world: &World) -> Self {
        let mut config = three(world);
        config.stream.order = StreamOrder::Lanes;
        config.stream.producers = LANES.map(str::to_owned).into();
        config.producer.name = String::new();
        config.producer.takeover_after.0 = Duration::ZERO;
        Self(config)
    }

    /// Returns the configuration of a daemon that runs `lanes`.
    fn daemon(&self, lanes: &[&str]) -> ProducerConfig {
        let mut config = self.0.clone();
        config.producer.lanes = lanes.iter().map(|lane| (*lane).to_owned()).collect();
        config
    }

    /// The same, for one that takes over lanes after this time.
    fn taking_over(&self, lanes: &[&str], after_ms: u64) -> ProducerConfig {
        let mut config = self.daemon(lanes);
        config.producer.takeover_after.0 = Duration::from_millis(after_ms);
        config
    }
}

/// Returns the stream that one daemon makes of all lanes.
async fn expected() -> Vec<Vec<Vec<u8>>> {
    let world = World::new();
    let outcome = world
        .run(Input::write(&world).daemon(&LANES))
        .await
        .unwrap();
    let payloads = world.payloads().await;
    assert!(world.ended().await);
    assert_eq!(
        outcome,
        Outcome::Finished {
            batches: payloads.len() as u64
        }
    );
    payloads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_two_and_five_daemons_make_the_same_stream() {
    let expected = expected().await;
    for daemons in [
        vec![&LANES[..2], &LANES[2..]],
        vec![&["l4", "l0", "l2"][..], &["l3", "l1"][..]],
        LANES.chunks(1).collect(),
    ] {
        let world = World::new();
        let input = Input::write(&world);
        let running: Vec<_> = daemons
            .iter()
            .map(|lanes| world.spawn(input.daemon(lanes)).0)
            .collect();
        for run in running {
            assert!(matches!(run.await.unwrap(), Ok(Outcome::Finished { .. })));
        }
        assert_eq!(world.payloads().await, expected, "{daemons:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_with_its_index_is_the_same_lane() {
    let expected = expected().await;
    let world = World::new();
    let input = Input::write(&world);
    let mut running = Vec::new();
    for (index, lane) in LANES.iter().enumerate() {
        let mut config = input.daemon(&[]);
        config.producer.name = (*lane).to_owned();
        (config.producer.index, config.producer.of) = (index as u32, 5);
        running.push(world.spawn(config).0);
    }
    for run in running {
        run.await.unwrap().unwrap();
    }
    assert_eq!(world.payloads().await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_of_a_dead_daemon_are_taken_over() {
    let expected = expected().await;
    for seed in 0..6 {
        let world = World::new();
        let input = Input::write(&world);
        let (survivor, _stop) = world.spawn(input.taking_over(&LANES[3..], 150));
        // It dies at a request that the seed draws, or has finished before.
        world.crash(input.daemon(&LANES[..3]), seed, 0).await;
        let outcome = survivor.await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Finished { .. }), "{outcome:?}");
        assert!(world.ended().await);
        assert_eq!(world.payloads().await, expected, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_without_lanes_ends() {
    let world = World::new();
    let mut input = Input::write(&world);
    for source in &mut input.0.sources {
        source.epochs = 0;
    }
    let (first, _) = world.spawn(input.daemon(&LANES));
    world.wait_for_batches(1).await;
    let (second, stop) = world.spawn(input.daemon(&LANES));
    let lost = first.await.unwrap();
    assert!(matches!(lost, Err(RunError::Fenced { .. })), "{lost:?}");
    stop.cancel();
    assert!(matches!(second.await.unwrap(), Ok(Outcome::Stopped { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_takes_over_stands_by_when_another_has_its_lanes() {
    let expected = expected().await;
    let world = World::new();
    let input = Input::write(&world);
    let (first, _stop) = world.spawn(input.taking_over(&LANES, 50));
    world.wait_for_batches(1).await;
    // The newer daemon takes all lanes, and dies; the older one gets them back.
    world.crash(input.daemon(&LANES), 3, 0).await;
    let outcome = first.await.unwrap().unwrap();
    assert!(!matches!(outcome, Outcome::Stopped { .. }), "{outcome:?}");
    assert!(world.ended().await);
    assert_eq!(world.payloads().await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_document_of_one_lane_ends_the_daemon_and_loses_nothing() {
    let world = World::new();
    let mut input = Input::write(&world);
    let path = input.0.sources[0].paths[0].clone();
    let mut lines = std::fs::read_to_string(&path).unwrap();
    let middle = lines.len() / 2;
    let middle = middle + lines[middle..].find('\n').unwrap() + 1;
    lines.insert_str(middle, "{\"bo\n");
    std::fs::write(&path, lines).unwrap();
    let failed = world.run(input.daemon(&LANES)).await;
    assert!(matches!(failed, Err(RunError::Document(_))), "{failed:?}");
    input.0.source.on_bad_document = OnBadDocument::Skip;
    world.run(input.daemon(&LANES)).await.unwrap();
    let whole = World::new();
    whole.run(input.daemon(&LANES)).await.unwrap();
    assert_eq!(world.payloads().await, whole.payloads().await);
}

/// A bound of the jobs holds the awaited lane, too, so nobody takes it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_a_bound_holds_is_not_taken_over() {
    let world = World::new();
    let mut input = Input::write(&world);
    input.0.ahead.max_steps = 10;
    input.0.ahead.lane_lead = 2;
    let running = [&LANES[..2], &LANES[2..]].map(|own| world.spawn(input.taking_over(own, 60)));
    world.wait_for_batches(5).await;
    let epochs = async || {
        let log = world.open_log().await;
        let epochs = log
            .manifest()
            .producers()
            .map(|(_, p)| p.epoch)
            .collect::<Vec<_>>();
        (log.manifest().next_step(), epochs)
    };
    // Before the bound was reached a slow machine may have caused takeovers; then there are none.
    let settled = async {
        loop {
            let before = epochs().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            if epochs().await == before {
                return before.0;
            }
        }
    };
    let steps = tokio::time::timeout(Duration::from_mins(1), settled)
        .await
        .unwrap();
    // A batch may give steps to others that wait, and then would pass the bound.
    assert!((5..=10).contains(&steps), "{steps}");
    for (run, stop) in running {
        stop.cancel();
        run.await.unwrap().unwrap();
    }
}
