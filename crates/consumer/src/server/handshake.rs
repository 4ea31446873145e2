//! Letting a rank in: its hello is heard and answered, at once or after what it waits for: another
//! session's end, its job, its attempt.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::JobName;
use batchweave_daemon::connection_slots::Slot;
use batchweave_wire::{
    ClientMessage, DaemonMessage, ErrorName, Fault, Hello, WaitCause, Waiting, Welcome, WireError,
};
use tokio::sync::{Notify, oneshot};

use crate::engine::SessionId;
use crate::job::admission::{Refusal, occupied};
use crate::job::attempts::{Order, being_opened, refusal, too_many, with_restart};
use crate::job::membership::{Hold, Wish};
use crate::node::{Hub, Outgoing, Reads};
use crate::server::connection::{Inbox, Peer};
use crate::server::session::LATE_AGAIN;

/// A peer that connects and says nothing is dropped after this.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// One that may not connect at all, after this.
const STRANGER_DEADLINE: Duration = Duration::from_secs(1);
/// How long a rank waits for another session of its coordinate to end: a killed rank's socket may
/// close a little later than its successor comes.
const OCCUPIED_DEADLINE: Duration = Duration::from_secs(2);
/// A rank that waits is looked after so often, also when the head does not move.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A rank whose attempt is being opened is told so when that takes longer.
const TELL_OPENING: Duration = Duration::from_millis(200);

/// A rank that was let in.
pub(crate) struct Greeted {
    pub(crate) id: SessionId,
    pub(crate) hello: Hello,
    pub(crate) welcome: Welcome,
    pub(crate) wake: Arc<Notify>,
}

/// Reads the hello and answers it; None when the peer is refused or gone.
pub(crate) async fn greet(
    hub: &Arc<Hub>,
    peer: &Peer,
    inbox: &mut Inbox,
    (refusal, silence): (Option<Fault>, Slot),
) -> Option<Greeted> {
    // Also before a refusal: closing with the hello unread would reset the connection, and the reset
    // may overtake the refusal.
    let bytes = tokio::select! {
        biased;
        heard = hub.context.timeout(HELLO_DEADLINE, inbox.receive()) => heard??,
        () = silence.evicted() => return None,
    };
    drop(silence);
    if let Some(fault) = refusal {
        return refuse(peer, fault);
    }
    let hello = match ClientMessage::decode(&bytes) {
        Ok(ClientMessage::Hello(hello)) => hello,
        Ok(_) => {
            let fault = Fault::new(ErrorName::BadMessage, "the first message must be hello");
            return refuse(peer, fault);
        }
        Err(why) => return refuse(peer, fault_of(&why)),
    };
    let entry = Entry {
        hub,
        peer,
        hello,
        begun: hub.context.now(),
        told: None,
        hurry: None,
        looked: false,
    };
    tokio::select! {
        biased;
        // Nothing is said before the welcome; whoever says something is answered by the end.
        _ = inbox.receive() => None,
        greeted = entry.wait() => greeted,
    }
}

/// Tells a peer that it may not connect, once it has spoken, or at once where it has not by then.
pub(crate) async fn turn_away(peer: Peer, mut inbox: Inbox, fault: Fault) {
    let _ = tokio::time::timeout(STRANGER_DEADLINE, inbox.receive()).await;
    refuse::<()>(&peer, fault);
}

fn refuse<T>(peer: &Peer, fault: Fault) -> Option<T> {
    tracing::warn!(%fault, "a rank was refused");
    if let Err(why) = peer.try_send(&Outgoing::Message(DaemonMessage::Error(fault))) {
        tracing::debug!(%why, "it was gone already");
    }
    None
}

/// What a message that can't be read means.
pub(crate) fn fault_of(why: &WireError) -> Fault {
    match why {
        WireError::Version { .. } => Fault::new(ErrorName::ProtocolVersion, why.to_string()),
        _ => Fault::new(ErrorName::BadMessage, why.to_string()),
    }
}

/// A rank at the door.
struct Entry<'a> {
    hub: &'a Arc<Hub>,
    peer: &'a Peer,
    hello: Hello,
    begun: Duration,
    /// The last cause told, and when.
    told: Option<(Waiting, Duration)>,
    hurry: Option<Hurry>,
    /// The log was read to its head since it came.
    looked: bool,
}

/// While it lives, the follower looks at the log often.
struct Hurry(Arc<Hub>);

impl Hurry {
    fn new(hub: &Arc<Hub>) -> Self {
        hub.apply(|state| state.in_a_hurry += 1);
        Self(Arc::clone(hub))
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        self.0.apply(|state| state.in_a_hurry -= 1);
    }
}

