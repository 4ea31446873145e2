//! Imbalances of steps: the dearest part over the mean, of slices, of micro-batch rows, and of the steps of a window.

use std::collections::BTreeMap;

use serde::Serialize;

/// The costs of the bins of a step: by slice and micro-batch, or by slice alone where no bins are known.
#[derive(Debug, Clone)]
pub(super) struct StepCosts {
    pub(super) bins: Vec<Vec<f64>>,
    /// Tokens over the capacity.
    pub(super) fill: f64,
}

/// Sums over the steps of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Measures {
    slices: Vec<f64>,
    rows: Vec<f64>,
    /// Number of ranks, and the imbalance over them.
    ranks: BTreeMap<usize, Vec<f64>>,
    windows: Vec<f64>,
    fill: f64,
    /// The sum of the dearest slices, and that of the means.
    dearest: f64,
    mean: f64,
}

/// The figures of one way to arrange.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figures {
    pub(super) slice_imbalance_mean: f64,
    pub(super) slice_imbalance_p99: f64,
    pub(super) row_imbalance_mean: f64,
    pub(super) row_imbalance_p99: f64,
    /// The dearest step of a window over the mean step.
    pub(super) step_imbalance: f64,
    pub(super) fill: f64,
    /// By the number of ranks, each of which gets neighbouring slices.
    pub(super) slice_imbalance_by_ranks: BTreeMap<usize, f64>,
    /// Time of all steps over that of perfect balance: a step takes as long as its dearest slice.
    pub(super) time: f64,
}

impl Measures {
    /// Adds the steps of a window.
    pub(super) fn add(&mut self, window: &[StepCosts]) {
        let mut steps = Vec::new();
        for step in window {
            let slices: Vec<f64> = step.bins.iter().map(|bins| bins.iter().sum()).collect();
            let (max, mean) = (max(&slices), mean(&slices));
            self.slices.push(ratio(max, mean));
            self.dearest += max;
            self.mean += mean;
            self.fill += step.fill;
            steps.push(mean);
            for ranks in (1..=slices.len()).filter(|ranks| slices.len().is_multiple_of(*ranks)) {
                let sums: Vec<f64> = slices
                    .chunks(slices.len() / ranks)
                    .map(|c| c.iter().sum())
                    .collect();
                self.ranks.entry(ranks).or_default().push(imbalance(&sums));
            }
            for micro in 0..step.bins.first().map_or(0, Vec::len) {
                let row: Vec<f64> = step.bins.iter().map(|bins| bins[micro]).collect();
                self.rows.push(imbalance(&row));
            }
        }
        self.windows.push(imbalance(&steps));
    }

    pub(super) fn figures(mut self) -> Figures {
        let steps = self.slices.len().max(1) as f64;
        Figures {
            slice_imbalance_mean: mean(&self.slices),
            slice_imbalance_p99: p99(&mut self.slices),
            row_imbalance_mean: mean(&self.rows),
            row_imbalance_p99: p99(&mut self.rows),
            step_imbalance: mean(&self.windows),
            fill: self.fill / steps,
            slice_imbalance_by_ranks: self.ranks.iter().map(|(n, all)| (*n, mean(all))).collect(),
            time: ratio(self.dearest, self.mean),
        }
    }

    /// Returns the imbalance of the slices of each step.
    pub(super) fn slices(&self) -> &[f64] {
        &self.slices
    }
}

pub(super) fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

fn max(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}

fn imbalance(of: &[f64]) -> f64 {
    ratio(max(of), mean(of))
}

/// Returns a ratio, and 1 where nothing costs anything.
fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 1.0 }
}

/// Returns the number that 99 of 100 do not exceed.
fn p99(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    let at = (of.len() * 99).div_ceil(100).saturating_sub(1);
    of.get(at).copied().unwrap_or(0.0)
}
