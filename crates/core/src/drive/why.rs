//! The stored reason of a change that a driver made: the optional `why` of a `mixture` entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounds::Bounds;
use super::error::DriveError;
use super::rule::{Rule, SourceBefore, decide};
use super::sums::SourceSums;
use crate::ids::{AttemptId, AttemptNo, JobName, Step, Version};

/// The largest difference of two shares that count as equal: `exp` differs by machine.
const EQUAL: f64 = 1e-9;

/// The settings of a driver that decide its changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveSettings {
    /// `odm`, `target` or `function`.
    pub rule: String,
    /// Steps of a decision.
    pub every: u64,
    pub floor: f64,
    pub ceiling: f64,
    pub step_bound: f64,
    /// Steps of the job that no decision uses.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up: u64,
    /// Of `odm`: rewards are added up.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sum: bool,
    /// Of `target`: the losses whose ratios are wanted, by source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, f64>,
    /// Of `function`: file and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// One source in a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceWhy {
    /// Its number among the producers' `[[sources]]`.
    pub number: u16,
    pub name: String,
    /// Sum of the loss over its tokens in the steps of the decision, and the number or weight of these tokens.
    pub sum: f64,
    pub weight: f64,
    /// Its share by the weights in force.
    pub before: f64,
    /// Of `odm`: its reward before; none for a new source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_before: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// Its share by the rule alone, among the sources with tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<f64>,
    /// Its new share, within the bounds.
    pub share: f64,
}

/// The reason of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    pub settings: DriveSettings,
    pub job: JobName,
    /// The version that opened the job.
    pub opened: Version,
    /// The attempt that trained the last of the steps, and its id.
    pub attempt: AttemptNo,
    pub attempt_id: AttemptId,
    /// The steps of the decision; `to` is excluded.
    pub from: Step,
    pub to: Step,
    /// The number of this change in its chain, from 1.
    pub change: u64,
    /// The mixture whose reason it goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Pairs of step and coordinate that were read, and those whose values the sums have.
    pub read: u64,
    pub counted: u64,
    /// The sources in the order of their numbers.
    pub sources: Vec<SourceWhy>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl DriveSettings {
    /// Returns the bounds of shares.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            floor: self.floor,
            ceiling: self.ceiling,
            step: self.step_bound,
        }
    }

    /// Returns the rule; `answer` is that of the function.
    pub fn rule(&self, answer: BTreeMap<String, f64>) -> Result<Rule, DriveError> {
        match &*self.rule {
            "odm" => Ok(Rule::Odm { sum: self.sum }),
            "target" => Ok(Rule::Target {
                targets: self.targets.clone(),
            }),
            "function" => Ok(Rule::Function { answer }),
            other => Err(DriveError::UnknownRule(other.to_owned())),
        }
    }
}

impl SourceWhy {
    /// Returns the losses in the steps of the decision.
    pub fn sums(&self) -> SourceSums {
        SourceSums {
            sum: self.sum,
            weight: self.weight,
        }
    }

    fn before(&self) -> SourceBefore {
        SourceBefore {
            name: self.name.clone(),
            sums: self.sums(),
            share: self.before,
            reward: self.reward_before,
        }
    }
}

impl Why {
    /// Reads a stored reason; an error says what this release does not know.
    pub fn read(why: &Value) -> Result<Self, String> {
        Self::deserialize(why).map_err(|error| error.to_string())
    }

    /// Returns the stored form.
    pub fn to_json(&self) -> Value {
        // Numbers are finite, so each has a JSON form.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Computes rewards and shares of all sources from the rest; `answer` is that of the function.
    pub fn decide(&mut self, answer: BTreeMap<String, f64>) -> Result<(), DriveError> {
        let rule = self.settings.rule(answer)?;
        let before: Vec<SourceBefore> = self.sources.iter().map(SourceWhy::before).collect();
        let after = decide(&rule, &self.settings.bounds(), self.change, &before)?;
        for (one, after) in self.sources.iter_mut().zip(after) {
            one.reward = after.reward;
            one.wanted = after.wanted;
            one.share = after.share;
        }
        Ok(())
    }

    /// Computes the change again from its sums, and names the first difference. The answer of a function is taken as it is
    /// stored.
    pub fn recompute(&self) -> Result<(), String> {
        let answer = self.sources.iter();
        let answer = answer.filter_map(|one| Some((one.name.clone(), one.wanted?)));
        let mut again = self.clone();
        again
            .decide(answer.collect())
            .map_err(|why| why.to_string())?;
        for (stored, computed) in self.sources.iter().zip(&again.sources) {
            let pairs = [
                ("share", Some(stored.share), Some(computed.share)),
                ("share by the rule", stored.wanted, computed.wanted),
                ("reward", stored.reward, computed.reward),
            ];
            for (what, stored_value, computed_value) in pairs {
                if !are_equal(stored_value, computed_value) {
                    return Err(format!(
                        "the {what} of source {} is {}, and its sums give {}",
                        stored.name,
                        shown(stored_value),
                        shown(computed_value)
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns whether two numbers differ by at most a billionth, of their size where that is above 1.
pub(super) fn are_equal(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= EQUAL * a.abs().max(1.0),
        (None, None) => true,
        _ => false,
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "missing".to_owned(), |value| value.to_string())
}
