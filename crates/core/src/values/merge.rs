//! The values that count of all that a run's ranks reported: of each step and coordinate those of the lowest rank, or the
//! sum of its ranks' parts; of each rank the first.
//!
//! Objects come in the order of their first steps, so steps below that of the next object are complete.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{DetailOf, StepValues, ValuesBlock, ValuesObject};
use crate::ids::Step;

/// The loss of one coordinate in one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoordinateLoss {
    /// Sum of the loss over its tokens with a finite one, and their number or weight.
    pub sum: f64,
    pub weight: f64,
    /// Tokens whose loss is NaN or infinite.
    pub nonfinite: u64,
    /// By number of the source: sum and weight.
    pub sources: BTreeMap<u16, (f64, f64)>,
    pub of: DetailOf,
    /// Sum and weight of each row or document.
    pub details: Vec<(f64, f64)>,
    /// Ranks left out details or sources for lack of room, or their parts have different ones.
    pub details_dropped: bool,
    pub sources_dropped: bool,
}

/// The values of one coordinate in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct CoordinateStep {
    pub step: Step,
    pub dp_rank: u32,
    pub first_slice: u32,
    pub slices: u32,
    pub loss: CoordinateLoss,
}

/// The report of one rank about a step.
#[derive(Debug)]
struct Reported {
    first_slice: u32,
    slices: u32,
    part: bool,
    of: DetailOf,
    values: StepValues,
}

/// Values of steps that are not complete yet.
#[derive(Debug, Default)]
pub struct MergedValues {
    steps: BTreeMap<(Step, u32), BTreeMap<Option<u32>, Reported>>,
}

impl MergedValues {
    /// Adds the values of an object that are in `steps`, the part of the run that its attempt has.
    pub fn add(&mut self, object: ValuesObject, steps: &Range<Step>) {
        for block in object.blocks {
            let ValuesBlock {
                dp_rank,
                rank,
                first_slice,
                slices,
                of,
                part,
                steps: all,
            } = block;
            for values in all {
                if !steps.contains(&values.step) {
                    continue;
                }
                let ranks = self.steps.entry((values.step, dp_rank)).or_default();
                // A daemon that follows another one stores what was not confirmed again.
                ranks.entry(rank).or_insert(Reported {
                    first_slice,
                    slices,
                    part,
                    of,
                    values,
                });
            }
        }
    }

    /// Removes and returns the values of the steps below `step`, by step and coordinate.
    pub fn take_below(&mut self, step: Step) -> Vec<CoordinateStep> {
        let later = self.steps.split_off(&(step, 0));
        let complete = std::mem::replace(&mut self.steps, later);
        complete.into_iter().filter_map(merged).collect()
    }
}

fn merged(
    ((step, dp_rank), ranks): ((Step, u32), BTreeMap<Option<u32>, Reported>),
) -> Option<CoordinateStep> {
    let mut ranks = ranks.into_values();
    let first = ranks.next()?;
    let (first_slice, slices, part) = (first.first_slice, first.slices, first.part);
    let mut loss = CoordinateLoss {
        of: first.of,
        details: vec![(0.0, 0.0); first.values.details.len()],
        ..CoordinateLoss::default()
    };
    loss.add(&first);
    for other in ranks.filter(|other| part && other.part) {
        loss.add(&other);
    }
    Some(CoordinateStep {
        step,
        dp_rank,
        first_slice,
        slices,
        loss,
    })
}

impl CoordinateLoss {
    fn add(&mut self, reported: &Reported) {
        let values = &reported.values;
        self.sum += values.sum;
        self.weight += f64::from(values.weight);
        self.nonfinite += u64::from(values.nonfinite);
        self.sources_dropped |= values.sources_dropped;
        self.details_dropped |= values.details_dropped;
        for one in &values.sources {
            let (sum, weight) = self.sources.entry(one.source).or_default();
            *sum += f64::from(one.sum);
            *weight += f64::from(one.weight);
        }
        if values.details.len() != self.details.len() || reported.of != self.of {
            self.details.clear();
            self.details_dropped = true;
            return;
        }
        for (all, one) in self.details.iter_mut().zip(&values.details) {
            all.0 += f64::from(one.mean) * f64::from(one.weight);
            all.1 += f64::from(one.weight);
        }
    }
}
