//! The statements of a rank: its checkpoint marks, and the reports of its steps. It trains each step that it receives,
//! says so, and says it again in a new session until the daemon has confirmed it.

use std::collections::VecDeque;

use batchweave_core::ids::{AttemptId, Step, StreamId};
use batchweave_wire::{Checkpoint, ClientMessage, Report, StepStates};

use super::socket::Link;

/// The trained steps whose reports are not confirmed.
#[derive(Debug, Default)]
pub(super) struct Reports {
    steps: VecDeque<Step>,
    /// Reports of this session that are confirmed.
    confirmed: u64,
}

impl Reports {
    /// Reports a step, whose confirmation is awaited from now on.
    pub(super) fn add(&mut self, link: &Link, step: Step, next_step: Step) {
        self.steps.push_back(step);
        send(link, step, next_step);
    }

    /// Reports all steps again, in a new session.
    pub(super) fn send_again(&mut self, link: &Link, next_step: Step) {
        self.confirmed = 0;
        for step in &self.steps {
            send(link, *step, next_step);
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
}

fn send(link: &Link, step: Step, next_step: Step) {
    link.send(&ClientMessage::Report(Report {
        next_step,
        states: vec![StepStates {
            from: step,
            to: step + 1,
            left_out: None,
        }],
        ..Report::default()
    }));
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
