//! Where a reader stands: state, checkpoint marks, and the end.

use std::time::Duration;

use batchweave_wire::{Checkpoint, WaitCause};

use super::Reader;
use crate::connect::Deadline;
use crate::session::Event;
use crate::state::{hex, uuid};
use crate::{ClientError, State, Watch};

impl Reader {
    /// Says that the checkpoint with this state (of `Batch::state_dict` or `Reader::state_dict`) is
    /// durable. The mark is repeated in a new session until the daemon has stored or refused it.
    /// The error may be the refusal of an earlier mark; this one is on its way all the same.
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

    /// The oldest refusal of a mark that was not told yet.
    fn refused_mark(&mut self) -> Result<(), ClientError> {
        self.marks
            .take_refusal()
            .map_or(Ok(()), |fault| Err(ClientError::Daemon(fault)))
    }

    /// Why the next step has not come, as far as the daemon has said; `None` when it was not late. While
    /// `next` waits, another thread can ask a [`Watch`].
    pub fn cause(&self) -> Option<(WaitCause, String)> {
        self.last_wait.cause()
    }

    /// Tells other threads what `next` waits for.
    pub fn watch(&self) -> Watch {
        self.last_wait.clone()
    }

    /// The attempt's id, as on all ranks; `None` without a job.
    pub fn attempt(&self) -> Option<String> {
        let id = self.welcome.attempt;
        (id != [0; 16]).then(|| hex(&id))
    }

    /// The state after the last step handed out; valid before the first.
    pub fn state_dict(&self) -> String {
        self.state(self.next_step).to_json()
    }

    /// First step not handed out.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Slices of the stream, tokens per row, rows per slice.
    pub fn shape(&self) -> (u32, u32, u32) {
        (
            self.welcome.slices,
            self.welcome.seq_len,
            self.welcome.rows_per_slice,
        )
    }

    /// The stream's id.
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

    /// Says goodbye, after the daemon has stored or refused all marks; a refusal is the error.
    /// Batches that still live stay valid.
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
