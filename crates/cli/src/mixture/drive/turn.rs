//! One look at the log, the states of steps and their losses: the driver waits, or decides.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use batchweave_console::CliError;
use batchweave_console::output::{count, range};
use batchweave_core::drive::{Plan, PlanError, Why, WindowSums, has_enough};
use batchweave_core::ids::{AttemptId, Step};
use batchweave_core::proof::JobRecord;
use batchweave_verify::{FollowedRun, MissingState, RunLosses};

use super::settings::Driver;
use super::{function, sources};

/// Time in which losses are stored, or lost: daemons keep them for 90 s without a store.
const VALUES_WITHIN: Duration = Duration::from_mins(5);

/// The result of one look.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) result: Turn,
    /// The steps that were passed over: too few of their values are stored.
    pub(super) without_values: Vec<(Step, Step)>,
}

#[derive(Debug)]
pub(super) enum Turn {
    Wait(Waiting),
    Decide(Box<Decision>),
}

/// A change that is due.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) why: Why,
    /// The newest mixture and the newest attempt when it was decided: with others it is void.
    pub(super) mixture: u64,
    pub(super) attempt: AttemptId,
}

/// The reason for waiting, in words.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) text: String,
    /// The actor that has to go on first: the text has its progress, too.
    pub(super) actor: String,
}

impl Waiting {
    fn state(missing: &MissingState, steps: &Range<Step>) -> Self {
        let others = match missing.coordinates.saturating_sub(1) {
            0 => String::new(),
            n => format!(", like {}", count(n, "other coordinate")),
        };
        let actor = format!(
            "coordinate {} of attempt {}",
            missing.dp_rank, missing.attempt
        );
        let (needed, first) = (range(steps.start, steps.end), missing.steps.start);
        Self {
            text: format!(
                "steps {needed} are needed, and {actor} has no report of step {first}{others}"
            ),
            actor,
        }
    }

    fn stream(steps: &Range<Step>, head: Step) -> Self {
        let needed = range(steps.start, steps.end);
        let has = count(head, "step");
        Self {
            text: format!("steps {needed} are needed, and the stream has {has}"),
            actor: "the stream".to_owned(),
        }
    }

    fn plan(why: &PlanError) -> Self {
        let actor = match why {
            PlanError::NotWhole(not_whole) => not_whole.producer.to_string(),
            _ => "the job".to_owned(),
        };
        Self {
            text: why.to_string(),
            actor,
        }
    }

    pub(super) fn overtaken() -> Self {
        Self {
            text: "another mixture or attempt came first, so this decision is void".to_owned(),
            actor: String::new(),
        }
    }
}

/// Windows that had too few values when they were looked at, each with the time of the first look.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Mixture and attempt of the plan that counts windows.
    plan: (u64, Option<AttemptId>),
    windows: BTreeMap<u64, Instant>,
}

impl Passed {
    /// Returns whether a window stays without values: those of its steps have had the time to come.
    fn is_over(&self, n: u64) -> bool {
        let since = self.windows.get(&n);
        since.is_some_and(|since| since.elapsed() > VALUES_WITHIN)
    }

    fn note(&mut self, n: u64) {
        self.windows.entry(n).or_insert_with(Instant::now);
    }

    /// Forgets the windows of another plan.
    fn follow(&mut self, mixture: u64, attempt: Option<AttemptId>) {
        if self.plan != (mixture, attempt) {
            self.plan = (mixture, attempt);
            self.windows.clear();
        }
    }
}

/// Looks at the run once, and waits or decides.
pub(super) async fn look(
    driver: &Driver,
    run: &mut FollowedRun,
    passed: &mut Passed,
) -> Result<Looked, CliError> {
    let mut without_values = Vec::new();
    let result = search(driver, run, passed, &mut without_values).await?;
    Ok(Looked {
        result,
        without_values,
    })
}

async fn search(
    driver: &Driver,
    run: &mut FollowedRun,
    passed: &mut Passed,
    without_values: &mut Vec<(Step, Step)>,
) -> Result<Turn, CliError> {
    let settings = &driver.settings;
    let plan = match Plan::new(run.mixtures(), run.manifest(), run.record()?, settings) {
        Ok(plan) => plan,
        Err(why @ (PlanError::NoAttempt(_) | PlanError::NotWhole(_))) => {
            return Ok(Turn::Wait(Waiting::plan(&why)));
        }
        Err(why) => return Err(CliError::Unsound(why.to_string())),
    };
    passed.follow(plan.mixture, Some(newest(run.record()?)));
    let mut n = 0;
    loop {
        let steps = plan.steps(n);
        if passed.is_over(n) {
            join(without_values, &steps);
            n += 1;
            continue;
        }
        let head = run.manifest().next_step();
        if steps.end > head {
            return Ok(Turn::Wait(Waiting::stream(&steps, head)));
        }
        // Not before: a producer names its sources with its first batch.
        let known = sources::known(run.manifest(), plan.mixture)?;
        if let Some(missing) = run.missing(&plan.legs, steps.clone()).await? {
            return Ok(Turn::Wait(Waiting::state(&missing, &steps)));
        }
        let losses = run.losses(&plan.legs).await?;
        let sums = sums(&losses, &steps).await?;
        let read = losses.read_pairs(&steps);
        if !has_enough(sums.counted, read) {
            passed.note(n);
            join(without_values, &steps);
            n += 1;
            continue;
        }
        let record = run.record()?;
        let why = plan.reason(settings, record, &steps, &sums, read, &known);
        let mut why = why.map_err(|error| CliError::Refused(error.to_string()))?;
        let answer = match &driver.function {
            Some(function) => function.ask(&function::Question::new(&why)).await?,
            None => BTreeMap::new(),
        };
        why.decide(answer)
            .map_err(|error| CliError::Refused(error.to_string()))?;
        return Ok(Turn::Decide(Box::new(Decision {
            why,
            mixture: plan.mixture,
            attempt: newest(record),
        })));
    }
}

/// Adds steps behind the last ones.
fn join(all: &mut Vec<(Step, Step)>, steps: &Range<Step>) {
    match all.last_mut() {
        Some(last) if last.1 == steps.start => last.1 = steps.end,
        _ => all.push((steps.start, steps.end)),
    }
}

fn newest(record: &JobRecord) -> AttemptId {
    let newest = record.attempts.last();
    newest.map_or(AttemptId([0; 16]), |attempt| attempt.state.id)
}

/// Adds the losses of these steps.
pub(in crate::mixture) async fn sums(
    losses: &RunLosses,
    steps: &Range<Step>,
) -> Result<WindowSums, CliError> {
    let mut sums = WindowSums::default();
    losses
        .read(steps.clone(), |of_step| {
            sums.add(&of_step.coordinates);
            Ok(())
        })
        .await?;
    Ok(sums)
}
