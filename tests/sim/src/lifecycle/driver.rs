//! The real search for steps and the real rules of `batchweave mixture drive`, in a process that is killed, frozen, or runs
//! beside another one. Only its sources and the batches that a change begins with are those of the simulated producers.

use std::sync::Arc;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::job::JobSelector;
use batchweave_core::drive::{Decision, DriveSettings, KnownSource, Plan, PlanError, Why};
use batchweave_core::manifest::Entry;
use batchweave_core::proof::LineageError;
use batchweave_log::{Log, LogError};
use batchweave_verify::{FollowedRun, PassedWindows, Window};

use super::reports::SOURCES;
use crate::actor::Nature;
use crate::plan::lifecycle::DriverPlan;
use crate::world::forward::options;
use crate::world::operator::{mixture, whole_producers};
use crate::world::person::Person;
use crate::world::shared::Shared;

/// The pause after an error, or the death of a process.
const AGAIN: Duration = Duration::from_millis(500);
/// A driver ends this long after the last fault at the latest: a world that is stuck has nothing more for it.
const LIVES: Duration = Duration::from_mins(10);
/// Most batches of a producer between the last committed one and the first of a change.
const AHEAD: u64 = 4;

/// Runs one process of a driver after another until all jobs have read their steps.
pub(super) async fn supervise(shared: Arc<Shared>, job: u32, number: usize, plan: DriverPlan) {
    for process in 0.. {
        let nature = Nature {
            dies: plan.deaths.get(process).copied(),
            stalls: plan.stalls.clone(),
            ..Nature::default()
        };
        let name = format!("driver{number}#{process}");
        let person = Person::with(&shared, &name, nature);
        let actor = Arc::clone(&person.actor);
        let died = tokio::select! {
            biased;
            () = actor.died() => true,
            () = drive(&person, job, &plan) => false,
        };
        if !died {
            return;
        }
        shared.store.note(&actor, "died");
        shared.store.time.sleep(AGAIN).await;
    }
}

/// Follows the run until it is over. Begins anew after an error of the store, and until the job is open.
async fn drive(person: &Person, job: u32, plan: &DriverPlan) {
    while !is_over(person) {
        match follow(person, job, plan).await {
            Ok(()) | Err(CliError::Store(_) | CliError::Absent(_)) => {}
            Err(CliError::Log(e)) if person.shared.may_pass(&e) => {}
            Err(e) => {
                let text = format!("{} stopped: {e}", person.actor.name);
                return person.shared.found("driver-error", person.actor.id, text);
            }
        }
        person.sleep(AGAIN).await;
    }
}

fn is_over(person: &Person) -> bool {
    let shared = &person.shared;
    shared.trained() || shared.store.time.now() > shared.plan.calm_at + LIVES
}

async fn follow(person: &Person, job: u32, plan: &DriverPlan) -> Result<(), CliError> {
    let selector = JobSelector {
        name: super::name(job),
        opened: None,
    };
    let read = options(&person.shared, &person.actor, false);
    let mut run = FollowedRun::open_with(Arc::clone(&person.store), selector, read).await?;
    let mut log = person.log().await?;
    let mut passed = PassedWindows::default();
    let settings = settings(plan);
    while !is_over(person) {
        person.sleep(plan.poll).await;
        run.refresh().await?;
        let now = person.shared.store.time.now();
        if let Some(decision) = look(&mut run, &settings, &mut passed, now).await? {
            commit(person, &decision, &mut log).await?;
        }
    }
    Ok(())
}

fn settings(plan: &DriverPlan) -> DriveSettings {
    DriveSettings {
        rule: "odm".to_owned(),
        every: plan.every,
        floor: 0.01,
        ceiling: 1.0,
        step_bound: 1.0,
        warm_up: 0,
        sum: false,
        targets: std::collections::BTreeMap::new(),
        function: None,
    }
}

/// Looks at the run once, and decides when all is there.
async fn look(
    run: &mut FollowedRun,
    settings: &DriveSettings,
    passed: &mut PassedWindows,
    now: Duration,
) -> Result<Option<Decision>, CliError> {
    let unsound = |why: &dyn std::fmt::Display| CliError::Unsound(why.to_string());
    if run.record()?.closed.is_some() {
        return Ok(None);
    }
    let plan = match Plan::new(run.mixtures(), run.manifest(), run.record()?, settings) {
        Ok(plan) => plan,
        // Rootless: a job that lost its data began again without a checkpoint.
        Err(
            PlanError::NoAttempt(_)
            | PlanError::NotWhole(_)
            | PlanError::Lineage(LineageError::Rootless { .. }),
        ) => return Ok(None),
        Err(why) => return Err(unsound(&why)),
    };
    let Window::Ready(losses) = run.window(&plan, passed, now).await? else {
        return Ok(None);
    };
    let (steps, sums) = (&losses.steps, &losses.sums);
    let record = run.record()?;
    let known = known(plan.after.as_ref().map(|(_, why)| why));
    let mut why = plan
        .reason(settings, record, steps, sums, losses.read, &known)
        .map_err(|why| unsound(&why))?;
    why.decide(std::collections::BTreeMap::new())
        .map_err(|why| unsound(&why))?;
    let newest = record.attempts.last();
    Ok(newest.map(|newest| Decision {
        why,
        mixture: plan.mixture,
        attempt: newest.state.id,
    }))
}

/// Returns the sources with the shares of the change before.
fn known(before: Option<&Why>) -> Vec<KnownSource> {
    let share = |number: u16| {
        let mut sources = before.iter().flat_map(|why| &why.sources);
        let one = sources.find(|one| one.number == number);
        one.map_or(1.0 / f64::from(SOURCES), |one| one.share)
    };
    let source = |number| KnownSource {
        number,
        name: format!("s{number}"),
        share: share(number),
    };
    (0..SOURCES).map(source).collect()
}

async fn commit(person: &Person, decision: &Decision, log: &mut Log) -> Result<(), LogError> {
    let ahead = person.actor.draw(|draw| draw.range(0..AHEAD));
    let from = whole_producers(&person.shared).map(|name| (name, ahead));
    let make = mixture(person, from.collect());
    let version = log
        .commit_if(&person.actor.name, |m| {
            if !decision.is_valid(m) {
                return Ok::<_, LogError>(None);
            }
            Ok(Some(match make(m) {
                Entry::Mixture(mut entry) => {
                    entry.why = Some(decision.why.to_json());
                    Entry::Mixture(entry)
                }
                other => other,
            }))
        })
        .await?;
    let (from, to) = (decision.why.from, decision.why.to);
    let text = match version {
        Some(version) => format!("changed the mixture by steps {from} to {to} in {version}"),
        None => format!("was overtaken with steps {from} to {to}"),
    };
    person.shared.store.note(&person.actor, text);
    Ok(())
}
