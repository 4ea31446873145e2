//! A reader's position: state, checkpoint marks, and the end.

use std::time::Duration;

use batchweave_wire::{Checkpoint, REASON_BYTES_MAX, StepValues, WaitCause};

use super::Reader;
use crate::connect::Deadline;
use crate::session::Event;
use crate::state::{hex, uuid};
use crate::{ClientError, State, Watch};

/// Longest wait for a message while the daemon is asked whether it takes reports.
const ASKED_PAUSE: Duration = Duration::from_millis(5);

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
        self.send_marks()?;
        self.refused_mark()
    }

    /// Reports that the trainer has trained a step, or left it out on purpose for a reason of one line (at most 64
    /// bytes). The daemon stores the states before the marks that follow; `batchweave verify --job --trained` proves
    /// them. Without a job nothing is kept.
    pub fn report(&mut self, step: u64, left_out: Option<&str>) -> Result<(), ClientError> {
        self.refuse_inherited()?;
        let is_reason = |why: &str| {
            (1..=REASON_BYTES_MAX).contains(&why.len()) && !why.chars().any(char::is_control)
        };
        if let Some(why) = left_out.filter(|why| !is_reason(why)) {
            let reason =
                format!("the reason {why:?} is not one line of 1 to {REASON_BYTES_MAX} bytes");
            return Err(ClientError::BadReport { step, reason });
        }
        self.refuse_unread(step)?;
        if self.options.job.is_some() && self.reports.add(step, left_out) {
            self.send_reports()?;
        }
        Ok(())
    }

    /// Reports that the trainer has trained a step, with its loss: `batchweave losses` shows it. Losses may be lost: the
    /// client keeps 1 MiB of them ([`Self::losses_cut`]), and no mark waits for them.
    pub fn report_loss(&mut self, values: StepValues) -> Result<(), ClientError> {
        self.refuse_inherited()?;
        let step = values.step;
        if let Err(reason) = values.check() {
            return Err(ClientError::BadReport { step, reason });
        }
        self.refuse_unread(step)?;
        if self.options.job.is_some() && self.reports.add_values(values) {
            self.send_reports()?;
        }
        Ok(())
    }

    fn refuse_unread(&self, step: u64) -> Result<(), ClientError> {
        if step < self.next_step {
            return Ok(());
        }
        let reason = format!("it was not read yet: the next step is {}", self.next_step);
        Err(ClientError::BadReport { step, reason })
    }

    /// Returns the number of steps whose loss was reported without its rows, documents or sources, or left out, since
    /// the client keeps only 1 MiB of losses until they are stored.
    pub fn losses_cut(&self) -> u64 {
        self.reports.cut()
    }

    /// Returns whether the daemon takes reports; `None` before it has answered, which it is asked at the first report.
    /// A daemon of an earlier release does not, and its run is proved as received only.
    pub fn reports_taken(&self) -> Option<bool> {
        self.reports.taken()
    }

    /// Sends the states that wait; returns whether none are left.
    pub(super) fn send_reports(&mut self) -> Result<bool, ClientError> {
        let Some(session) = &self.session else {
            return Ok(!self.reports.wait());
        };
        let instance = hex(&self.welcome.instance);
        self.reports.send(session, &self.options.socket, &instance)
    }

    /// Sends the states that wait, and the marks behind them; returns whether no state is left.
    fn send_reports_and_marks(&mut self) -> Result<bool, ClientError> {
        let sent = self.send_reports()?;
        if let Some(session) = self.session.as_ref().filter(|_| sent) {
            self.marks.send(session)?;
        }
        Ok(sent)
    }

    /// Sends marks behind the states before them.
    pub(super) fn send_marks(&mut self) -> Result<(), ClientError> {
        if !self.marks.is_empty() {
            self.send_reports_and_marks()?;
        }
        Ok(())
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

    /// Closes the reader after the daemon has received all reports and stored or refused all marks; a refusal is the error.
    /// Batches in use stay valid.
    pub fn close(mut self, timeout: Duration) -> Result<(), ClientError> {
        self.refuse_inherited()?;
        let deadline = Deadline::after(timeout);
        while !self.marks.is_empty() || self.reports.wait() {
            let sent = self.send_reports_and_marks()?;
            let Some(session) = &mut self.session else {
                self.reconnect(&deadline)?;
                continue;
            };
            if self.marks.is_empty() && sent {
                break;
            }
            // The answer to the question whether reports are taken comes on another socket, and no mark is sent before.
            let wait = if sent {
                deadline.left()
            } else {
                deadline.left().min(ASKED_PAUSE)
            };
            match session.event(wait)? {
                Event::Nothing if !deadline.left().is_zero() => {}
                Event::Nothing => return Err(self.late(timeout)),
                Event::Batch(batch) => drop(session.slices(&batch)?),
                event => drop(self.take(event)?),
            }
        }
        self.part();
        self.refused_mark()
    }
}
