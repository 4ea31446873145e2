//! Checkpoint marks until the daemon has stored them; sent again in a new session.

use std::collections::VecDeque;

use batchweave_wire::{Checkpoint, ClientMessage, Fault};

use crate::ClientError;
use crate::session::Session;

/// Most marks kept; beyond it the oldest is dropped, because newer ones replace it.
const MARKS_MAX: usize = 64;

/// Marks without a confirmation, oldest first.
#[derive(Default)]
pub(crate) struct Marks {
    waiting: VecDeque<Checkpoint>,
    /// Number of marks, from the front, that this session has sent.
    sent: usize,
    /// Refusals not yet reported to the caller, oldest first.
    refusals: VecDeque<Fault>,
}

impl Marks {
    pub(crate) fn add(&mut self, mark: Checkpoint) {
        if self.waiting.len() == MARKS_MAX {
            self.waiting.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
        self.waiting.push_back(mark);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the mark of `step`, which the daemon has stored.
    pub(crate) fn stored(&mut self, step: u64) {
        if let Some(at) = self.waiting.iter().position(|mark| mark.step == step) {
            self.waiting.remove(at);
            self.sent -= usize::from(at < self.sent);
        }
    }

    /// Removes the mark of the fault's step, which the daemon refused.
    pub(crate) fn refused(&mut self, fault: Fault) {
        if let Some(step) = fault.step {
            self.stored(step);
        }
        if self.refusals.len() < MARKS_MAX {
            self.refusals.push_back(fault);
        }
    }

    pub(crate) fn take_refusal(&mut self) -> Option<Fault> {
        self.refusals.pop_front()
    }

    /// Sends all marks again, in a new session.
    pub(crate) fn send_again(&mut self) {
        self.sent = 0;
    }

    /// Sends marks that this session has not sent, as far as the socket has space.
    pub(crate) fn send(&mut self, session: &Session) -> Result<(), ClientError> {
        while let Some(mark) = self.waiting.get(self.sent) {
            if !session.send(&ClientMessage::Checkpoint(mark.clone()))? {
                break;
            }
            self.sent += 1;
        }
        Ok(())
    }
}
