//! Checkpoint marks: judged, stored as create-only objects, and looked after.
//!
//! A mark that can't be stored is tried again and never stops the daemon; the rank is told what became
//! of it. Marks are never deleted here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use batchweave_core::guards;
use batchweave_core::ids::{Step, StreamId};
use batchweave_core::keys;
use batchweave_core::retention::{AttemptObjects, Mark};
use batchweave_store::StoreError;
use batchweave_wire::{Checkpoint, DaemonMessage, ErrorName, Fault};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::config::Checkpoints;
use crate::engine::SessionId;
use crate::job::attempts::below_watermark;
use crate::job::membership::Member;
use crate::node::{Head, Hub};

/// How long an object is sent again while the store fails: as long as reads of the log are tried.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longest pause between tries: a mark is no later than this after the store answers again.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Marks of one session that may wait for the store: 4 MiB of states at most. A good rank has a few.
const WAITING_MAX: usize = 256;
/// Refusals of one session that the log tells of; the metrics count all.
const REFUSALS_TOLD: u32 = 16;
/// Missing coordinates that a warning lists.
const LISTED_MAX: usize = 16;

/// What a mark's state says; other keys are for people.
#[derive(Deserialize)]
struct StateText {
    format: u64,
    stream_id: String,
    next_step: u64,
    attempt: Option<String>,
}

/// Whether a rank that was sent every step below `sent` may mark so. Pure.
pub(crate) fn judge(
    member: &Member,
    sent: Step,
    head: &Head,
    made: &Checkpoint,
    stream: StreamId,
) -> Result<(), Fault> {
    let step = made.step;
    let Member {
        job,
        attempt,
        start,
        dp_rank,
        ..
    } = member;
    let fault = |name, message: String| Fault::new(name, message).at_step(step);
    let state = state_of(made, stream).map_err(|why| {
        let message = format!("the mark's state {why}");
        fault(ErrorName::MarkBadState, message)
    })?;
    if state.attempt.as_ref() != Some(&member.id.to_string()) {
        let of = state.attempt.unwrap_or_else(|| "none".into());
        let message = format!(
            "the mark's state is of attempt {of}, this rank reads in attempt {attempt} ({}) of job {job}",
            member.id
        );
        return Err(fault(ErrorName::MarkOtherAttempt, message));
    }
    if step < *start {
        let message = format!("the mark lies before step {start}, where attempt {attempt} began");
        return Err(fault(ErrorName::MarkOtherAttempt, message));
    }
    let recorded = head.jobs.get(job).and_then(|job| {
        let found = job.attempts.iter().find(|a| a.number == *attempt)?;
        Some(found.dp_size)
    });
    if let Some(size) = recorded.filter(|size| dp_rank >= size) {
        let message = format!(
            "the mark is of data rank {dp_rank}, attempt {attempt} has the ranks 0 to {}",
            size - 1
        );
        return Err(fault(ErrorName::MarkNoSuchRank, message));
    }
    if step < head.watermark {
        return Err(below_watermark(step, head.watermark));
    }
    // A range that is quarantined ahead of time is passed over before the stream has come there.
    if step > member.skips.pass(head.next_step) {
        let message = format!(
            "the mark says that the steps below it were trained, the stream has those below {}",
            head.next_step
        );
        return Err(fault(ErrorName::MarkInFuture, message));
    }
    if step > sent {
        let message = format!(
            "the mark says that the steps below it were trained, this rank was sent those below {sent}"
        );
        return Err(fault(ErrorName::MarkNotDelivered, message));
    }
    Ok(())
}

fn state_of(made: &Checkpoint, stream: StreamId) -> Result<StateText, String> {
    let state: StateText =
        serde_json::from_str(&made.state).map_err(|why| format!("is not readable: {why}"))?;
    if state.format != 1 {
        return Err(format!("has format {}, this daemon reads 1", state.format));
    }
    if state.stream_id != stream.to_string() {
        return Err(format!("is of stream {}, not {stream}", state.stream_id));
    }
    if state.next_step != made.step {
        return Err(format!(
            "stands at step {}, not at {}",
            state.next_step, made.step
        ));
    }
    Ok(state)
}

/// What is stored of a good mark; none where another rank speaks for this one.
pub(crate) fn of(
    member: &Member,
    made: &Checkpoint,
    policy: Checkpoints,
    stream: StreamId,
) -> Option<Mark> {
    let dp_rank = match policy {
        Checkpoints::All => Some(member.dp_rank),
        Checkpoints::Rank0 if member.dp_rank == 0 => None,
        Checkpoints::Rank0 => return None,
    };
    Some(Mark {
        format: 1,
        stream,
        job: member.job.clone(),
        opened: member.opened,
        attempt: member.attempt,
        id: member.id,
        dp_rank,
        dp_size: member.dp_size,
        step: made.step,
        state: made.state.clone(),
    })
}

/// The marks of one session. Clones share its limits.
#[derive(Clone)]
pub(crate) struct Marks {
    hub: Arc<Hub>,
    tasks: TaskTracker,
    session: SessionId,
    /// One for each mark that may wait for the store.
    room: Arc<Semaphore>,
    refused: Arc<AtomicU32>,
}

