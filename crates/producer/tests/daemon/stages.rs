//! Stages in a run: the same batches however the producer is killed and whenever it learns of a stage, the batches before it
//! as without it, and a producer that holds where it lacks one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use batchweave_core::ids::Seq;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{Stage, StageMixture};
use batchweave_core::order::{MixtureSpec, NumberedMixture, named_weights};
use batchweave_producer::Outcome;
use batchweave_producer::config::{
    DocumentKind, LastBatch, PackingMode, ProducerConfig, StageConfig, StagePackingConfig,
};
use batchweave_producer::packing::Extra;
use batchweave_producer::transform::DocumentTransform;

use crate::formats::chat;
use crate::mixtures::set as set_mixture;
use crate::order::three;
use crate::support::{Corpus, World, seeds};

/// A stage: its name, its rows per slice and tokens per row, and its look-ahead; 0 for `concat`, [`BINS`] for `balanced`.
pub(crate) type Shape = (&'static str, u32, u32, usize);

/// In place of the look-ahead of a stage of bins.
pub(crate) const BINS: usize = usize::MAX;

pub(crate) fn with_stages(mut config: ProducerConfig, shapes: &[Shape]) -> ProducerConfig {
    let stage = |(name, rows_per_slice, seq_len, look_ahead): &Shape| StageConfig {
        name: (*name).to_owned(),
        seq_len: *seq_len,
        rows_per_slice: *rows_per_slice,
        packing: StagePackingConfig {
            mode: Some(match (config.documents(), *look_ahead) {
                (_, BINS) => PackingMode::Balanced,
                (DocumentKind::Conversation, _) => PackingMode::Chat,
                (_, 0) => PackingMode::Concat,
                _ => PackingMode::BestFit,
            }),
            look_ahead: (1..BINS).contains(look_ahead).then_some(*look_ahead),
        },
        weights: BTreeMap::new(),
    };
    config.stages = shapes.iter().map(stage).collect();
    config
}

/// Begins the stage `name` of `config` with a batch of producer `a`, or a number of batches after its last one.
pub(crate) async fn set(
    world: &World,
    config: &ProducerConfig,
    name: &str,
    from: Result<Seq, Seq>,
) -> Seq {
    let transform = DocumentTransform::new(config).unwrap();
    let state = transform.configured_stage(name).unwrap();
    let own = config
        .stages
        .iter()
        .find(|stage| stage.name == name)
        .unwrap();
    let mut log = world.open_log().await;
    let request = log.new_request();
    let producer = "a".parse().unwrap();
    let mut at = 0;
    log.commit_entry("test", |m| {
        let next = m.producer(&producer).unwrap().next_seq;
        let own_state = m.producer(&producer).unwrap();
        let earlier = own_state.stages.keys().chain(own_state.mixtures.keys());
        let earlier = earlier.max();
        let earlier = earlier.copied().unwrap_or(0);
        at = from.unwrap_or_else(|after| (next + after).max(earlier));
        let from: BTreeMap<_, _> = [(producer.clone(), at)].into();
        let mixture = (!own.weights.is_empty()).then(|| {
            let id = m.mixture().id + 1;
            let weights = named_weights(&own.weights).unwrap();
            let from = from.clone();
            let spec = MixtureSpec::read(&m.mixture().spec).unwrap();
            let spec = spec
                .with(NumberedMixture { id, weights, from }, 0)
                .to_json();
            StageMixture { id, spec }
        });
        Entry::Stage(Stage {
            request,
            id: m.stages().newest() + 1,
            name: state.name.clone(),
            from,
            rows_per_slice: state.rows_per_slice,
            seq_len: state.seq_len,
            form: state.form.clone(),
            fingerprint: state.fingerprint,
            mixture,
        })
    })
    .await
    .unwrap();
    at
}

/// Runs `config` with all stages and mixtures known from its start.
pub(crate) async fn expected(
    config: &ProducerConfig,
    changes: &[(Seq, Change)],
) -> Vec<Vec<Vec<u8>>> {
    let world = World::new();
    world.open_producer(config.clone()).await;
    for (from, change) in changes {
        change.make(&world, config, Ok(*from)).await;
    }
    world.run(config.clone()).await.unwrap();
    world.payloads().await
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Stage(&'static str),
    Mixture(&'static [(&'static str, f64)]),
}

