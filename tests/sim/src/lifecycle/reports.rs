//! The statements of a rank: its checkpoint marks, and the reports of its steps. It trains each step that it receives,
//! says so with its losses where a driver follows them, and says it again in a new session until the daemon has confirmed it.

use std::collections::VecDeque;

use batchweave_core::ids::{AttemptId, Step, StreamId};
use batchweave_wire::{Checkpoint, ClientMessage, Report, SourceLoss, StepStates, StepValues};

use super::socket::Link;
use crate::trace::fnv;

/// The sources of every simulated run.
pub(crate) const SOURCES: u16 = 2;

/// The reader whose losses are reported: its attempt, and its coordinate in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    pub(crate) attempt: AttemptId,
    pub(crate) coordinate: u32,
}

impl Reporter {
    /// Returns the loss of a source in a step, and its weight: whole numbers, so that sums are exact, which differ by attempt.
    pub(crate) fn loss(self, step: Step, source: u16) -> (f32, f32) {
        let mut bytes = self.attempt.0.to_vec();
        bytes.extend(self.coordinate.to_le_bytes());
        bytes.extend(step.to_le_bytes());
        bytes.extend(source.to_le_bytes());
        let drawn = fnv(&bytes);
        ((1 + (drawn >> 32) % 4096) as f32, (1 + drawn % 8) as f32)
    }

    fn values(self, step: Step) -> StepValues {
        let source = |source| {
            let (sum, weight) = self.loss(step, source);
            SourceLoss {
                source,
                sum,
                weight,
            }
        };
        let sources: Vec<_> = (0..SOURCES).map(source).collect();
        StepValues {
            step,
            sum: sources.iter().map(|one| f64::from(one.sum)).sum(),
            weight: sources.iter().map(|one| f64::from(one.weight)).sum(),
            sources,
            ..StepValues::default()
        }
    }
}

/// The trained steps whose reports are not confirmed.
#[derive(Debug, Default)]
pub(super) struct Reports {
    steps: VecDeque<Step>,
    /// Reports of this session that are confirmed.
    confirmed: u64,
    /// The reader, where a driver follows its losses.
    losses: Option<Reporter>,
}

impl Reports {
    /// Reports losses from now on.
    pub(super) fn add_losses(&mut self, reader: Reporter) {
        self.losses = Some(reader);
    }

    /// Reports a step, whose confirmation is awaited from now on.
    pub(super) fn add(&mut self, link: &Link, step: Step, next_step: Step) {
        self.steps.push_back(step);
        self.send(link, step, next_step);
    }

    /// Reports all steps again, in a new session.
    pub(super) fn send_again(&mut self, link: &Link, next_step: Step) {
        self.confirmed = 0;
        for step in &self.steps {
            self.send(link, *step, next_step);
        }
    }

    /// Forgets the first `count` reports of the session, which are stored.
    pub(super) fn stored(&mut self, count: u64) {
        while self.confirmed < count {
            self.confirmed += 1;
            self.steps.pop_front();
        }
    }

    /// Keeps those of steps below its position, when the rank ends and returns: they are part of its checkpoint.
    pub(super) fn go_back(&mut self, next_step: Step) {
        self.steps.retain(|step| *step < next_step);
    }

    fn send(&self, link: &Link, step: Step, next_step: Step) {
        link.send(&ClientMessage::Report(Report {
            next_step,
            states: vec![StepStates {
                from: step,
                to: step + 1,
                left_out: None,
            }],
            values: self.losses.iter().map(|of| of.values(step)).collect(),
        }));
    }
}

/// Returns the mark of a checkpoint that restarts at `step`.
pub(super) fn mark(stream: StreamId, attempt: AttemptId, step: Step) -> ClientMessage {
    let state = serde_json::json!({
        "format": 1,
        "stream_id": stream.to_string(),
        "next_step": step,
        "attempt": attempt.to_string(),
    });
    ClientMessage::Checkpoint(Checkpoint {
        step,
        state: state.to_string(),
    })
}
