//! Losses as they are read, step by step: sums over coordinates, and the highest ones of rows and documents.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_console::job::JobSelector;
use batchweave_console::sources;
use batchweave_core::ids::Step;
use batchweave_core::manifest::Manifest;
use batchweave_core::values::{CoordinateStep, DetailOf};
use batchweave_verify::StepLosses;

use super::By;
use super::table::{SourceLoss, StepLoss};

/// Rows and documents that are kept without --top.
const DETAILS_MAX: usize = 20_000_000;

/// The part of all losses that is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) by: By,
    pub(super) top: Option<usize>,
    pub(super) min_tokens: f64,
}

/// The loss of a row or document that is not joined with its place yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub(super) step: Step,
    pub(super) first_slice: u32,
    pub(super) slices: u32,
    pub(super) of: DetailOf,
    /// Its number in the coordinate, and the number of all there.
    pub(super) index: u32,
    pub(super) count: u32,
    pub(super) loss: f64,
    pub(super) tokens: f64,
}

/// The losses that were read.
#[derive(Debug)]
pub(super) struct Collected {
    limits: Limits,
    /// Steps with the loss of every coordinate.
    pub(super) whole: u64,
    pub(super) nonfinite: u64,
    /// Values without rows, documents or sources for lack of room.
    pub(super) cut: u64,
    steps: Vec<StepLoss>,
    /// Sum, weight and steps.
    sources: BTreeMap<u16, (f64, f64, u64)>,
    details: Vec<Found>,
    /// Values with rows or documents, and others.
    detailed: u64,
}