impl Change {
    pub(crate) async fn make(
        self,
        world: &World,
        config: &ProducerConfig,
        from: Result<Seq, Seq>,
    ) -> Seq {
        match self {
            Self::Stage(name) => set(world, config, name, from).await,
            Self::Mixture(weights) => set_mixture(world, weights, from).await,
        }
    }
}

/// Kills the producer at instants that the seed draws; sets each change when a number of batches is committed.
pub(crate) async fn stages_do_not_depend_on_kills(
    seeds: Range<u64>,
    planned: &[(usize, Seq, Change)],
    make: impl Fn(&World) -> ProducerConfig,
) {
    let mut complete = 0;
    for seed in seeds {
        let world = World::new();
        let made = make(&world);
        let config = || {
            let mut config = made.clone();
            config.commit.max_batches = 1 + seed as usize % 3;
            config.packing.object_bytes.0 = [1, 3000, 1 << 20][seed as usize % 3];
            config
        };
        let (mut changes, mut kills) = (Vec::new(), 0);
        while !world.crash(config(), 0x57a6e + seed, kills).await {
            kills += 1;
            assert!(kills < 2000, "seed {seed}: no progress");
            let committed = world.payloads().await.len();
            while let Some((when, after, change)) = planned.get(changes.len()) {
                if committed < (*when).max(1) {
                    break;
                }
                let from = change.make(&world, &made, Err(*after)).await;
                changes.push((from, *change));
            }
        }
        let found = world.payloads().await;
        // A short run may end before it is killed, or before the last change.
        complete += u64::from(changes.len() == planned.len() && kills > 1);
        let expected = expected(&made, &changes).await;
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}, changes {changes:?}");
        assert_eq!(found.len(), expected.len(), "seed {seed}");
    }
    assert!(complete > 0, "no run was killed behind all changes");
}

/// Begins each stage behind the last batch while a producer, whose configuration `change` completes, runs.
pub(crate) async fn stages_begin_where_the_log_says(
    shapes: &[Shape],
    change: impl Fn(ProducerConfig) -> ProducerConfig,
) {
    let world = World::new();
    let config = World::config(&Corpus::new(3, 1500).write(&world, 3), "a");
    let config = with_stages(change(config), shapes);
    let (running, _stop) = world.spawn(config.clone());
    let mut changes = Vec::new();
    for (n, (name, ..)) in shapes.iter().enumerate() {
        world.wait_for_batches(8 * (n + 1)).await;
        if running.is_finished() {
            break;
        }
        let from = set(&world, &config, name, Err(0)).await;
        changes.push((from, Change::Stage(name)));
    }
    let outcome = running.await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Finished { .. }));
    let found = world.payloads().await;
    changes.retain(|(from, _)| *from < found.len() as Seq);
    assert!(!changes.is_empty());
    assert!(found == expected(&config, &changes).await, "{changes:?}");
}

