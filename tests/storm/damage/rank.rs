//! A rank that compares every token with the truth.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use batchweave_client::{Batch, Client, ClientError, ConnectOptions, Start};
use batchweave_core::ids::Step;

/// Longer than any program that goes on needs for one step.
const PATIENCE: Duration = Duration::from_secs(40);

/// The rows of each step, known without a line of the code that is under test: producers take turns.
pub(super) struct Truth {
    rows: Vec<Vec<Vec<u16>>>,
    skipped: RangeInclusive<Step>,
}

/// What became of a rank.
#[derive(Debug)]
pub(super) enum Fate {
    /// Every step up to the one that was wanted, each token as it must be.
    Right,
    /// Stopped by an error, after steps that were all right.
    Stopped(ClientError),
    /// A wrong token, a step too few or in another order.
    Wrong(String),
}

impl Truth {
    pub(super) fn new(lanes: [Vec<Vec<Vec<u16>>>; 2], skipped: RangeInclusive<Step>) -> Self {
        let [first, second] = lanes;
        let turns = first.into_iter().zip(second);
        let rows = turns.flat_map(|(first, second)| [first, second]).collect();
        Self { rows, skipped }
    }

    /// The step that follows for an attempt that was opened behind the quarantine.
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

/// Reads on from a saved state, below step `until`; `at_end`: there the stream must end, too.
pub(super) fn read(socket: &Path, state: &str, truth: &Truth, until: Step, at_end: bool) -> Fate {
    let options = ConnectOptions {
        job: Some("llm".to_owned()),
        start: Start::State(state.to_owned()),
        credits: 64,
        timeout: PATIENCE,
        ..ConnectOptions::new(socket)
    };
    let mut reader = match Client::connect(options) {
        Ok(reader) => reader,
        Err(why) => return Fate::Stopped(why),
    };
    let mut next = reader.next_step();
    while next < until {
        match reader.next(PATIENCE) {
            Ok(Some(batch)) if batch.step() != truth.after(next) => {
                return Fate::Wrong(format!("step {} in place of {next}", batch.step()));
            }
            Ok(Some(batch)) if !truth.holds(&batch) => {
                return Fate::Wrong(format!("wrong tokens in step {}", batch.step()));
            }
            Ok(Some(batch)) => next = batch.step() + 1,
            Ok(None) => return Fate::Wrong(format!("the end at step {next} of {until}")),
            Err(why) => return Fate::Stopped(why),
        }
    }
    if !at_end {
        return Fate::Right;
    }
    match reader.next(PATIENCE) {
        Ok(None) => Fate::Right,
        Ok(Some(batch)) => Fate::Wrong(format!("step {} behind the end", batch.step())),
        Err(why) => Fate::Stopped(why),
    }
}