impl Collected {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            whole: 0,
            nonfinite: 0,
            cut: 0,
            steps: Vec::new(),
            sources: BTreeMap::new(),
            details: Vec::new(),
            detailed: 0,
        }
    }

    /// Adds the losses of a step.
    pub(super) fn add(&mut self, losses: &StepLosses) -> Result<(), CliError> {
        let coordinates = &losses.coordinates;
        self.whole += u64::from(coordinates.len() == losses.dp_size as usize);
        let mut of_step = StepLoss {
            step: losses.step,
            attempt: losses.attempt,
            loss: None,
            tokens: 0.0,
            nonfinite: 0,
            coordinates: coordinates.len() as u64,
            of: losses.dp_size,
        };
        let mut sum = 0.0;
        for one in coordinates {
            sum += one.loss.sum;
            of_step.tokens += one.loss.weight;
            of_step.nonfinite += one.loss.nonfinite;
            self.cut += u64::from(one.loss.details_dropped || one.loss.sources_dropped);
            if matches!(self.limits.by, By::Row | By::Document) {
                self.add_details(one)?;
            }
        }
        self.nonfinite += of_step.nonfinite;
        of_step.loss = mean(sum, of_step.tokens);
        match self.limits.by {
            By::Step => self.add_step(of_step),
            By::Source => self.add_sources(coordinates),
            By::Row | By::Document => {}
        }
        Ok(())
    }

    fn add_step(&mut self, step: StepLoss) {
        if step.tokens < self.limits.min_tokens {
            return;
        }
        self.steps.push(step);
        keep_top(&mut self.steps, self.limits.top, false, step_by_loss);
    }

    fn add_sources(&mut self, coordinates: &[CoordinateStep]) {
        let mut seen = BTreeMap::new();
        for one in coordinates {
            for (&number, &(sum, weight)) in &one.loss.sources {
                let of_step: &mut (f64, f64) = seen.entry(number).or_default();
                of_step.0 += sum;
                of_step.1 += weight;
            }
        }
        for (number, (sum, weight)) in seen {
            let source = self.sources.entry(number).or_default();
            *source = (source.0 + sum, source.1 + weight, source.2 + 1);
        }
    }

    fn add_details(&mut self, one: &CoordinateStep) -> Result<(), CliError> {
        let loss = &one.loss;
        let wanted = match self.limits.by {
            By::Row => loss.of == DetailOf::Row,
            _ => loss.of != DetailOf::None,
        };
        if !wanted || loss.details.is_empty() {
            return Ok(());
        }
        self.detailed += 1;
        for (index, &(sum, weight)) in (0..).zip(&loss.details) {
            let Some(mean) = mean(sum, weight).filter(|_| weight >= self.limits.min_tokens) else {
                continue;
            };
            self.details.push(Found {
                step: one.step,
                first_slice: one.first_slice,
                slices: one.slices,
                of: loss.of,
                index,
                count: loss.details.len() as u32,
                loss: mean,
                tokens: weight,
            });
        }
        keep_top(&mut self.details, self.limits.top, false, by_loss);
        if self.details.len() > DETAILS_MAX {
            return Err(CliError::Usage(format!(
                "more than {DETAILS_MAX} rows or documents: ask for fewer steps (--steps), or for the highest ones (--top)"
            )));
        }
        Ok(())
    }

    /// Refuses a result of rows or documents for a run that reported none.
    pub(super) fn refuse_without_details(&self, job: &JobSelector) -> Result<(), CliError> {
        let what = match self.limits.by {
            By::Row => "rows",
            By::Document => "rows or documents",
            By::Source if self.sources.is_empty() => {
                return Err(CliError::Absent(format!(
                    "job {job} reported no losses of sources: add packing.fields = [\"source_ids\"] to the producers and use LossReporter"
                )));
            }
            By::Step | By::Source => return Ok(()),
        };
        if self.detailed > 0 {
            return Ok(());
        }
        Err(CliError::Absent(format!(
            "job {job} reported no losses of {what} in these steps: use LossReporter(reader, detail=\"document\")"
        )))
    }

    /// Returns the steps, in order or the highest first.
    pub(super) fn steps(&mut self) -> Vec<StepLoss> {
        let mut steps = std::mem::take(&mut self.steps);
        keep_top(&mut steps, self.limits.top, true, step_by_loss);
        steps
    }

    /// Returns the sources with their names.
    pub(super) fn sources(&self, m: &Manifest) -> Vec<SourceLoss> {
        let names = sources::numbered(m);
        let all = self.sources.iter();
        let source = |(&number, &(sum, tokens, steps)): (&u16, &(f64, f64, u64))| SourceLoss {
            number,
            source: names.get(&number).cloned().flatten(),
            loss: mean(sum, tokens),
            tokens,
            steps,
        };
        let wanted = |one: &SourceLoss| one.tokens >= self.limits.min_tokens;
        let mut rows: Vec<SourceLoss> = all.map(source).filter(wanted).collect();
        let by_loss = |a: &SourceLoss, b: &SourceLoss| highest(a.loss, b.loss);
        keep_top(&mut rows, self.limits.top, true, by_loss);
        rows
    }

    /// Returns the rows or documents, in order or the highest first.
    pub(super) fn details(&mut self) -> Vec<Found> {
        let mut details = std::mem::take(&mut self.details);
        keep_top(&mut details, self.limits.top, true, by_loss);
        details
    }
}

/// Keeps the first ones of an order, once there are twice as many or when `now`; then they are sorted.
fn keep_top<T>(
    all: &mut Vec<T>,
    top: Option<usize>,
    now: bool,
    order: impl FnMut(&T, &T) -> std::cmp::Ordering,
) {
    let Some(top) = top else {
        return;
    };
    if now || all.len() > 2 * top + 1024 {
        all.sort_by(order);
        all.truncate(top);
    }
}

fn by_loss(a: &Found, b: &Found) -> std::cmp::Ordering {
    let place = |one: &Found| (one.step, one.first_slice, one.index);
    b.loss.total_cmp(&a.loss).then(place(a).cmp(&place(b)))
}

fn step_by_loss(a: &StepLoss, b: &StepLoss) -> std::cmp::Ordering {
    highest(a.loss, b.loss).then(a.step.cmp(&b.step))
}

/// Orders the higher loss first, those without one last.
fn highest(a: Option<f64>, b: Option<f64>) -> std::cmp::Ordering {
    let loss = |one: Option<f64>| one.unwrap_or(f64::NEG_INFINITY);
    loss(b).total_cmp(&loss(a))
}

fn mean(sum: f64, weight: f64) -> Option<f64> {
    (weight > 0.0).then(|| sum / weight)
}
