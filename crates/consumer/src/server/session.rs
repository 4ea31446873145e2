//! One connected rank: its hello, then what it says and what it is sent, until its socket closes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use batchweave_daemon::connection_slots::Slot;
use batchweave_wire::{ClientMessage, DaemonMessage, ErrorName, Fault};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::context::Ticks;
use crate::engine::SessionId;
use crate::job::marks::Marks;
use crate::node::{Hub, Late, Outgoing};
use crate::server::connection::{Inbox, Peer};
use crate::server::handshake::{Greeted, fault_of, greet};

/// With so many messages unsent a rank is not heard until it reads: far more than its credits can be.
const UNSENT_MAX: usize = 16 << 10;
/// A rank with so many unsent answers to its marks is not heard either: each may quote what it sent.
const ANSWERS_MAX: usize = 1024;
/// A rank is told that its next step is late after this.
const LATE_AFTER: Duration = Duration::from_millis(100);
/// And again after this.
pub(crate) const LATE_AGAIN: Duration = Duration::from_secs(5);

/// Serves a peer until it is gone or the daemon stops.
pub(crate) async fn serve(
    hub: Arc<Hub>,
    peer: Peer,
    mut inbox: Inbox,
    marks: TaskTracker,
    (refusal, silence): (Option<Fault>, Slot),
) {
    let stop = hub.stop.clone();
    let greeted = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        greeted = greet(&hub, &peer, &mut inbox, (refusal, silence)) => greeted,
    };
    let Some(Greeted {
        id,
        hello,
        welcome,
        wake,
    }) = greeted
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
        step = hello.next_step,
        "a rank connected"
    );
    let mut session = Session {
        hub: hub.clone(),
        peer,
        inbox,
        marks: Marks::new(hub.clone(), marks, id),
        id,
        wake,
        sending: VecDeque::from([Outgoing::Message(DaemonMessage::Welcome(welcome))]),
        answers: 0,
        ready: None,
        late: None,
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = session.run() => {}
    }
    hub.apply(|state| state.close_line(id));
    tracing::info!(session = id, "a rank is gone");
}

struct Session {
    hub: Arc<Hub>,
    peer: Peer,
    inbox: Inbox,
    marks: Marks,
    id: SessionId,
    wake: Arc<Notify>,
    /// Taken from the outbox and not sent yet.
    sending: VecDeque<Outgoing>,
    /// How many of those answer marks.
    answers: usize,
    /// Since when a frame is among what was not sent yet.
    ready: Option<std::time::Instant>,
    late: Option<Told>,
}

/// Since when the next step is late, and what the rank was told of it.
struct Told {
    since: Duration,
    last: Option<(Late, Duration)>,
}

impl Session {
    /// Until the peer is gone.
    async fn run(&mut self) {
        let context = self.hub.context.clone();
        let mut ticks = Ticks::new(&context, LATE_AFTER);
        loop {
            if !self.flush() {
                return;
            }
            let blocked = !self.sending.is_empty();
            tokio::select! {
                biased;
                received = self.inbox.receive(), if self.hears() => match received {
                    Some(bytes) => self.hear(&bytes),
                    None => return,
                },
                () = self.wake.notified() => {}
                () = self.peer.writable(), if blocked => {}
                () = self.peer.ended() => return,
                () = ticks.tick(&context) => self.tick(),
            }
        }
    }

    /// Whether the rank reads what it asks for.
    fn hears(&self) -> bool {
        self.sending.len() < UNSENT_MAX && self.answers < ANSWERS_MAX
    }

    /// Sends what fits; false when the peer is gone.
    fn flush(&mut self) -> bool {
        let (taken, ready) = { self.hub.lock().take_outbox(self.id) };
        self.answers += taken.iter().filter(|one| one.answers_mark()).count();
        self.sending.extend(taken);
        self.ready = self.ready.or(ready);
        while let Some(next) = self.sending.front() {
            match self.peer.try_send(next) {
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
            self.hub.metrics.stages.handover.observe(took);
        }
        true
    }

    fn hear(&mut self, bytes: &[u8]) {
        let (hub, id) = (&self.hub, self.id);
        let outcome = match ClientMessage::decode(bytes) {
            Ok(ClientMessage::Release(release)) => hub.apply(|state| state.release(id, &release)),
            Ok(ClientMessage::Progress(progress)) => {
                hub.lock().progress(id, &progress);
                Ok(())
            }
            Ok(ClientMessage::Checkpoint(made)) => {
                self.marks.mark(&made);
                Ok(())
            }
            Ok(ClientMessage::Bye) => {
                hub.apply(|state| state.stop_session(id));
                Ok(())
            }
            Ok(ClientMessage::Hello(_)) => Err(Fault::new(ErrorName::BadMessage, "a second hello")),
            Err(why) => Err(fault_of(&why)),
        };
        // The socket stays: frames that the rank holds are its own until it releases them.
        if let Err(fault) = outcome {
            // Once: whoever goes on so must fill neither the log nor the daemon's memory.
            if hub.apply(|state| state.fail_session(id, fault.clone())) {
                tracing::warn!(session = id, %fault, "a rank broke the protocol");
            }
        }
    }

    /// Tells the rank when its next step is late, when the cause changes, and now and then again.
    fn tick(&mut self) {
        let mut state = self.hub.lock();
        let Some(late) = state.late(self.id) else {
            self.late = None;
            return;
        };
        let now = self.hub.context.now();
        let told = self.late.get_or_insert(Told {
            since: now,
            last: None,
        });
        let due = match &told.last {
            None => now.saturating_sub(told.since) >= LATE_AFTER,
            Some((last, at)) => last.cause != late.cause || now.saturating_sub(*at) >= LATE_AGAIN,
        };
        if due {
            state.send_waiting(self.id, &late);
            told.last = Some((late, now));
        }
        drop(state);
        // Growth that was put off is asked for again.
        self.hub.apply(|_| ());
    }
}
