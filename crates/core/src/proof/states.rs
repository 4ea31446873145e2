//! The states of steps that ranks report: trained, or left out on purpose. A ledger stores them.

use serde::{Deserialize, Serialize};

use crate::ids::Step;
use crate::limits::NUMBER_MAX;

/// Ranges of states that one ledger may have.
pub const STATE_RANGES_MAX: usize = 1 << 16;
/// Bytes of the reason for leaving a step out.
pub const REASON_BYTES_MAX: usize = 64;

/// The states that one rank reported of its steps; each step has one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedStates {
    pub dp_rank: u32,
    /// The rank in the whole job, as in the entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Ranges of trained steps, the ends excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trained: Vec<(Step, Step)>,
    /// Ranges of steps that were left out, the ends excluded, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<(Step, Step, String)>,
}

impl ReportedStates {
    /// Returns the reader: the coordinate, and the rank if known.
    pub fn reader(&self) -> (u32, Option<u32>) {
        (self.dp_rank, self.rank)
    }

    /// Returns the number of ranges.
    pub fn ranges(&self) -> usize {
        self.trained.len() + self.left_out.len()
    }

    /// Returns the first step that has a state.
    pub fn first(&self) -> Option<Step> {
        let trained = self.trained.first().map(|(from, _)| *from);
        let left_out = self.left_out.first().map(|(from, ..)| *from);
        trained.into_iter().chain(left_out).min()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let left_out = self.left_out.iter().map(|(from, to, _)| (*from, *to));
        let lists = [
            self.trained.clone(),
            left_out.collect::<Vec<(Step, Step)>>(),
        ];
        let mut all = lists.concat();
        if all.is_empty() {
            return Err("has no range of steps".into());
        }
        let is_range = |(from, to): &(Step, Step)| from < to && *to < NUMBER_MAX;
        if let Some((from, to)) = all.iter().find(|range| !is_range(range)) {
            return Err(format!("steps {from} to {to} are not a range"));
        }
        let in_order = |list: &Vec<(Step, Step)>| list.windows(2).all(|pair| pair[0].0 < pair[1].0);
        all.sort_unstable();
        if !lists.iter().all(in_order) || all.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err("its ranges must be in order, with one state of each step".into());
        }
        match self.left_out.iter().find(|(.., why)| !is_reason(why)) {
            Some((.., why)) => Err(format!("{why:?} is not a reason")),
            None => Ok(()),
        }
    }
}

/// Returns whether `text` may be a reason: one line of 1 to [`REASON_BYTES_MAX`] bytes.
pub fn is_reason(text: &str) -> bool {
    (1..=REASON_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests;
