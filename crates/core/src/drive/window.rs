//! The steps that a decision uses, and the change that it goes on from.
//!
//! - The steps are of the newest lineage and wholly of the newest mixture, so one change is in flight, and no step counts
//!   twice.
//! - A decision goes on from the newest change whose last step is in the lineage: steps that a restart abandoned count no
//!   more.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::DriveError;
use super::history::{MixtureHistory, NotWhole};
use super::sums::WindowSums;
use super::why::{DriveSettings, SourceWhy, Why};
use crate::guards;
use crate::ids::Step;
use crate::manifest::Manifest;
use crate::proof::{JobRecord, Leg, LineageError};

/// The part of the pairs of step and coordinate that must have values, in percent.
pub const VALUES_PERCENT: u64 = 95;

/// Returns whether enough of the pairs of step and coordinate have values.
pub fn has_enough(counted: u64, read: u64) -> bool {
    read > 0 && counted.saturating_mul(100) >= read.saturating_mul(VALUES_PERCENT)
}

/// The next decision of a driver, by the state of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The newest mixture, of which the steps are.
    pub mixture: u64,
    /// The newest lineage of the job.
    pub legs: Vec<Leg>,
    /// The change that the decision goes on from, with its reason; `None` before the first.
    pub after: Option<(u64, Why)>,
    /// The first step that it may use.
    first: Step,
    every: u64,
}

/// The reason why a decision has no steps yet.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("job {0} has no attempt yet")]
    NoAttempt(String),
    #[error("{0}")]
    NotWhole(#[from] NotWhole),
    #[error("{0}")]
    Lineage(#[from] LineageError),
    #[error("mixture {mixture} has a reason of a later release ({error}); upgrade this program")]
    Foreign { mixture: u64, error: String },
}

/// A source of the producers: its number, name, and share by the weights in force.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownSource {
    pub number: u16,
    pub name: String,
    pub share: f64,
}

impl Plan {
    /// Plans the next decision. It begins with the first step wholly of the newest mixture, behind the steps of the change
    /// before and the warm-up.
    pub fn new(
        history: &MixtureHistory,
        m: &Manifest,
        record: &JobRecord,
        settings: &DriveSettings,
    ) -> Result<Self, PlanError> {
        let legs = newest_legs(record)?;
        let Some(start) = legs.first().map(|leg| leg.from) else {
            return Err(PlanError::NoAttempt(record.name.to_string()));
        };
        let mixture = m.mixture().id;
        let after = newest_reason(history, mixture + 1, record, &legs)?;
        let whole = if guards::counts_older_mixture() {
            0
        } else {
            history.first_whole(mixture, m)?
        };
        let behind = after.as_ref().map_or(0, |(_, why)| why.to);
        let warm = start.saturating_add(settings.warm_up);
        Ok(Self {
            mixture,
            legs,
            after,
            first: whole.max(behind).max(warm),
            every: settings.every,
        })
    }

    /// Plans a replay of a whole lineage, whatever its mixtures were.
    pub fn replay(legs: Vec<Leg>, settings: &DriveSettings) -> Self {
        let start = legs.first().map_or(0, |leg| leg.from);
        Self {
            mixture: 0,
            legs,
            after: None,
            first: start.saturating_add(settings.warm_up),
            every: settings.every,
        }
    }

    /// Returns the steps of window `n`: the later ones serve where values of the first were lost.
    pub fn steps(&self, n: u64) -> Range<Step> {
        let from = self.first.saturating_add(n.saturating_mul(self.every));
        from..from.saturating_add(self.every)
    }

    /// Returns the reason of a change by these sums, still without rewards and shares.
    pub fn reason(
        &self,
        settings: &DriveSettings,
        record: &JobRecord,
        steps: &Range<Step>,
        sums: &WindowSums,
        read: u64,
        known: &[KnownSource],
    ) -> Result<Why, DriveError> {
        let is_known = |number: &&u16| known.iter().any(|one| one.number == **number);
        if let Some(strange) = sums.sources.keys().find(|number| !is_known(number)) {
            return Err(DriveError::StrangeSource(*strange));
        }
        let rewards: BTreeMap<&str, Option<f64>> = match &self.after {
            Some((_, why)) => why
                .sources
                .iter()
                .map(|one| (&*one.name, one.reward))
                .collect(),
            None => BTreeMap::new(),
        };
        let source = |one: &KnownSource| {
            let own = sums.sources.get(&one.number).copied().unwrap_or_default();
            SourceWhy {
                number: one.number,
                name: one.name.clone(),
                sum: own.sum,
                weight: own.weight,
                before: one.share,
                reward_before: rewards.get(&*one.name).copied().flatten(),
                reward: None,
                wanted: None,
                share: one.share,
            }
        };
        let last = steps.end.saturating_sub(1);
        let leg = self.legs.iter().rev().find(|leg| leg.from <= last);
        let attempt = leg.and_then(|leg| record.attempt(leg.attempt));
        let attempt = attempt.ok_or(DriveError::NoSource)?;
        Ok(Why {
            settings: settings.clone(),
            job: record.name.clone(),
            opened: record.opened,
            attempt: attempt.state.number,
            attempt_id: attempt.state.id,
            from: steps.start,
            to: steps.end,
            change: next_change(self.after.as_ref()),
            after: self.after.as_ref().map(|(id, _)| *id),
            read,
            counted: sums.counted,
            sources: known.iter().map(source).collect(),
        })
    }
}

#[cfg(test)]
impl Plan {
    /// A plan that no rule made.
    pub(super) fn forged(mixture: u64, legs: Vec<Leg>, after: Option<(u64, Why)>) -> Self {
        Self {
            mixture,
            legs,
            after,
            first: 0,
            every: 4,
        }
    }
}

fn newest_legs(record: &JobRecord) -> Result<Vec<Leg>, LineageError> {
    if guards::counts_abandoned_steps() {
        return record.lineage_of(record.attempts.iter().rev().nth(1));
    }
    record.lineage()
}

/// Returns the number of the change after this one.
pub(super) fn next_change(after: Option<&(u64, Why)>) -> u64 {
    after.map_or(1, |(_, why)| why.change.saturating_add(1))
}

/// Returns the newest change of the mixtures below `end` whose last step is in the lineage of the job.
pub(super) fn newest_reason(
    history: &MixtureHistory,
    end: u64,
    record: &JobRecord,
    legs: &[Leg],
) -> Result<Option<(u64, Why)>, PlanError> {
    for (mixture, why) in history.reasons(end) {
        let why = Why::read(why).map_err(|error| PlanError::Foreign { mixture, error })?;
        if is_in(&why, record, legs) {
            return Ok(Some((mixture, why)));
        }
    }
    Ok(None)
}

/// Returns whether the steps of a change are in a lineage of the job.
pub(super) fn is_in(why: &Why, record: &JobRecord, legs: &[Leg]) -> bool {
    let attempt = record.attempt(why.attempt);
    let is_same = attempt.is_some_and(|attempt| attempt.state.id == why.attempt_id);
    let leg = legs.iter().find(|leg| leg.attempt == why.attempt);
    let holds = leg.is_some_and(|leg| why.to > leg.from && leg.to.is_none_or(|to| why.to <= to));
    (&why.job, why.opened) == (&record.name, record.opened) && is_same && holds
}
