//! A reader's position: state, checkpoint marks, and the end.

use std::time::Duration;

use batchweave_wire::{Checkpoint, WaitCause};

use super::Reader;
use crate::connect::Deadline;
use crate::session::Event;
use crate::state::{hex, uuid};
use crate::{ClientError, State, Watch};

impl Reader {
    /// Marks the checkpoint with this state (of `Batch::state_dict` or `Reader::state_dict`) as durable.
    /// The mark is sent again in new sessions until the daemon has stored or refused it. The error may be
    /// the refusal of an earlier mark; this one is sent nevertheless.
    pub fn checkpoint(&mut self, state: &str) -> Result<(), ClientError> {
        self.refuse_inherited()?;
        let state = State::parse(state)?;
        if state.stream_id != self.stream_id() {
            let reason = format!(
                "is of stream {}, this is {}",
                state.stream_id,
                self.stream_id()
            );
            return Err(ClientError::BadState { reason });
        }
        self.marks.add(Checkpoint {
            step: state.next_step,
            state: state.inner(),
        });
        if let Some(session) = &self.session {
            self.marks.send(session)?;
        }
        self.refused_mark()
    }

    /// Returns the oldest unreported refusal of a mark as an error.
    fn refused_mark(&mut self) -> Result<(), ClientError> {
        self.marks
            .take_refusal()
            .map_or(Ok(()), |fault| Err(ClientError::Daemon(fault)))
    }

    /// Returns the last cause and details for which the next step was late; `None` when it was not. While
    /// `next` waits, other threads can use a [`Watch`].
    pub fn cause(&self) -> Option<(WaitCause, String)> {
        self.last_wait.cause()
    }

    /// Returns a handle with which other threads see what `next` waits for.
    pub fn watch(&self) -> Watch {
        self.last_wait.clone()
    }

    /// Returns the attempt's id, equal on all ranks; `None` without a job.
    pub fn attempt(&self) -> Option<String> {
        let id = self.welcome.attempt;
        (id != [0; 16]).then(|| hex(&id))
    }

    /// Returns the state after the last returned step; also valid before the first.
    pub fn state_dict(&self) -> String {
        self.state(self.next_step).to_json()
    }

    /// Returns the first step that `next` has not returned.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Returns the stream's slices, tokens per row, and rows per slice.
    pub fn shape(&self) -> (u32, u32, u32) {
        (
            self.welcome.slices,
            self.welcome.seq_len,
            self.welcome.rows_per_slice,
        )
    }

    /// Returns the stream's id as UUID.
    pub fn stream_id(&self) -> String {
        uuid(&self.welcome.stream)
    }

    pub(super) fn state(&self, next_step: u64) -> State {
        let attempt = self.attempt();
        State::new(
            self.stream_id(),
            next_step,
            attempt,
            self.welcome.attempt_number,
            Some(u64::from(self.options.dp_size)),
        )
    }

    /// Closes the reader after the daemon has stored or refused all marks; a refusal is the error.
    /// Batches in use stay valid.
    pub fn close(mut self, timeout: Duration) -> Result<(), ClientError> {
        self.refuse_inherited()?;
        let deadline = Deadline::after(timeout);
        while !self.marks.is_empty() {
            let Some(session) = &mut self.session else {
                self.reconnect(&deadline)?;
                continue;
            };
            self.marks.send(session)?;
            match session.event(deadline.left())? {
                Event::Nothing => return Err(self.late(timeout)),
                Event::Batch(batch) => drop(session.slices(&batch)?),
                event => drop(self.take(event)?),
            }
        }
        self.part();
        self.refused_mark()
    }
}
