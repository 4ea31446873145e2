//! The second part of a proof with --trained: every step was trained by every data coordinate, as ranks reported it.

use std::fmt::Write as _;

use batchweave_console::output::{Style, count, joined, range};
use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::proof::{CoordinateSteps, LegStates};
use serde::Serialize;

/// Coordinates that the text lists of each kind; the JSON has all.
const LISTED_MAX: usize = 32;

/// Steps of one coordinate in one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Steps {
    attempt: AttemptNo,
    dp_rank: u32,
    from: Step,
    to: Step,
    /// Why they were left out; only of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The states of a run's steps.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TrainingReport {
    /// The end of the steps that need a report: the last restart point of the lineage.
    pub(crate) below: Step,
    /// The steps below it that every coordinate trained.
    pub(crate) trained: u64,
    /// Steps below it without a report.
    pub(crate) missing: Vec<Steps>,
    /// Steps below it that were left out on purpose.
    pub(crate) left_out: Vec<Steps>,
    /// Steps below it that one rank of a coordinate trained and another one left out.
    pub(crate) differing: Vec<Steps>,
    /// The newest attempt's ranks reported all steps below this one.
    pub(crate) reported: Step,
    /// Why the run is not proved as trained.
    pub(crate) not_trained: Option<String>,
}

impl TrainingReport {
    /// Adds the states of the next leg of the lineage.
    pub(crate) fn note(&mut self, attempt: AttemptNo, states: LegStates) {
        let steps = |one: CoordinateSteps| Steps {
            attempt,
            dp_rank: one.dp_rank,
            from: one.steps.start,
            to: one.steps.end,
            reason: None,
        };
        self.below = states.below;
        self.reported = states.reported;
        self.trained += states.trained;
        self.missing.extend(states.missing.into_iter().map(steps));
        self.differing
            .extend(states.differing.into_iter().map(steps));
        self.left_out
            .extend(states.left_out.into_iter().map(|left| Steps {
                attempt,
                dp_rank: left.dp_rank,
                from: left.steps.start,
                to: left.steps.end,
                reason: Some(left.reason),
            }));
    }

    /// Sets the reason, once all legs are noted; `from` is the run's first step.
    pub(crate) fn conclude(&mut self, from: Step) {
        self.not_trained = if let Some(first) = self.missing.first() {
            let others = lines(&self.missing).len() - 1;
            Some(format!(
                "coordinate {} of attempt {} has no report of {}{}: its rank did not train them, did not report them, \
                 or died with its daemon before they were stored",
                first.dp_rank,
                first.attempt,
                listed(&self.missing, first),
                and_more(others),
            ))
        } else if let Some(first) = self.differing.first() {
            Some(format!(
                "ranks that share coordinate {} of attempt {} report {} as trained and as left out",
                first.dp_rank,
                first.attempt,
                listed(&self.differing, first),
            ))
        } else if self.below <= from {
            Some("no checkpoint marks a step yet: below a mark, reports are stored".to_owned())
        } else {
            None
        };
    }

    pub(crate) fn text(&self, from: Step, style: Style) -> String {
        let mut text = String::new();
        for (all, what) in [
            (&self.left_out, "left out on purpose"),
            (&self.missing, "without a report"),
            (&self.differing, "trained and left out"),
        ] {
            let lines = lines(all);
            for line in lines.iter().take(LISTED_MAX) {
                let _ = write!(text, "\n{what}: {line}");
            }
            if lines.len() > LISTED_MAX {
                let _ = write!(
                    text,
                    "\n{what}: {}",
                    and_more(lines.len() - LISTED_MAX).trim()
                );
            }
        }
        let verdict = match &self.not_trained {
            None => style.green(&format!(
                "trained: steps {}, {} in all, each reported as trained by every data coordinate exactly once; the \
                 report is the trainer's word, stored before its checkpoints",
                range(from, self.below),
                self.trained,
            )),
            Some(why) => style.red(&format!("NOT PROVED AS TRAINED: {why}")),
        };
        let _ = write!(text, "\n{verdict}");
        if self.reported > self.below {
            let later = range(self.below, self.reported);
            let _ = write!(text, "\nsteps {later} are reported, not marked");
        }
        text
    }
}

/// Returns one line for each coordinate of each attempt.
fn lines(all: &[Steps]) -> Vec<String> {
    let same = |a: &Steps, b: &Steps| (a.attempt, a.dp_rank) == (b.attempt, b.dp_rank);
    let line = |own: &[Steps]| {
        let one = |steps: &Steps| match &steps.reason {
            None => shown(steps),
            Some(why) => format!("{} ({why})", shown(steps)),
        };
        let (attempt, dp_rank) = (own[0].attempt, own[0].dp_rank);
        let steps = joined(own.iter().map(one), "");
        format!("attempt {attempt}, coordinate {dp_rank}, steps {steps}")
    };
    all.chunk_by(same).map(line).collect()
}

/// Returns the ranges of the coordinate of `first`.
fn listed(all: &[Steps], first: &Steps) -> String {
    let own = |one: &&Steps| (one.attempt, one.dp_rank) == (first.attempt, first.dp_rank);
    let own: Vec<String> = all.iter().filter(own).take(LISTED_MAX).map(shown).collect();
    format!("steps {}", joined(own.into_iter(), ""))
}

fn shown(steps: &Steps) -> String {
    range(steps.from, steps.to)
}

fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and {} more)", count(n as u64, "coordinate")),
    }
}
