//! Each deliberate mistake in the code under simulation is found within 300 seeds: those of the
//! commit path in faulty worlds, those of the lifecycle in lifecycle worlds, rare ones in worlds where they matter.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use batchweave_core::guards::{Mutation, set};
use batchweave_sim::check::check;
use batchweave_sim::command::faults::explain_within;
use batchweave_sim::plan::Plan;
use batchweave_sim::plan::lifecycle::{DaemonPlan, DriverPlan};
use batchweave_sim::store::link::LinkPlan;
use batchweave_sim::world::run;

/// The seed of a small world that finds each mistake, as `make mutation-seeds` prints them. They only save time: where one
/// finds nothing any more, all seeds are tried.
const SEEDS: &str = include_str!("mutation_seeds.txt");
const SEEDS_MAX: u64 = 300;
/// Runs in which a failing world is made smaller; `batchweave-sim` takes more.
const RUNS_MAX: usize = 25;
/// Draws the world of a seed.
type Worlds = fn(u64) -> Plan;
/// The find of a mistake: the seed, the names of the checks, and the text of the first.
type Find = (u64, String, String);

/// Returns the first of `seeds` that finds the mistake. The seeds in `honest` are known to break no rule
/// without one.
fn found_by(
    mutation: Mutation,
    worlds: Worlds,
    mut seeds: impl Iterator<Item = u64>,
    honest: &mut BTreeSet<u64>,
) -> Option<Find> {
    let mut try_seed = |seed| {
        set(Some(mutation));
        let plan = world(worlds, seed);
        let evidence = run(&plan).unwrap();
        // The checks fold, too: without the mistake.
        set(None);
        let found = check(&evidence);
        let first = found.first()?;
        // The world itself must break no rule.
        if honest.insert(seed) {
            let alone = check(&run(&plan).unwrap());
            assert!(alone.is_empty(), "seed {seed} alone: {}", alone[0].text);
        }
        let checks: BTreeSet<_> = found.iter().map(|v| v.check).collect();
        let checks: Vec<_> = checks.into_iter().collect();
        Some((seed, checks.join(", "), first.text.clone()))
    };
    seeds.find_map(&mut try_seed)
}

fn world(worlds: Worlds, seed: u64) -> Plan {
    let mut plan = worlds(seed);
    plan.link = LinkPlan::default();
    plan
}

/// Returns the recorded seed of a mistake.
fn recorded(mutation: Mutation) -> Option<u64> {
    let name = format!("{mutation:?}");
    let mut lines = SEEDS.lines().filter_map(|line| line.split_once(' '));
    let (_, seed) = lines.find(|(recorded, _)| *recorded == name)?;
    seed.parse().ok()
}

