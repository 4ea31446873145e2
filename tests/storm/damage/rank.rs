//! A rank that compares every token with the expected ones.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use batchweave_client::{Batch, Client, ClientError, ConnectOptions, Start};
use batchweave_core::ids::Step;

/// Longer than a working program needs for one step.
const PATIENCE: Duration = Duration::from_secs(40);

/// Returns the rows of each step without the code under test: producers take turns.
pub(super) struct Truth {
    rows: Vec<Vec<Vec<u16>>>,
    skipped: RangeInclusive<Step>,
}

/// The result of a rank.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It read every step up to the wanted one, and each token was right.
    Right,
    /// An error stopped it, after steps that were all right.
    Stopped(ClientError),
    /// It read a wrong token, too few steps, or steps in another order.
    Wrong(String),
}

impl Truth {
    pub(super) fn new(lanes: [Vec<Vec<Vec<u16>>>; 2], skipped: RangeInclusive<Step>) -> Self {
        let [first, second] = lanes;
        let turns = first.into_iter().zip(second);
        let rows = turns.flat_map(|(first, second)| [first, second]).collect();
        Self { rows, skipped }
    }

    /// Returns the next step for an attempt that was opened after the quarantine.
    fn after(&self, step: Step) -> Step {
        if self.skipped.contains(&step) {
            self.skipped.end() + 1
        } else {
            step
        }
    }

    fn holds(&self, batch: &Batch) -> bool {
        let Some(rows) = self.rows.get(batch.step() as usize) else {
            return false;
        };
        let right = |(number, (slice, row)): (usize, (&batchweave_client::Slice, &Vec<u16>))| {
            slice.index() as usize == number
                && slice
                    .array::<u16>("tokens")
                    .is_ok_and(|tokens| tokens == row)
        };
        rows.len() == batch.slices().len() && batch.slices().iter().zip(rows).enumerate().all(right)
    }
}

/// Reads from a saved state up to step `until`; with `at_end` the stream must end there.
pub(super) fn read(
    socket: &Path,
    state: &str,
    truth: &Truth,
    until: Step,
    at_end: bool,
) -> Outcome {
    let options = ConnectOptions {
        job: Some("llm".to_owned()),
        start: Start::State(state.to_owned()),
        credits: 64,
        timeout: PATIENCE,
        ..ConnectOptions::new(socket)
    };
    let mut reader = match Client::connect(options) {
        Ok(reader) => reader,
        Err(why) => return Outcome::Stopped(why),
    };
    let mut next = reader.next_step();
    while next < until {
        match reader.next(PATIENCE) {
            Ok(Some(batch)) if batch.step() != truth.after(next) => {
                return Outcome::Wrong(format!("step {} in place of {next}", batch.step()));
            }
            Ok(Some(batch)) if !truth.holds(&batch) => {
                return Outcome::Wrong(format!("wrong tokens in step {}", batch.step()));
            }
            Ok(Some(batch)) => next = batch.step() + 1,
            Ok(None) => return Outcome::Wrong(format!("the end at step {next} of {until}")),
            Err(why) => return Outcome::Stopped(why),
        }
    }
    if !at_end {
        return Outcome::Right;
    }
    match reader.next(PATIENCE) {
        Ok(None) => Outcome::Right,
        Ok(Some(batch)) => Outcome::Wrong(format!("step {} behind the end", batch.step())),
        Err(why) => Outcome::Stopped(why),
    }
}