impl Marks {
    pub(crate) fn new(hub: Arc<Hub>, tasks: TaskTracker, session: SessionId) -> Self {
        Self {
            hub,
            tasks,
            session,
            room: Arc::new(Semaphore::new(WAITING_MAX)),
            refused: Arc::default(),
        }
    }

    /// Judges a mark, stores it in the background, and tells the rank what became of it.
    pub(crate) fn mark(&self, made: &Checkpoint) {
        let (policy, stream) = (self.hub.job.checkpoints, self.hub.stream.stream_id);
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let message = format!("{WAITING_MAX} marks of this rank wait for the store already");
            let fault = Fault::new(ErrorName::MarkNotStored, message).at_step(made.step);
            return self.refuse("refused", fault);
        };
        let judged = self
            .hub
            .apply(|state| state.mark(self.session, made, policy, stream));
        let (mark, receipt) = match judged {
            Ok(None) => return self.send(DaemonMessage::Marked(made.step)),
            Err(fault) => return self.refuse("refused", fault),
            Ok(Some(good)) => good,
        };
        if mark.is_none() {
            self.send(DaemonMessage::Marked(made.step));
        }
        let marks = self.clone();
        self.tasks.spawn(async move {
            // The ledger first: a proof must have no hole below a restart point.
            let blind = guards::confirms_mark_before_ledger();
            let kept = blind || receipt.await.unwrap_or(false);
            if let Some(mark) = mark {
                marks.keep(&mark, kept).await;
            }
            drop(room);
        });
    }

    fn send(&self, message: DaemonMessage) {
        self.hub.apply(|state| state.send(self.session, message));
    }

    fn refuse(&self, outcome: &str, fault: Fault) {
        // Whoever marks in a loop must not fill the log.
        if self.refused.fetch_add(1, Relaxed) < REFUSALS_TOLD {
            tracing::warn!(session = self.session, %fault, "a mark was not stored");
        }
        self.hub.metrics.marks.with_label_values(&[outcome]).inc();
        self.send(DaemonMessage::MarkRefused(fault));
    }

    async fn keep(&self, mark: &Mark, kept: bool) {
        let (hub, key) = (&self.hub, mark.key());
        if !kept {
            let message = "the ledger of what was delivered before the mark could not be stored";
            let fault = Fault::new(ErrorName::MarkNotStored, message).at_step(mark.step);
            return self.refuse("lost", fault.at_key(key));
        }
        if let Err(why) = put(hub, &key, mark.to_json().into()).await {
            let seconds = PATIENCE.as_secs();
            let message = format!("the mark could not be stored for {seconds} s: {why}");
            let fault = Fault::new(ErrorName::MarkNotStored, message).at_step(mark.step);
            return self.refuse("lost", fault.at_key(key));
        }
        hub.metrics.marks.with_label_values(&["stored"]).inc();
        self.send(DaemonMessage::Marked(mark.step));
        // One coordinate looks after the marks of all.
        if mark.dp_rank == Some(0) && mark.dp_size > 1 {
            warn_of_incomplete(hub, mark).await;
        }
    }
}

/// Older marks that some coordinates have not made: their ranks do not call `checkpoint`, or fail to.
async fn warn_of_incomplete(hub: &Hub, mark: &Mark) {
    let signs = match list(hub, mark).await {
        Ok(signs) => signs,
        Err(why) => return tracing::debug!(%why, "marks could not be listed"),
    };
    let incomplete = signs.incomplete(mark.dp_size);
    let older: Vec<_> = incomplete
        .into_iter()
        .filter(|(step, _)| *step < mark.step)
        .collect();
    hub.metrics
        .incomplete_marks
        .with_label_values(&[mark.job.as_str()])
        .set(older.len().cast_signed() as i64);
    // The newest of them: it was told of the others when they were.
    if let Some((step, missing)) = older.last() {
        tracing::warn!(
            job = %mark.job,
            attempt = mark.attempt,
            step,
            missing = missing.len(),
            dp_ranks = ?&missing[..missing.len().min(LISTED_MAX)],
            "a mark is incomplete: nobody can restart from it; every data coordinate must call \
             checkpoint(), or set job.checkpoints = \"rank0\""
        );
    }
}

async fn list(hub: &Hub, mark: &Mark) -> Result<AttemptObjects, StoreError> {
    let prefix = keys::marks(&mark.job, mark.opened, mark.attempt);
    let mut signs = AttemptObjects::default();
    let mut page = None;
    loop {
        let found = hub.store.list(&prefix, page).await?;
        for object in found.objects {
            signs.note(&object.key, mark.dp_size, Step::MAX);
        }
        page = found.next;
        if page.is_none() {
            return Ok(signs);
        }
    }
}

/// Stores an object that is the same whoever stores it; retries failures that pass for `PATIENCE`.
pub(crate) async fn put(hub: &Hub, key: &str, body: Bytes) -> Result<(), StoreError> {
    let (began, mut pause) = (hub.context.now(), Duration::from_millis(100));
    loop {
        match hub.store.create(key, body.clone()).await {
            Ok(_) => return Ok(()),
            Err(why) if hub.context.since(began) < PATIENCE && why.kind.is_transient() => {
                tracing::debug!(%why, "trying again");
            }
            Err(why) => return Err(why),
        }
        hub.context.sleep(hub.context.jittered(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests;
