//! One connected rank: its handshake, then its messages in both directions until its socket closes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use batchweave_daemon::connection_slots::Slot;
use batchweave_wire::{ClientMessage, DaemonMessage, ErrorName, Fault};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Inbox, NOTIFY_AGAIN, PendingConnection};
use super::handshake::{Accepted, fault_of, handshake};
use super::marks::Marks;
use crate::context::Ticks;
use crate::engine::SessionId;
use crate::node::{LateStep, Node, Outgoing};

/// A rank with this many unsent messages is not read from until it reads: far more than its credits can be.
const UNSENT_MAX: usize = 16 << 10;
/// A rank with this many unsent answers to its marks is not read from either: each may quote its mark.
const ANSWERS_MAX: usize = 1024;
/// A rank is notified that its next step is late after this.
const LATE_AFTER: Duration = Duration::from_millis(100);

/// Serves a rank until it is gone or the daemon stops.
pub(crate) async fn serve(
    node: Arc<Node>,
    pending: PendingConnection,
    marks: TaskTracker,
    silence: Slot,
) {
    let PendingConnection {
        connection,
        mut inbox,
        refusal,
        ..
    } = pending;
    let stop = node.resources.stop.clone();
    let accepted = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        accepted = handshake(&node, &connection, &mut inbox, refusal, silence) => accepted,
    };
    let Some(Accepted {
        id,
        hello,
        welcome,
        wake,
    }) = accepted
    else {
        return;
    };
    tracing::info!(
        session = id,
        client = %hello.client,
        job = hello.job.as_deref().unwrap_or("-"),
        attempt = welcome.attempt_number,
        dp_rank = hello.dp_rank,
        dp_size = hello.dp_size,
        step = welcome.next_step,
        "a rank connected"
    );
    let mut session = Session {
        node: node.clone(),
        connection,
        inbox,
        marks: Marks::new(node.clone(), marks, id),
        id,
        wake,
        sending: VecDeque::from([Outgoing::Message(DaemonMessage::Welcome(welcome))]),
        reports: false,
        bye: false,
        answers: 0,
        ready: None,
        late: None,
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = session.run() => {}
    }
    node.apply(|state| state.close_session(id));
    tracing::info!(session = id, "a rank is gone");
}

struct Session {
    node: Arc<Node>,
    connection: Connection,
    inbox: Inbox,
    marks: Marks,
    id: SessionId,
    wake: Arc<Notify>,
    /// Messages taken from the outbox and not sent yet.
    sending: VecDeque<Outgoing>,
    /// The rank has reported states of steps, which are confirmed.
    reports: bool,
    /// The rank has said that it wants no more batches.
    bye: bool,
    /// The number of those that answer marks.
    answers: usize,
    /// The time since which a frame is among them.
    ready: Option<std::time::Instant>,
    late: Option<LateReport>,
}

/// The time since which the next step is late, and the last notification of it.
struct LateReport {
    since: Duration,
    last: Option<(LateStep, Duration)>,
}

impl Session {
    /// Runs until the rank is gone.
    async fn run(&mut self) {
        let context = self.node.resources.context.clone();
        let mut ticks = Ticks::new(&context, LATE_AFTER);
        loop {
            if !self.flush() || self.is_done() {
                return;
            }
            let blocked = !self.sending.is_empty();
            tokio::select! {
                biased;
                received = self.inbox.receive(), if self.may_receive() => match received {
                    Some(bytes) => self.handle_message(&bytes),
                    None => return,
                },
                () = self.wake.notified() => {}
                () = self.connection.writable(), if blocked => {}
                () = self.connection.ended() => return,
                () = ticks.tick(&context) => self.tick(),
            }
        }
    }

    /// Whether the rank said goodbye, uses no frame and has all answers: its socket may be open in another process.
    fn is_done(&self) -> bool {
        self.bye && self.sending.is_empty() && self.node.lock().holds_nothing(self.id)
    }

    /// Whether the rank reads its messages and its states are stored, so that more can be accepted from it.
    fn may_receive(&self) -> bool {
        let states = &self.node.resources.states;
        self.sending.len() < UNSENT_MAX
            && self.answers < ANSWERS_MAX
            && !(self.reports && states.is_full(self.id))
    }

    /// Sends messages while the socket accepts them. Returns false if the rank is gone.
    fn flush(&mut self) -> bool {
        let (taken, ready) = { self.node.lock().take_messages(self.id) };
        self.answers += taken.iter().filter(|one| one.answers_mark()).count();
        self.sending.extend(taken);
        self.ready = self.ready.or(ready);
        while let Some(next) = self.sending.front() {
            match self.connection.try_send(next) {
                Ok(true) => {
                    self.answers -= usize::from(next.answers_mark());
                    self.sending.pop_front();
                }
                Ok(false) => return true,
                Err(why) => {
                    tracing::debug!(session = self.id, %why, "sending failed: the rank is gone");
                    return false;
                }
            }
        }
        if let Some(ready) = self.ready.take() {
            let took = ready.elapsed().as_secs_f64();
            self.node.resources.metrics.stages.handover.observe(took);
        }
        true
    }

    fn handle_message(&mut self, bytes: &[u8]) {
        let (node, id) = (&self.node, self.id);
        let outcome = match ClientMessage::decode(bytes) {
            Ok(ClientMessage::Release(release)) => node.apply(|state| state.release(id, &release)),
            Ok(ClientMessage::Progress(progress)) => {
                node.lock().progress(id, &progress);
                Ok(())
            }
            Ok(ClientMessage::Checkpoint(made)) => {
                self.marks.mark(&made);
                Ok(())
            }
            Ok(ClientMessage::Report(report)) => {
                self.reports = true;
                node.apply(|state| state.report(id, &report));
                Ok(())
            }
            Ok(ClientMessage::Bye) => {
                self.bye = true;
                node.apply(|state| state.stop_session(id));
                Ok(())
            }
            Ok(ClientMessage::Describe) => {
                let why =
                    "describe in a session: it is the first message of a connection of its own";
                Err(Fault::new(ErrorName::BadMessage, why))
            }
            Ok(ClientMessage::Hello(_)) => Err(Fault::new(ErrorName::BadMessage, "a second hello")),
            Err(why) => Err(fault_of(&why)),
        };
        // The socket stays open, since the rank still uses the frames that it holds.
        if let Err(fault) = outcome {
            // Only the first time, so that a misbehaving rank fills neither the log nor the daemon's memory.
            if node.apply(|state| state.fail_session(id, fault.clone())) {
                tracing::warn!(session = id, %fault, "a rank broke the protocol");
            }
        }
    }

    /// Confirms stored reports. Notifies the rank when its next step is late, when the cause changes, and every
    /// `NOTIFY_AGAIN`.
    fn tick(&mut self) {
        let mut state = self.node.lock();
        if self.reports
            && let Some(count) = self.node.resources.states.confirm(self.id)
        {
            state.send(self.id, DaemonMessage::Reported(count));
        }
        let Some(late) = state.late(self.id) else {
            self.late = None;
            return;
        };
        let now = self.node.resources.context.now();
        let report = self.late.get_or_insert(LateReport {
            since: now,
            last: None,
        });
        let due = match &report.last {
            None => now.saturating_sub(report.since) >= LATE_AFTER,
            Some((last, at)) => last.cause != late.cause || now.saturating_sub(*at) >= NOTIFY_AGAIN,
        };
        if due {
            state.send_waiting(self.id, &late);
            report.last = Some((late, now));
        }
        drop(state);
        // Requests postponed growth again.
        self.node.apply(|_| ());
    }
}