fn are_found(mutations: &[Mutation], worlds: Worlds) {
    let (mut missed, mut honest) = (Vec::new(), BTreeSet::new());
    for mutation in mutations.iter().copied() {
        let (known, all) = (recorded(mutation), 0..SEEDS_MAX);
        match found_by(mutation, worlds, known.into_iter().chain(all), &mut honest) {
            Some((seed, check, text)) => {
                println!("{mutation:?}: seed {seed}, by {check}: {text}");
                if known != Some(seed) {
                    println!(
                        "{mutation:?}: its recorded seed found nothing: `make mutation-seeds`"
                    );
                }
            }
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "not found within 300 seeds: {missed:?}");
}

#[test]
fn every_mistake_is_found() {
    are_found(&Mutation::ALL, Plan::draw);
}

/// Mistakes of the commit path with stages. The model of stages finds the others, which need an operator who errs.
const STAGES: [Mutation; 2] = [Mutation::AnyStage, Mutation::StagesForgotten];

#[test]
fn mistakes_with_stages_are_found() {
    are_found(&STAGES, Plan::draw);
}

#[test]
fn every_mistake_of_the_lifecycle_is_found() {
    are_found(&lifecycle(), Plan::draw_lifecycle);
}

fn lifecycle() -> Vec<Mutation> {
    let rare = [Mutation::EarlierMarks, Mutation::FewerThanKept];
    let all = Mutation::LIFECYCLE.into_iter();
    all.filter(|mutation| !rare.contains(mutation)).collect()
}

fn consumer() -> Vec<Mutation> {
    let rare = [Mutation::EarlierHoles, Mutation::WideProgress];
    let all = Mutation::CONSUMER.into_iter();
    all.filter(|mutation| !rare.contains(mutation)).collect()
}

/// Jobs that stop soon after a restart: their newest attempt has fewer restart points than they
/// keep.
fn short_attempts(seed: u64) -> Plan {
    let mut plan = Plan::draw_lifecycle(seed);
    for job in plan.life.iter_mut().flat_map(|life| &mut life.jobs) {
        (job.keep, job.mark_every, job.abandons) = (3, 5, Some(32));
        // No job may stop reading while producers wait for it.
        job.paces = false;
    }
    plan
}

#[test]
fn marks_of_earlier_attempts_that_are_not_listed_are_missed() {
    are_found(&[Mutation::EarlierMarks], short_attempts);
}

#[test]
fn fewer_restart_points_than_kept_release_no_step() {
    are_found(&[Mutation::FewerThanKept], short_attempts);
}

/// Jobs whose first rank marks for all, on two machines: when an attempt with fewer ranks begins, the ledgers
/// of the others may lack steps.
fn shrinking_attempts(seed: u64) -> Plan {
    let mut plan = Plan::draw_lifecycle(seed);
    for job in plan.life.iter_mut().flat_map(|life| &mut life.jobs) {
        (job.rank0, job.paces, job.mark_every) = (true, false, 2);
        let machine = job.daemons.first().cloned().unwrap_or_default();
        job.daemons.resize(2, machine);
        for attempt in &mut job.attempts {
            attempt.dp_size = 4;
        }
    }
    plan
}

#[test]
fn holes_of_earlier_attempts_that_are_left_are_found() {
    are_found(&[Mutation::EarlierHoles], shrinking_attempts);
}

#[test]
fn every_mistake_of_the_consumer_is_found() {
    are_found(&consumer(), Plan::draw_lifecycle);
}

/// Jobs of one attempt that stop without closing, on two machines, each with coordinates that are not neighbours: the
/// positions that were stored last stay.
fn strangers_on_machines(seed: u64) -> Plan {
    let mut plan = Plan::draw_lifecycle(seed);
    for job in plan.life.iter_mut().flat_map(|life| &mut life.jobs) {
        (job.keep, job.mark_every, job.abandons) = (1, 2, Some(32));
        (job.holds, job.paces, job.rank0, job.progress_every) = (true, false, false, 1);
        job.daemons = vec![DaemonPlan::default(); 2];
        job.attempts.truncate(1);
        for attempt in &mut job.attempts {
            (attempt.dp_size, attempt.lives) = (4, Duration::from_hours(1));
        }
    }
    plan
}

#[test]
fn stored_positions_of_other_coordinates_are_missed() {
    are_found(&[Mutation::WideProgress], strangers_on_machines);
}

/// Jobs with two drivers that look often, and attempts that go back.
fn driven(seed: u64) -> Plan {
    let mut plan = Plan::draw_lifecycle(seed);
    for producer in &mut plan.producers {
        // A mixture begins with no batch within an object.
        producer.shared = 1;
    }
    let jobs = plan.life.iter_mut().flat_map(|life| &mut life.jobs);
    if let Some(job) = jobs.take(1).next() {
        job.drivers = vec![
            DriverPlan {
                every: 2,
                poll: Duration::from_millis(200),
                ..DriverPlan::default()
            };
            2
        ];
        (job.holds, job.keep) = (true, 3);
        for attempt in &mut job.attempts {
            attempt.back = 2;
        }
    }
    plan
}

#[test]
fn mistakes_of_a_driver_are_found() {
    are_found(&Mutation::DRIVER, driven);
}

/// Prints the content of `mutation_seeds.txt`: for each mistake the world that finds it in the least time.
#[test]
#[ignore = "prints seeds; make mutation-seeds runs it"]
fn mutation_seeds() {
    set(None);
    let groups: [(Vec<Mutation>, Worlds); 7] = [
        ([Mutation::ALL.as_slice(), &STAGES].concat(), Plan::draw),
        ([lifecycle(), consumer()].concat(), Plan::draw_lifecycle),
        (vec![Mutation::EarlierMarks], short_attempts),
        (vec![Mutation::FewerThanKept], short_attempts),
        (vec![Mutation::EarlierHoles], shrinking_attempts),
        (vec![Mutation::WideProgress], strangers_on_machines),
        (Mutation::DRIVER.to_vec(), driven),
    ];
    for (mutations, worlds) in groups {
        let timed = |seed| {
            let begin = Instant::now();
            check(&run(&world(worlds, seed)).unwrap());
            (begin.elapsed(), seed)
        };
        let mut seeds: Vec<_> = (0..SEEDS_MAX).map(timed).collect();
        seeds.sort_unstable();
        let mut honest = BTreeSet::new();
        for mutation in mutations {
            let quickest = seeds.iter().map(|(_, seed)| *seed);
            match found_by(mutation, worlds, quickest, &mut honest) {
                Some((seed, ..)) => println!("{mutation:?} {seed}"),
                None => panic!("{mutation:?} is not found within {SEEDS_MAX} seeds"),
            }
        }
    }
}

/// A failing world is made smaller, and its story names the broken rule and the requests.
#[test]
fn a_failing_world_is_explained() {
    set(Some(Mutation::NextAfterUnknown));
    let known = recorded(Mutation::NextAfterUnknown).into_iter();
    let (evidence, violations) = known
        .chain(0..SEEDS_MAX)
        .map(|seed| run(&world(Plan::draw, seed)).unwrap())
        .map(|evidence| {
            let violations = check(&evidence);
            (evidence, violations)
        })
        .find(|(_, violations)| !violations.is_empty())
        .unwrap();
    let story = explain_within(evidence, violations, RUNS_MAX).unwrap();
    set(None);
    println!("{story}");
    for part in [
        "the smallest world found",
        "sends create log/",
        "what led there",
    ] {
        assert!(story.contains(part), "{part}");
    }
}
