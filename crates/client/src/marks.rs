//! Checkpoint marks until the daemon has stored them; repeated in a new session.

use std::collections::VecDeque;

use batchweave_wire::{Checkpoint, ClientMessage, Fault};

use crate::ClientError;
use crate::session::Session;

/// Marks kept; a trainer that outruns the store so far loses its oldest ones, which newer ones replace.
const MARKS_MAX: usize = 64;

/// Marks that are not known to be stored, oldest first.
#[derive(Default)]
pub(crate) struct Marks {
    waiting: VecDeque<Checkpoint>,
    /// How many of them, from the front, this session has sent.
    sent: usize,
    /// Refusals that nobody was told of yet, oldest first.
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

    /// The daemon has stored the mark of `step`.
    pub(crate) fn stored(&mut self, step: u64) {
        if let Some(at) = self.waiting.iter().position(|mark| mark.step == step) {
            self.waiting.remove(at);
            self.sent -= usize::from(at < self.sent);
        }
    }

    /// The daemon will never store the mark of the fault's step.
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

    /// A new session has begun.
    pub(crate) fn send_again(&mut self) {
        self.sent = 0;
    }

    /// Sends what has not gone yet, as far as there is room.
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
