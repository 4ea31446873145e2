//! Which checkpoint marks are valid, and the objects that store them. Pure.

use batchweave_core::ids::{Step, StreamId};
use batchweave_core::retention::Mark;
use batchweave_wire::{Checkpoint, ErrorName, Fault};
use serde::Deserialize;

use super::membership::Member;
use crate::config::Checkpoints;
use crate::stream_head::{Head, below_watermark};

/// The state of a mark; further keys of it are for people.
#[derive(Deserialize)]
struct StateText {
    format: u64,
    stream_id: String,
    next_step: u64,
    attempt: Option<String>,
}

/// Checks a mark of a rank that was sent every step below `sent`. Returns why it is refused.
pub(crate) fn validate(
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
    // A range that is quarantined ahead of time may lie beyond the head.
    if step > member.quarantine.next_read(head.next_step) {
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

/// Returns the object that stores a valid mark; `None` if another rank marks for this one.
pub(crate) fn mark_for(
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

#[cfg(test)]
mod tests;
