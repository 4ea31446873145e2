//! The reader: steps in order, over any number of sessions.

mod earlier;
mod position;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use batchweave_wire::{
    BatchMessage, Begin, ClientMessage, Hello, Mode, Progress, Replaces, WaitCause, Welcome,
};

use self::earlier::Earlier;
use crate::batch::Slice;
use crate::connect::{Deadline, gone, open};
use crate::marks::Marks;
use crate::reports::Reports;
use crate::session::{Event, Session};
use crate::state::hex;
use crate::watch::Watch;
use crate::{Batch, ClientError, ConnectOptions};

/// Length of a wait from which it is reported to the daemon immediately.
const REPORT_WAIT_AFTER: Duration = Duration::from_millis(100);
/// Shortest interval between reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// New sessions for one step before the daemon counts as faulty.
const RESYNCS_MAX: u32 = 3;

/// Reads steps in order. One thread at a time may use it; batches may move to other threads.
pub struct Reader {
    options: ConnectOptions,
    hello: Hello,
    session: Option<Session>,
    welcome: Welcome,
    /// First step not returned to the caller.
    next_step: u64,
    end: Option<u64>,
    /// Slices of `next_step` received so far.
    partial: Vec<Slice>,
    last_wait: Watch,
    /// Time waited in this session, and before it for a session.
    waited: Duration,
    /// The part of the current call's time that `waited` contains already.
    counted: Duration,
    last_reported: Option<Instant>,
    marks: Marks,
    reports: Reports,
    earlier: Earlier,
    /// The daemon of the last session is gone.
    gone: bool,
    resyncs: u32,
}

impl Reader {
    /// Returns a reader with a new session.
    pub(crate) fn new(
        options: ConnectOptions,
        mut hello: Hello,
        session: Session,
        welcome: Welcome,
    ) -> Result<Self, ClientError> {
        if hello.begin == Begin::Latest {
            hello.next_step = welcome.next_step;
        }
        hello.begin = Begin::Stated;
        let mut reader = Self {
            next_step: hello.next_step,
            options,
            hello,
            session: Some(session),
            welcome: welcome.clone(),
            end: None,
            partial: Vec::new(),
            last_wait: Watch::default(),
            waited: Duration::ZERO,
            counted: Duration::ZERO,
            last_reported: None,
            marks: Marks::default(),
            reports: Reports::default(),
            earlier: Earlier::default(),
            gone: false,
            resyncs: 0,
        };
        reader.enter(welcome).map(|()| reader)
    }

