//! The handshake: reads a rank's hello and answers it, at once or after a wait for another session's end, for its
//! job, or for its attempt.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::JobName;
use batchweave_daemon::connection_slots::Slot;
use batchweave_wire::{
    ClientMessage, DaemonMessage, ErrorName, Fault, Hello, Stage, WaitCause, Waiting, Welcome,
    WireError,
};
use tokio::sync::{Notify, oneshot};

use super::connection::{Connection, Inbox, NOTIFY_AGAIN};
use crate::describe;
use crate::engine::SessionId;
use crate::job::admission::{Refusal, occupied};
use crate::job::attempts::{LogRequest, being_opened, refusal, too_many};
use crate::job::membership::{AttemptRequest, WaitReason};
use crate::job::restart::with_restart;
use crate::node::stages::described;
use crate::node::{Node, Outgoing};
use crate::store_health::ReadKind;

/// A connection without a hello is dropped after this.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// A connection of a user that may not connect is dropped after this.
const NOT_ALLOWED_DEADLINE: Duration = Duration::from_secs(1);
/// How long a rank waits for another session of its coordinate, or another attempt, to end: a killed rank's socket may close a
/// little after its successor connects.
const OCCUPIED_DEADLINE: Duration = Duration::from_secs(2);
/// Most bytes of stages in a description of the stream.
const STAGES_BYTES_MAX: usize = 32 << 10;
/// How often to try again to admit a waiting rank, even if the head does not change.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// A rank is notified that its attempt is being opened when that takes longer than this.
const NOTIFY_OPENING: Duration = Duration::from_millis(200);

/// A rank that was admitted.
pub(crate) struct Accepted {
    pub(crate) id: SessionId,
    pub(crate) hello: Hello,
    pub(crate) welcome: Welcome,
    pub(crate) wake: Arc<Notify>,
}

/// Reads the hello and answers it; `None` when the rank is refused or gone.
pub(crate) async fn handshake(
    node: &Arc<Node>,
    connection: &Connection,
    inbox: &mut Inbox,
    refusal: Option<Fault>,
    silence: Slot,
) -> Option<Accepted> {
    // The hello is read even before a refusal: closing a socket with unread data resets the connection, and the
    // reset may overtake the refusal.
    let bytes = tokio::select! {
        biased;
        received = node.resources.context.timeout(HELLO_DEADLINE, inbox.receive()) => received??,
        () = silence.evicted() => return None,
    };
    drop(silence);
    if let Some(fault) = refusal {
        return refuse(connection, fault);
    }
    let hello = match ClientMessage::decode(&bytes) {
        Ok(ClientMessage::Hello(hello)) => hello,
        Ok(ClientMessage::Describe) => {
            tokio::select! {
                biased;
                // A client that is gone, or sends more.
                _ = inbox.receive() => {}
                () = describe(node, connection) => {}
            }
            return None;
        }
        Ok(_) => {
            let fault = Fault::new(ErrorName::BadMessage, "the first message must be hello");
            return refuse(connection, fault);
        }
        Err(why) => return refuse(connection, fault_of(&why)),
    };
    let handshake = Handshake {
        node,
        connection,
        hello,
        begun: node.resources.context.now(),
        last_reported: None,
        fast_polling: None,
        refreshed: false,
    };
    tokio::select! {
        biased;
        // A rank must not send anything before its welcome; one that does is disconnected.
        _ = inbox.receive() => None,
        accepted = handshake.wait() => accepted,
    }
}

/// Sends a description of the stream, after which the connection ends.
async fn describe(node: &Node, connection: &Connection) {
    let (mut info, file) = describe::describe(&node.resources, &node.tokenizer_file).await;
    info.reports = Some(node.resources.node_name());
    info.stages = stages(node);
    let answer = Outgoing::StreamInfo(info, file);
    let context = &node.resources.context;
    let send = async {
        while let Ok(false) = connection.try_send(&answer) {
            connection.writable().await;
        }
    };
    // A client that does not read keeps its place no longer than a silent one.
    let _ = context.timeout(HELLO_DEADLINE, send).await;
}

