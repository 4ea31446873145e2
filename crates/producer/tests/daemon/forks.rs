//! Forks: producers go on exactly where those of the parent stood, wherever the fork begins, through kills, and with other
//! mixtures.

use std::time::Duration;

use batchweave_core::ids::{Hash, Seq};
use batchweave_core::manifest::state::Again;
use batchweave_core::stream::StreamOrder;
use batchweave_core::tgb::Digest;
use batchweave_producer::config::{Delete, PackingMode, ProducerConfig, RunLimit};
use batchweave_producer::{Outcome, RunError};

use crate::balanced::limited_to;
use crate::follow::{come, following, scene};
use crate::mixtures::set;
use crate::order::{documents, three};
use crate::shuffled_rows::shuffled;
use crate::stages::{BINS, Change, with_stages};
use crate::support::{Corpus, Random, World};

/// Several batches in each entry, in objects of some of them.
fn grouped(mut config: ProducerConfig, object_bytes: u64) -> ProducerConfig {
    config.commit.linger.0 = Duration::from_secs(5);
    config.packing.object_bytes.0 = object_bytes;
    config
}

/// Some steps of a stream of `steps`: its ends, and others by a seed.
fn some_steps(steps: usize, seed: u64) -> Vec<usize> {
    let mut random = Random(seed);
    let mut some: Vec<usize> = (0..6)
        .map(|_| (random.next() % steps as u64) as usize)
        .collect();
    some.extend([0, 1, steps - 1, steps]);
    some.sort_unstable();
    some.dedup();
    some
}

async fn goes_on_exactly(make: impl Fn(&World) -> ProducerConfig, seed: u64) {
    goes_on_exactly_over(make, &[], seed).await;
}

