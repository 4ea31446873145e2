//! One look at the log, the states of steps and their losses: the driver waits, or decides.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::output::{count, range};
use batchweave_core::drive::{Decision, Plan, PlanError};
use batchweave_core::ids::{AttemptId, Step};
use batchweave_core::proof::JobRecord;
use batchweave_verify::{FollowedRun, MissingState, PassedWindows, Window};

use super::settings::Driver;
use super::{function, sources};

/// The result of one look.
#[derive(Debug)]
pub(super) enum Turn {
    Wait(Waiting),
    Decide(Box<Decision>),
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

/// Looks at the run once, and waits or decides.
pub(super) async fn look(
    driver: &Driver,
    run: &mut FollowedRun,
    passed: &mut PassedWindows,
    now: Duration,
) -> Result<Turn, CliError> {
    let settings = &driver.settings;
    let plan = match Plan::new(run.mixtures(), run.manifest(), run.record()?, settings) {
        Ok(plan) => plan,
        Err(why @ (PlanError::NoAttempt(_) | PlanError::NotWhole(_))) => {
            return Ok(Turn::Wait(Waiting::plan(&why)));
        }
        Err(why) => return Err(CliError::Unsound(why.to_string())),
    };
    let (needed, head) = (plan.steps(0), run.manifest().next_step());
    // Not before: a producer names its sources with its first batch.
    if needed.end > head {
        return Ok(Turn::Wait(Waiting::stream(&needed, head)));
    }
    let known = sources::known(run.manifest(), plan.mixture)?;
    let losses = match run.window(&plan, passed, now).await? {
        Window::Short(steps, head) => return Ok(Turn::Wait(Waiting::stream(&steps, head))),
        Window::Unreported(steps, missing) => {
            return Ok(Turn::Wait(Waiting::state(&missing, &steps)));
        }
        Window::Ready(losses) => losses,
    };
    let record = run.record()?;
    let mut why = plan
        .reason(
            settings,
            record,
            &losses.steps,
            &losses.sums,
            losses.read,
            &known,
        )
        .map_err(|error| CliError::Refused(error.to_string()))?;
    let answer = match &driver.function {
        Some(function) => function.ask(&function::Question::new(&why)).await?,
        None => BTreeMap::new(),
    };
    why.decide(answer)
        .map_err(|error| CliError::Refused(error.to_string()))?;
    Ok(Turn::Decide(Box::new(Decision {
        why,
        mixture: plan.mixture,
        attempt: newest(record),
    })))
}

fn newest(record: &JobRecord) -> AttemptId {
    let newest = record.attempts.last();
    newest.map_or(AttemptId([0; 16]), |attempt| attempt.state.id)
}