const SHAPES: [Shape; 3] = [
    ("long", 1, 60, 0),
    ("packed", 3, 24, 9),
    ("again", 2, 16, 0),
];
const ALL: [(usize, Seq, Change); 3] = [
    (3, 2, Change::Stage("long")),
    (9, 0, Change::Stage("packed")),
    (14, 5, Change::Stage("again")),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_of_one_sequence_do_not_depend_on_kills() {
    stages_do_not_depend_on_kills(seeds(3, 12), &ALL, |world| {
        let mut config = World::config(&Corpus::new(1, 150).write(world, 3), "a");
        config.packing.last_batch = LastBatch::Pad;
        with_stages(config, &SHAPES)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_of_whole_documents_do_not_depend_on_kills() {
    // Two stages within one look-ahead, and a smaller one.
    let planned = [
        (3, 1, Change::Stage("packed")),
        (3, 2, Change::Stage("long")),
        (12, 3, Change::Stage("again")),
    ];
    stages_do_not_depend_on_kills(seeds(3, 12), &planned, |world| {
        let mut config = World::config(&Corpus::new(5, 150).write(world, 2), "a");
        config.packing.mode = PackingMode::BestFit;
        config.packing.look_ahead = 30;
        config.packing.fields = Extra::ALL.to_vec();
        config.packing.last_batch = LastBatch::Pad;
        with_stages(
            config,
            &[
                ("packed", 1, 20, 4),
                ("long", 1, 70, 12),
                ("again", 2, 16, 30),
            ],
        )
    })
    .await;
}

/// Stages and mixtures of several sources, close to each other: a mixture begins behind the documents that wait at its batch,
/// also where the packer of the stage looks less far ahead than that before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_and_mixtures_of_three_sources_do_not_depend_on_kills() {
    let planned = [
        (4, 3, Change::Stage("packed")),
        (
            4,
            5,
            Change::Mixture(&[("web", 0.2), ("code", 0.7), ("math", 0.1)]),
        ),
        (12, 2, Change::Stage("long")),
        (
            20,
            0,
            Change::Mixture(&[("web", 1.0), ("code", 1.0), ("math", 2.0)]),
        ),
    ];
    stages_do_not_depend_on_kills(seeds(2, 6), &planned, |world| {
        let mut config = three(world);
        config.packing.mode = PackingMode::BestFit;
        config.packing.look_ahead = 60;
        let mut config = with_stages(config, &[("packed", 2, 1500, 5), ("long", 1, 5000, 0)]);
        let weights = [("web", 1.0), ("code", 2.0), ("math", 0.5)];
        config.stages[1].weights = weights
            .map(|(name, weight)| (name.to_owned(), weight))
            .into();
        config
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_of_conversations_do_not_depend_on_kills() {
    let planned = [(2, 1, Change::Stage("short"))];
    stages_do_not_depend_on_kills(seeds(2, 8), &planned, |world| {
        let mut config = chat(world, "chat.jsonl");
        config.packing.last_batch = LastBatch::Pad;
        config.packing.look_ahead = 20;
        (config.stream.rows_per_slice, config.stream.seq_len) = (1, 100);
        with_stages(config, &[("short", 1, 60, 7)])
    })
    .await;
}

/// Stages that begin at once, while the producer has made batches beyond: it goes back, and no token is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_during_a_run_begin_where_the_log_says() {
    stages_begin_where_the_log_says(&SHAPES, |config| config).await;
}

/// The producer commits all batches before a stage that it lacks, holds, and goes on when another stage is set there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_holds_before_a_stage_that_it_lacks() {
    let world = World::new();
    let config = World::config(&Corpus::new(2, 200).write(&world, 2), "a");
    let known = with_stages(config.clone(), &[("known", 1, 24, 0)]);
    let both = with_stages(config, &[("known", 1, 24, 0), ("other", 1, 48, 0)]);
    world.open_producer(known.clone()).await;
    set(&world, &both, "other", Ok(7)).await;
    let (running, stop) = world.spawn(known.clone());
    world.wait_for_batches(7).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!running.is_finished(), "it holds");
    assert_eq!(world.payloads().await.len(), 7);
    stop.cancel();
    let stopped = Outcome::Stopped { batches: Some(7) };
    assert_eq!(running.await.unwrap().unwrap(), stopped);
    let (running, _stop) = world.spawn(known.clone());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!running.is_finished(), "also after a restart");
    assert_eq!(set(&world, &known, "known", Ok(7)).await, 7);
    let outcome = tokio::time::timeout(Duration::from_mins(1), running).await;
    assert!(matches!(
        outcome.unwrap().unwrap().unwrap(),
        Outcome::Finished { .. }
    ));
    let expected = expected(&known, &[(7, Change::Stage("known"))]).await;
    assert!(world.payloads().await == expected);
}

/// The settings of a stage that has begun may not change; further stages may be added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_that_has_begun_stays_as_it_is() {
    let world = World::new();
    let config = World::config(&Corpus::new(2, 200).write(&world, 2), "a");
    let first = with_stages(config.clone(), &[("long", 1, 24, 0)]);
    world.open_producer(first.clone()).await;
    set(&world, &first, "long", Ok(4)).await;
    world.run_until_more_than(4, first.clone()).await;
    let other = with_stages(config.clone(), &[("long", 1, 25, 0)]);
    let why = world.run(other).await.unwrap_err().to_string();
    assert!(
        why.contains("stages: was") && why.contains("\"seq_len\":25"),
        "{why}"
    );
    let without = world.run(config.clone()).await.unwrap_err().to_string();
    assert!(without.contains("stages: was"), "{without}");
    let more = with_stages(config, &[("long", 1, 24, 0), ("later", 2, 9, 0)]);
    assert!(matches!(
        world.run(more).await.unwrap(),
        Outcome::Finished { .. }
    ));
}