    /// Returns the next step, or `None` at the stream's end. An error leaves the position unchanged, and a
    /// later call tries again.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Batch>, ClientError> {
        let deadline = Deadline::after(timeout);
        self.counted = Duration::ZERO;
        let result = self.next_until(&deadline);
        self.count(&deadline);
        result
    }

    /// Adds the time of this call since the last count to `waited`.
    fn count(&mut self, deadline: &Deadline) {
        let elapsed = deadline.elapsed();
        self.waited += elapsed.saturating_sub(self.counted);
        self.counted = elapsed;
    }

    fn next_until(&mut self, deadline: &Deadline) -> Result<Option<Batch>, ClientError> {
        self.refuse_inherited()?;
        let mut reported = false;
        loop {
            if self.end.is_some_and(|end| self.next_step >= end) {
                return Ok(None);
            }
            if self.earlier.are_free(&self.welcome.instance) {
                self.leave();
            }
            let Some(session) = &mut self.session else {
                self.reconnect(deadline)?;
                continue;
            };
            session.link.flush();
            self.send_marks()?;
            let left = deadline.left();
            let wait = left.min(if reported {
                PROGRESS_EVERY
            } else {
                REPORT_WAIT_AFTER
            });
            let Some(session) = &mut self.session else {
                continue;
            };
            let event = match session.event(wait) {
                Ok(event) => event,
                Err(error) => {
                    self.leave();
                    return Err(error);
                }
            };
            match event {
                Event::Nothing if deadline.left().is_zero() => {
                    return Err(self.late(deadline.timeout()));
                }
                Event::Nothing => {
                    reported = true;
                    // A wait is counted while it lasts, so that metrics show a rank that is stuck.
                    self.count(deadline);
                    self.report_progress(true)?;
                }
                event => {
                    if matches!(event, Event::Gone) {
                        // The rest of the wait is for the daemon.
                        self.count(deadline);
                    }
                    if let Some(batch) = self.take(event)? {
                        return Ok(Some(batch));
                    }
                }
            }
        }
    }

    /// Handles an event and returns the batch that it completes.
    fn take(&mut self, event: Event) -> Result<Option<Batch>, ClientError> {
        match event {
            Event::Batch(message) => return self.take_batch(&message),
            Event::Welcome(welcome) => self.enter(welcome)?,
            Event::End(step) => self.end = Some(step),
            Event::Waiting(w) => self.last_wait.set(Some((w.cause, w.detail))),
            Event::Marked(step) => self.marks.stored(step),
            Event::MarkRefused(fault) => self.marks.refused(fault),
            Event::Reported(count) => self.reports.stored(count),
            Event::Fault(fault) => {
                self.leave();
                return Err(ClientError::Daemon(fault));
            }
            Event::Gone => {
                self.leave();
                self.gone = true;
                self.last_wait
                    .set(Some((WaitCause::DaemonRestarting, String::new())));
            }
            Event::Nothing => {}
        }
        Ok(None)
    }

    fn take_batch(&mut self, message: &BatchMessage) -> Result<Option<Batch>, ClientError> {
        let Some(session) = &self.session else {
            return Ok(None);
        };
        let slices = match session.slices(message) {
            Ok(slices) => slices,
            Err(error) => {
                self.leave();
                return Err(error);
            }
        };
        if message.step != self.next_step || message.first as usize != self.partial.len() {
            drop(slices);
            return self.resync(message.step).map(|()| None);
        }
        // The decoder of the welcome has checked that these sums do not overflow.
        let own = self.welcome.first_slice..self.welcome.first_slice + self.welcome.slice_count;
        let indices = own.skip(message.first as usize);
        if message.of != self.welcome.slice_count
            || !slices
                .iter()
                .map(Slice::index)
                .eq(indices.take(slices.len()))
        {
            let error = session.bad(format!(
                "step {}: not the slices announced in the welcome",
                message.step
            ));
            self.leave();
            return Err(error);
        }
        self.resyncs = 0;
        self.partial.extend(slices);
        if self.partial.len() < message.of as usize {
            return Ok(None);
        }
        self.next_step += 1;
        session
            .link
            .next_step
            .store(self.next_step, Ordering::Relaxed);
        self.last_wait.set(None);
        let batch = Batch {
            step: message.step,
            stage: session.stage.clone(),
            slices: std::mem::take(&mut self.partial),
            after: self.state(self.next_step),
        };
        self.report_progress(false)?;
        Ok(Some(batch))
    }

    /// Opens a new session at the expected step after the daemon sent another one. The old socket stays
    /// until its frames are released.
    fn resync(&mut self, got: u64) -> Result<(), ClientError> {
        self.resyncs += 1;
        let (tries, step) = (self.resyncs, self.next_step);
        let error = self
            .session
            .as_ref()
            .filter(|_| tries > RESYNCS_MAX)
            .map(|session| {
                session.bad(format!(
                    "it sends step {got} instead of step {step}, even in a new session"
                ))
            });
        self.leave();
        error.map_or(Ok(()), Err)
    }

    /// Ends the session; frames in use keep its socket and mappings.
    fn leave(&mut self) {
        if let Some(session) = self.session.take() {
            self.waited = Duration::ZERO;
            self.partial.clear();
            self.earlier.add(self.welcome.instance, session.leave());
        }
    }

    /// Ends the last session, once the daemon has received the rank's position.
    fn part(&mut self) {
        self.partial.clear();
        // What can't be sent now is missing in the proof.
        let _ = self.send_reports();
        if let Some(session) = self.session.take() {
            session.part(self.next_step);
        }
    }

    fn reconnect(&mut self, deadline: &Deadline) -> Result<(), ClientError> {
        let instance = hex(&self.welcome.instance);
        self.hello.mode = Mode::Resume;
        self.hello.next_step = self.next_step;
        self.hello.stream = Some(self.stream_id());
        self.hello.replaces = Some(Replaces {
            instance,
            session: self.welcome.session,
        });
        let current = (!self.gone).then_some(&self.welcome.instance);
        self.hello.mapped_bytes = self.earlier.tell(current);
        let (session, welcome, cause) =
            open(&self.options, &self.hello, deadline).map_err(|e| match e {
                ClientError::NoDaemon { .. } => {
                    gone(&self.options, self.next_step, deadline.timeout())
                }
                e => e,
            })?;
        self.session = Some(session);
        self.gone = false;
        if cause.is_some() {
            self.last_wait.set(cause);
        }
        self.marks.send_again();
        self.reports.send_again();
        // Reported with the first batch or wait, separately from the waits of this session.
        self.count(deadline);
        self.last_reported = None;
        self.enter(welcome)
    }

    /// Applies a welcome. It may skip quarantined steps but never go back.
    fn enter(&mut self, welcome: Welcome) -> Result<(), ClientError> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        if welcome.next_step < self.next_step || !self.partial.is_empty() {
            let (step, got) = (self.next_step, welcome.next_step);
            let error = session.bad(format!("a welcome at step {got} to a rank at step {step}"));
            self.leave();
            return Err(error);
        }
        self.next_step = welcome.next_step;
        session
            .link
            .next_step
            .store(self.next_step, Ordering::Relaxed);
        self.end = welcome.end_step;
        self.welcome = welcome;
        Ok(())
    }

    fn late(&self, waited: Duration) -> ClientError {
        let step = self.next_step;
        let held = self
            .session
            .as_ref()
            .map(|s| s.link.held())
            .unwrap_or_default();
        let (cause, detail) = self.last_wait.cause().unzip();
        let detail = detail.unwrap_or_default();
        let all_held = held.len() as u64 >= u64::from(self.welcome.credits);
        if all_held || cause == Some(WaitCause::HeldFrames) {
            let one = |(step, slices): (u64, Vec<u32>)| format!("step {step} (slices {slices:?})");
            let held = held.into_iter().map(one).collect::<Vec<_>>().join(", ");
            return ClientError::FramesHeld { step, waited, held };
        }
        ClientError::Timeout {
            step,
            waited,
            cause,
            detail,
        }
    }

    fn report_progress(&mut self, waiting: bool) -> Result<(), ClientError> {
        let due = self
            .last_reported
            .is_none_or(|reported| reported.elapsed() >= PROGRESS_EVERY);
        if !waiting && !due {
            return Ok(());
        }
        let Some(session) = &self.session else {
            return Ok(());
        };
        let waited_us = self.waited.as_micros() as u64;
        let progress = Progress {
            next_step: self.next_step,
            waited_us,
            waiting,
        };
        session.send(&ClientMessage::Progress(progress))?;
        self.last_reported = Some(Instant::now());
        self.send_reports().map(drop)
    }

    fn refuse_inherited(&self) -> Result<(), ClientError> {
        match &self.session {
            Some(session) if session.link.is_inherited() => Err(ClientError::Closed(
                ": it belongs to the process that forked this one",
            )),
            _ => Ok(()),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.refuse_inherited().is_ok() {
            self.part();
        }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "reader at step {} of {}",
            self.next_step,
            self.options.socket.display()
        )
    }
}