impl Entry<'_> {
    async fn wait(mut self) -> Option<Greeted> {
        loop {
            let hub = self.hub;
            let changed = hub.heads.notified();
            let waited = self.hub.context.since(self.begun);
            match self.hub.join(&self.hello, self.peer.uid()) {
                Ok((id, welcome, wake)) => {
                    let hello = self.hello;
                    return Some(Greeted {
                        id,
                        hello,
                        welcome,
                        wake,
                    });
                }
                Err(Refusal::Occupied(other)) if waited >= OCCUPIED_DEADLINE => {
                    return refuse(self.peer, occupied(&self.hello, other));
                }
                Err(Refusal::Occupied(_)) => {
                    self.hub.context.sleep(Duration::from_millis(20)).await;
                }
                Err(Refusal::Open(wish)) => match self.open(*wish).await? {
                    Ok(None) => {}
                    Ok(Some(hold)) => {
                        self.hold(hold)?;
                        self.hub.context.sleep(LOOK_AGAIN).await;
                    }
                    Err(fault) => return self.refuse(fault).await,
                },
                // Another node may have read further than this one.
                Err(Refusal::Beyond(fault)) if !self.looked => match self.hub.look_again().await {
                    Some(_) => self.looked = true,
                    None => self.hold(unread(*fault))?,
                },
                Err(Refusal::Beyond(fault) | Refusal::Final(fault)) => {
                    return self.refuse(*fault).await;
                }
                Err(Refusal::Wait(hold)) => {
                    self.hold(*hold)?;
                    let _ = hub.context.timeout(LOOK_AGAIN, changed).await;
                }
            }
        }
    }

    /// Refuses the rank; where its data is gone, with the oldest checkpoint that works.
    async fn refuse(&self, fault: Fault) -> Option<Greeted> {
        let job = self.hello.job.as_ref().and_then(|job| job.parse().ok());
        let fault = match job {
            Some(job) if fault.known_name() == Some(ErrorName::StepReclaimed) => {
                let (answer, answered) = oneshot::channel();
                let order = Order::Restart(JobName::clone(&job), answer);
                // An error means that the daemon stops.
                let _ = self.hub.orders.send(order).await;
                with_restart(fault, &job, answered.await.unwrap_or_default())
            }
            _ => fault,
        };
        refuse(self.peer, fault)
    }

    /// Has the attempt's record written; what may pass is something to wait for. None when the rank was
    /// refused meanwhile.
    async fn open(&mut self, wish: Wish) -> Option<Result<Option<Hold>, Fault>> {
        if let Err(wait) = self
            .hub
            .attempt_rate
            .take(&wish.job, self.hub.context.now())
        {
            return Some(Ok(Some(too_many(&wish, wait))));
        }
        let (answer, mut answered) = oneshot::channel();
        let order = Order::Open(Box::new(wish.clone()), answer);
        if self.hub.orders.send(order).await.is_err() {
            return Some(Err(stopping()));
        }
        let outcome = loop {
            let answer = self.hub.context.timeout(TELL_OPENING, &mut answered);
            match answer.await {
                Some(outcome) => break outcome,
                // The log is patient with its store; the rank wants to know meanwhile.
                None => self.hold(being_opened(&wish))?,
            }
        };
        if !matches!(outcome, Ok(Ok(()))) {
            self.hub.attempt_rate.give_back(&wish.job);
        }
        Some(match outcome {
            Ok(Ok(())) => Ok(None),
            Ok(Err(why)) => refusal(&wish, &why).map(Some),
            Err(_) => Err(stopping()),
        })
    }

    /// Tells the rank why it waits; refuses it when it has waited long enough.
    fn hold(&mut self, hold: Hold) -> Option<()> {
        let limit = self.hub.job.open_within.0;
        if self.hub.context.since(self.begun) >= limit {
            let mut fault = hold.fault;
            fault.message = format!("{}, and did not within {limit:?}", fault.message);
            return refuse(self.peer, fault);
        }
        self.hurry.get_or_insert_with(|| Hurry::new(self.hub));
        // What the log said last is not to be trusted while it can't be read.
        let unread = { self.hub.lock().store_failures.get(&Reads::Log).cloned() };
        let (cause, detail) = match unread {
            Some(why) => (WaitCause::StoreUnavailable, why),
            None => (hold.cause, hold.detail),
        };
        let waiting = Waiting {
            step: self.hello.next_step,
            cause,
            detail,
        };
        let known = self
            .told
            .as_ref()
            .is_some_and(|(told, at)| *told == waiting && self.hub.context.since(*at) < LATE_AGAIN);
        if !known {
            tracing::info!(dp_rank = self.hello.dp_rank, cause = %waiting.cause, detail = waiting.detail, "a rank waits");
            let message = Outgoing::Message(DaemonMessage::Waiting(waiting.clone()));
            // A rank that is gone is noticed by its inbox; one whose socket is full is told later.
            if self.peer.try_send(&message).unwrap_or(false) {
                self.told = Some((waiting, self.hub.context.now()));
            }
        }
        Some(())
    }
}

/// A rank that may have what the log does not hold, while the log can't be read.
fn unread(fault: Fault) -> Hold {
    Hold {
        cause: WaitCause::StoreUnavailable,
        detail: "the log can't be read".to_owned(),
        fault,
    }
}

fn stopping() -> Fault {
    Fault::new(ErrorName::Internal, "the daemon stops").remedy("connect again")
}