/// Sets these stages where `world` lacks them.
async fn set_stages(world: &World, config: &ProducerConfig, stages: &[(Seq, &'static str)]) {
    if stages.is_empty() {
        return;
    }
    world.open_producer(config.clone()).await;
    let known = world.open_log().await.manifest().stages().all.len();
    for (from, name) in &stages[known..] {
        Change::Stage(name).make(world, config, Ok(*from)).await;
    }
}

/// Forks a stream whose stages begin with these batches.
async fn goes_on_exactly_over(
    make: impl Fn(&World) -> ProducerConfig,
    stages: &[(Seq, &'static str)],
    seed: u64,
) {
    let parent = World::new();
    let config = grouped(make(&parent), 150_000);
    set_stages(&parent, &config, stages).await;
    parent.run(config.clone()).await.unwrap();
    let expected = parent.payloads().await;
    let mut repeated = 0;
    for step in some_steps(expected.len(), seed) {
        let plan = parent.plan_fork(step as u64, false).await;
        let producers = plan.state.producers.values();
        repeated += producers.map(|p| p.next_seq - p.made_from()).sum::<u64>();
        let child = parent.fork_by(&plan).await;
        set_stages(&child, &config, stages).await;
        // Killed a few times, most of them before the first batch of its own is committed.
        for kill in 0..3 {
            if child.crash(config.clone(), seed + step as u64, kill).await {
                break;
            }
        }
        child.run(config.clone()).await.unwrap();
        let found = child.payloads().await;
        assert_eq!(found.len(), expected.len() - step, "fork at {step}");
        assert!(found == expected[step..], "fork at {step}");
        assert!(child.ended().await);
        // A fork of the fork, inside its first entry and behind it.
        for more in [0, 2, 9] {
            let second = (step + more).min(expected.len());
            let grandchild = child.fork(second as u64, false).await;
            set_stages(&grandchild, &config, stages).await;
            grandchild.run(config.clone()).await.unwrap();
            let found = grandchild.payloads().await;
            assert!(
                found == expected[second..],
                "fork at {step}, and again at {second}"
            );
        }
    }
    assert!(repeated > 0, "no fork was inside an entry");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_of_tokens_has_the_batches_of_its_parent() {
    goes_on_exactly(three, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_of_whole_documents_has_the_batches_of_its_parent() {
    let whole = |world: &World| {
        let mut config = three(world);
        config.packing.mode = PackingMode::BestFit;
        config.packing.look_ahead = 40;
        config
    };
    goes_on_exactly(whole, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_inside_a_window_of_shuffled_rows_has_the_batches_of_its_parent() {
    goes_on_exactly(|world| shuffled(three(world), PackingMode::Concat), 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_inside_a_window_of_bins_has_the_batches_of_its_parent() {
    // The limit counts the batches of the parent, too.
    goes_on_exactly(|world| limited_to(world, 60), 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_around_stages_of_bins_has_the_batches_of_its_parent() {
    let staged = |world: &World| {
        let mut config = limited_to(world, 60);
        config.packing.mode = PackingMode::Concat;
        config.stream.seq_len = 70;
        with_stages(config, &[("bins", 2, 40, BINS), ("rows", 1, 90, 12)])
    };
    goes_on_exactly_over(staged, &[(13, "bins"), (36, "rows")], 7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_of_lanes_has_the_steps_of_its_parent() {
    let lanes = ["l0", "l1", "l2"];
    let parent = World::new();
    let mut config = grouped(three(&parent), 100_000);
    config.stream.order = StreamOrder::Lanes;
    config.stream.producers = lanes.map(str::to_owned).into();
    let daemon = |index: usize| {
        let mut config = config.clone();
        config.producer.name = lanes[index].to_owned();
        (config.producer.index, config.producer.of) = (index as u32, 3);
        config
    };
    // All batches of two lanes wait for those of the third.
    for index in [2, 0, 1] {
        parent.run(daemon(index)).await.unwrap();
    }
    let expected = parent.payloads().await;
    for (n, step) in some_steps(expected.len(), 5).into_iter().enumerate() {
        let child = parent.fork(step as u64, false).await;
        for index in [n % 3, (n + 1) % 3, (n + 2) % 3] {
            child.run(daemon(index)).await.unwrap();
        }
        assert!(child.ended().await);
        let found = child.payloads().await;
        assert_eq!(found.len(), expected.len() - step, "fork at {step}");
        assert!(found == expected[step..], "fork at {step}");
    }
}

/// The documents of the parent below the fork, and of the fork with other weights, are those of a run without either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_with_another_mixture_has_each_document_once() {
    let parent = World::new();
    let mut config = grouped(three(&parent), 150_000);
    config.packing.mode = PackingMode::BestFit;
    config.packing.look_ahead = 40;
    parent.open_producer(config.clone()).await;
    let early = [("web", 0.3), ("code", 0.6), ("math", 0.1)];
    set(&parent, &early, Ok(7)).await;
    parent.run(config.clone()).await.unwrap();
    let whole = documents(&parent).await;
    let (expected, sources) = (parent.payloads().await, parent.sources().await);
    for step in some_steps(expected.len() - 1, 6) {
        let plan = parent.plan_fork(step as u64, false).await;
        let child = parent.fork_by(&plan).await;
        // A mixture that begins at or before the fork is carried, a later one is not.
        assert_eq!(plan.state.mixture.id, u64::from(step >= 7), "{step}");
        child.open_producer(config.clone()).await;
        let other = [("web", 1.0), ("code", 0.2), ("math", 2.0)];
        set(&child, &other, Err(0)).await;
        child.run(config.clone()).await.unwrap();
        let mut found = documents(&child).await;
        for piece in sources[..step].iter().flat_map(|of| &of.pieces) {
            let shared = u64::from(piece.skip > 0);
            *found
                .entry((piece.pass, piece.file, piece.unit))
                .or_insert(0) += piece.items - shared;
        }
        // A row of padding at the end, and pieces that go on repeat a token.
        let differs = whole
            .iter()
            .filter(|(key, items)| found.get(key) != Some(items));
        let differs: Vec<_> = differs
            .map(|(key, items)| (key, items, found.get(key)))
            .collect();
        assert!(differs.is_empty(), "fork at {step}: {differs:?}");
        assert_eq!(found.len(), whole.len(), "fork at {step}");
    }
}

/// Files that joined one after another, and not in the order of their names. Those that the parent knew at the fork keep
/// their order; the others join at once, by name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_of_input_that_grows_takes_the_files_as_they_joined() {
    let parent = World::new();
    let (corpus, files, folder) = scene(&parent, 3);
    let config = || {
        let mut config = grouped(following(&folder), 3_000);
        config.commit.linger.0 = Duration::from_millis(50);
        config
    };
    let lines = |files: &[usize]| {
        let all = corpus.lines.len();
        let of = files
            .iter()
            .map(|file| all * file / 6..all * (file + 1) / 6);
        let lines = of.flat_map(|range| corpus.lines[range].to_vec());
        Corpus::expected_of_lines(&lines.collect::<Vec<_>>())
    };
    let joined = [4, 1, 5, 0];
    let mut repeated = 0;
    for n in 1..=joined.len() {
        come(&files[joined[n - 1]], &folder);
        let (task, stop) = parent.spawn(config());
        parent.wait_for_batches(lines(&joined[..n]).len()).await;
        stop.cancel();
        task.await.unwrap().unwrap();
    }
    let steps = parent.batches().await.len();
    for step in some_steps(steps, 7) {
        let plan = parent.plan_fork(step as u64, false).await;
        let producers = plan.state.producers.values();
        repeated += producers.map(|p| p.next_seq - p.made_from()).sum::<u64>();
        let known = plan.files.get(&"a".parse().unwrap()).map_or(0, Vec::len);
        let mut order = joined[..known].to_vec();
        order.extend(
            [0, 1, 4, 5]
                .iter()
                .filter(|file| !joined[..known].contains(file)),
        );
        let expected = lines(&order);
        let child = parent.fork_by(&plan).await;
        let (task, stop) = child.spawn(config());
        child.wait_for_batches(expected.len()).await;
        stop.cancel();
        task.await.unwrap().unwrap();
        let found = child.batches().await;
        assert!(
            found == expected[step..],
            "fork at {step}, {known} files known"
        );
    }
    assert!(repeated > 0, "no fork was inside an entry");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_makes_other_batches_than_the_parent_is_refused() {
    let parent = World::new();
    let config = grouped(three(&parent), 150_000);
    parent.run(config.clone()).await.unwrap();
    let repeats = |plan: &batchweave_log::ForkPlan| {
        let p = &plan.state.producers[&"a".parse().unwrap()];
        p.next_seq - p.made_from()
    };
    for step in 1.. {
        let mut plan = parent.plan_fork(step, false).await;
        if repeats(&plan) == 0 {
            continue;
        }
        let p = plan.state.producers.get_mut(&"a".parse().unwrap()).unwrap();
        let mut again: Again = p.again.as_deref().unwrap().clone();
        *again.digests.last_mut().unwrap() = Digest([9; 32]);
        p.again = Some(again.into());
        plan.parent.state = Hash::sha256(&plan.state.to_json());
        let child = parent.fork_by(&plan).await;
        let why = child.run(config.clone()).await.unwrap_err();
        assert!(matches!(why, RunError::OtherThanParent { .. }), "{why}");
        let text = format!(
            "producer a makes batch {} otherwise than the parent",
            step - 1
        );
        assert!(why.to_string().contains(&text), "{why}");
        assert!(child.payloads().await.is_empty(), "nothing was committed");
        // Input that ends earlier than the parent's.
        let mut less = config.clone();
        less.producer.limit = RunLimit::Batches(step - 1);
        let child = parent.fork(step, false).await;
        let why = child.run(less).await.unwrap_err().to_string();
        assert!(
            why.contains(&format!("ends before batch {}", step - 1)),
            "{why}"
        );
        assert!(!child.ended().await);
        return;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_fork_begins_the_input_anew() {
    let parent = World::new();
    let config = grouped(three(&parent), 150_000);
    parent.run(config.clone()).await.unwrap();
    let expected = parent.payloads().await;
    let child = parent.fork(5, true).await;
    let outcome = child.run(config).await.unwrap();
    let batches = expected.len() as u64;
    assert!(matches!(outcome, Outcome::Finished { batches: n } if n == batches));
    assert!(child.payloads().await == expected);
    assert_eq!(child.open_log().await.manifest().next_step(), 5 + batches);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_refuses_to_delete_files_of_an_inbox() {
    let parent = World::new();
    let config = three(&parent);
    parent.run(config.clone()).await.unwrap();
    let child = parent.fork(3, false).await;
    let mut deleting = config;
    deleting.sources[0].inbox = true;
    deleting.inbox.delete = Delete::Committed;
    let why = child.run(deleting).await.unwrap_err();
    assert!(matches!(why, RunError::SharedInbox(_)), "{why}");
    assert!(
        why.to_string().contains("fork that begins at step 3"),
        "{why}"
    );
}