/// Returns the newest stages, as many as an answer has room for.
fn stages(node: &Node) -> Vec<Stage> {
    let stages = { node.lock().head.stages.clone() };
    let stream = &node.resources.stream;
    let newest = stages.all.keys().rev();
    let mut room = STAGES_BYTES_MAX;
    let described = newest.map(|id| described(*id, &stages, stream));
    let fitting = described.take_while(|stage| {
        let bytes = 128 + stage.name.len() + 6 * stage.form.len();
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    let mut all: Vec<Stage> = fitting.collect();
    all.reverse();
    all
}

/// Sends `fault` once a hello has arrived, or at the deadline.
pub(crate) async fn turn_away(connection: Connection, mut inbox: Inbox, fault: Fault) {
    let _ = tokio::time::timeout(NOT_ALLOWED_DEADLINE, inbox.receive()).await;
    refuse::<()>(&connection, fault);
}

fn refuse<T>(connection: &Connection, fault: Fault) -> Option<T> {
    tracing::warn!(%fault, "a rank was refused");
    if let Err(why) = connection.try_send(&Outgoing::Message(DaemonMessage::Error(fault))) {
        tracing::debug!(%why, "it was gone already");
    }
    None
}

/// Returns the fault of a message that can't be decoded.
pub(crate) fn fault_of(why: &WireError) -> Fault {
    match why {
        WireError::Version { .. } => Fault::new(ErrorName::ProtocolVersion, why.to_string()),
        _ => Fault::new(ErrorName::BadMessage, why.to_string()),
    }
}

/// A rank that is being admitted.
struct Handshake<'a> {
    node: &'a Arc<Node>,
    connection: &'a Connection,
    hello: Hello,
    begun: Duration,
    /// The last notification, and its time.
    last_reported: Option<(Waiting, Duration)>,
    fast_polling: Option<FastPolling>,
    /// The log was read to its head since the rank connected.
    refreshed: bool,
}

/// While it exists, the follower polls the log often.
struct FastPolling(Arc<Node>);

impl FastPolling {
    fn new(node: &Arc<Node>) -> Self {
        node.apply(|state| state.waiting_for_attempt += 1);
        Self(Arc::clone(node))
    }
}

impl Drop for FastPolling {
    fn drop(&mut self) {
        self.0.apply(|state| state.waiting_for_attempt -= 1);
    }
}

impl Handshake<'_> {
    async fn wait(mut self) -> Option<Accepted> {
        loop {
            let node = self.node;
            let changed = node.head_changed.notified();
            let waited = self.node.resources.context.since(self.begun);
            match self.node.join(&self.hello, self.connection.peer()) {
                Ok((id, welcome, wake)) => {
                    let hello = self.hello;
                    return Some(Accepted {
                        id,
                        hello,
                        welcome,
                        wake,
                    });
                }
                Err(Refusal::Occupied(other)) if waited >= OCCUPIED_DEADLINE => {
                    return refuse(self.connection, occupied(&self.hello, other));
                }
                Err(Refusal::Running(fault)) if waited >= OCCUPIED_DEADLINE => {
                    return refuse(self.connection, *fault);
                }
                Err(Refusal::Occupied(_) | Refusal::Running(_)) => {
                    self.node
                        .resources
                        .context
                        .sleep(Duration::from_millis(20))
                        .await;
                }
                Err(Refusal::Open(request)) => match self.open(*request).await? {
                    Ok(None) => {}
                    Ok(Some(reason)) => {
                        self.hold_back(reason)?;
                        self.node.resources.context.sleep(RETRY_PERIOD).await;
                    }
                    Err(fault) => return self.refuse(fault).await,
                },
                // Another node may have read the log further than this one.
                Err(Refusal::Beyond(fault)) if !self.refreshed => {
                    match self.node.poll_head().await {
                        Some(_) => self.refreshed = true,
                        None => self.hold_back(unread(*fault))?,
                    }
                }
                Err(Refusal::Beyond(fault) | Refusal::Final(fault)) => {
                    return self.refuse(*fault).await;
                }
                Err(Refusal::Wait(reason)) => {
                    self.hold_back(*reason)?;
                    let _ = node.resources.context.timeout(RETRY_PERIOD, changed).await;
                }
            }
        }
    }

    /// Refuses the rank; if its data is reclaimed, with the oldest checkpoint that works.
    async fn refuse(&self, fault: Fault) -> Option<Accepted> {
        let job = self.hello.job.as_ref().and_then(|job| job.parse().ok());
        let fault = match job {
            Some(job) if fault.known_name() == Some(ErrorName::StepReclaimed) => {
                let (answer, answered) = oneshot::channel();
                let request = LogRequest::Restart(JobName::clone(&job), answer);
                // An error means that the daemon stops.
                let _ = self.node.requests.send(request).await;
                with_restart(fault, &job, answered.await.unwrap_or_default())
            }
            _ => fault,
        };
        refuse(self.connection, fault)
    }

    /// Has the attempt's record written. Returns the reason to wait if that failed and may pass; `None` when the
    /// rank was refused meanwhile, or the daemon stops: the rank then connects again.
    async fn open(&mut self, attempt: AttemptRequest) -> Option<Result<Option<WaitReason>, Fault>> {
        if let Err(wait) = self
            .node
            .attempt_rate
            .take(&attempt.job, self.node.resources.context.now())
        {
            return Some(Ok(Some(too_many(&attempt, wait))));
        }
        let (answer, mut answered) = oneshot::channel();
        let request = LogRequest::Open(Box::new(attempt.clone()), answer);
        if self.node.requests.send(request).await.is_err() {
            return None;
        }
        let outcome = loop {
            let answer = self
                .node
                .resources
                .context
                .timeout(NOTIFY_OPENING, &mut answered);
            match answer.await {
                Some(outcome) => break outcome,
                // The log retries its store for a long time; the rank is notified meanwhile.
                None => self.hold_back(being_opened(&attempt))?,
            }
        };
        if !matches!(outcome, Ok(Ok(()))) {
            self.node.attempt_rate.give_back(&attempt.job);
        }
        Some(match outcome {
            Ok(Ok(())) => Ok(None),
            Ok(Err(why)) => refusal(&attempt, why, &self.node.resources.stream).map(Some),
            Err(_) => return None,
        })
    }

    /// Notifies the rank why it waits; refuses it at the deadline of `job.open_within`.
    fn hold_back(&mut self, reason: WaitReason) -> Option<()> {
        let limit = self.node.job.open_within.0;
        if self.node.resources.context.since(self.begun) >= limit {
            let mut fault = reason.fault;
            fault.message = format!("{}, and did not within {limit:?}", fault.message);
            return refuse(self.connection, fault);
        }
        self.fast_polling
            .get_or_insert_with(|| FastPolling::new(self.node));
        // While the log can't be read, the reason may be outdated.
        let unread = self.node.resources.store_health.failure(ReadKind::Log);
        let (cause, detail) = match unread {
            Some(why) => (WaitCause::StoreUnavailable, why),
            None => (reason.cause, reason.detail),
        };
        let waiting = Waiting {
            step: self.hello.next_step,
            cause,
            detail,
        };
        let known = self.last_reported.as_ref().is_some_and(|(last, at)| {
            *last == waiting && self.node.resources.context.since(*at) < NOTIFY_AGAIN
        });
        if !known {
            tracing::info!(dp_rank = self.hello.dp_rank, cause = %waiting.cause, detail = waiting.detail, "a rank waits");
            let message = Outgoing::Message(DaemonMessage::Waiting(waiting.clone()));
            // The inbox notices a rank that is gone; one whose socket is full is notified later.
            if self.connection.try_send(&message).unwrap_or(false) {
                self.last_reported = Some((waiting, self.node.resources.context.now()));
            }
        }
        Some(())
    }
}

/// Returns the reason of waiting of a rank that may have received steps which are not in the log, while the log
/// can't be read.
fn unread(fault: Fault) -> WaitReason {
    WaitReason {
        cause: WaitCause::StoreUnavailable,
        detail: "the log can't be read".to_owned(),
        fault,
    }
}
