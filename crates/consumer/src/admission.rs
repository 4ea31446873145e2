//! Whether a rank may join, and what it then reads: the checks of its hello, pure.
//!
//! In this form the daemon sees only its own node: ranks of one attempt must agree on `dp_size` and,
//! when they join, on the start step; each coordinate is read by one live session of an attempt.

use std::collections::BTreeMap;
use std::ops::Range;

use batchweave_arena::wire::{ErrorName, Fault, Hello, Mode};
use batchweave_core::ids::Step;
use batchweave_core::mesh;
use batchweave_core::stream::StreamConfig;

use crate::engine::SessionId;

/// What is known of the stream's ends when a rank says hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The oldest step that may be read.
    pub(crate) watermark: Step,
    /// The first step that will never be, when that is decided.
    pub(crate) end: Option<Step>,
}

/// Why a rank may not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another live session reads the coordinate. It may be about to end: worth a short wait.
    Occupied(SessionId),
    /// For good.
    Final(Box<Fault>),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Final(Box::new(fault))
    }
}

type AttemptKey = (Option<String>, Option<String>);

#[derive(Debug)]
struct Attempt {
    dp_size: u32,
    joined_at: Option<Step>,
    live: BTreeMap<u32, SessionId>,
}

/// The attempts with live sessions on this node.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    attempts: BTreeMap<AttemptKey, Attempt>,
}

impl Admission {
    /// Admits `session` under its hello or says why not. Call `leave` when it is over.
    pub(crate) fn enter(&mut self, session: SessionId, hello: &Hello) -> Result<(), Refusal> {
        // A reader without a job is on its own: nothing to agree with.
        if hello.job.is_none() {
            return Ok(());
        }
        let key = (hello.job.clone(), hello.attempt.clone());
        let attempt = self.attempts.entry(key).or_insert_with(|| Attempt {
            dp_size: hello.dp_size,
            joined_at: None,
            live: BTreeMap::new(),
        });
        if let Err(fault) = agree(attempt, hello) {
            return Err(fault.into());
        }
        if let Some(other) = attempt.live.get(&hello.dp_rank) {
            return Err(Refusal::Occupied(*other));
        }
        attempt.live.insert(hello.dp_rank, session);
        if hello.mode == Mode::Join {
            attempt.joined_at.get_or_insert(hello.next_step);
        }
        Ok(())
    }

    /// A session is over, or follows no more.
    pub(crate) fn leave(&mut self, session: SessionId) {
        for attempt in self.attempts.values_mut() {
            attempt.live.retain(|_, live| *live != session);
        }
        self.attempts.retain(|_, attempt| !attempt.live.is_empty());
    }
}

fn agree(attempt: &Attempt, hello: &Hello) -> Result<(), Fault> {
    let rank = hello.dp_rank;
    if attempt.dp_size != hello.dp_size {
        let message = format!(
            "dp_rank {rank} says dp_size {}, other ranks of the attempt on this node {}",
            hello.dp_size, attempt.dp_size
        );
        return Err(Fault::new(ErrorName::AttemptDisagrees, message));
    }
    // Without an attempt's id a restarted rank can't be told from a wrong one.
    let joins = hello.mode == Mode::Join && hello.attempt.is_some();
    if let Some(start) = attempt
        .joined_at
        .filter(|start| joins && *start != hello.next_step)
    {
        let message = format!(
            "dp_rank {rank} starts at step {}, other ranks of the attempt on this node at {start}",
            hello.next_step
        );
        return Err(Fault::new(ErrorName::AttemptDisagrees, message).at_step(hello.next_step));
    }
    Ok(())
}

/// Told after waiting in vain for the other session to end.
pub(crate) fn occupied(hello: &Hello, other: SessionId) -> Fault {
    let message = format!(
        "session {other} already reads dp_rank {} of this attempt",
        hello.dp_rank
    );
    Fault::new(ErrorName::DuplicateCoordinate, message)
}

/// The rank's slices, or what its hello and the stream disagree on.
pub(crate) fn slices_of(
    hello: &Hello,
    stream: &StreamConfig,
    bounds: Bounds,
    served_job: &str,
) -> Result<Range<u32>, Fault> {
    hello
        .check()
        .map_err(|why| Fault::new(ErrorName::BadHello, why))?;
    check_job(hello, served_job)?;
    check_stream(hello, stream)?;
    check_position(hello.next_step, bounds)?;
    mesh::slices_of(stream.slices, hello.dp_size, hello.dp_rank)
        .map_err(|why| Fault::new(ErrorName::BadMesh, why.to_string()))
}

fn check_job(hello: &Hello, served: &str) -> Result<(), Fault> {
    match &hello.job {
        Some(job) if !served.is_empty() && job != served => {
            let message = format!("this daemon serves job {served}, the rank asks for {job}");
            let remedy =
                "correct the job's name, or start a daemon for that job on a socket of its own";
            Err(Fault::new(ErrorName::UnknownJob, message).remedy(remedy))
        }
        Some(job) => match job.parse::<batchweave_core::ids::JobName>() {
            Ok(_) => Ok(()),
            Err(why) => Err(Fault::new(ErrorName::BadHello, why.to_string())),
        },
        None => Ok(()),
    }
}

fn check_stream(hello: &Hello, stream: &StreamConfig) -> Result<(), Fault> {
    let ours = stream.stream_id.to_string();
    if let Some(theirs) = hello.stream.as_ref().filter(|id| **id != ours) {
        let message = format!("the state belongs to stream {theirs}, this daemon serves {ours}");
        return Err(Fault::new(ErrorName::OtherStream, message));
    }
    let expected = [
        ("slices", hello.slices, stream.slices),
        ("seq_len", hello.seq_len, stream.seq_len),
        (
            "rows_per_slice",
            hello.rows_per_slice,
            stream.rows_per_slice,
        ),
    ];
    let wrong: Vec<String> = expected
        .iter()
        .filter_map(|(name, want, is)| {
            Some((name, (*want)?, is)).filter(|(_, want, is)| want != *is)
        })
        .map(|(name, want, is)| format!("{name}: the stream has {is}, the trainer expects {want}"))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Fault::new(ErrorName::BadHello, wrong.join("; ")))
}

fn check_position(step: Step, bounds: Bounds) -> Result<(), Fault> {
    if step < bounds.watermark {
        let message = format!(
            "step {step} is below the watermark {}: its data is reclaimed",
            bounds.watermark
        );
        return Err(Fault::new(ErrorName::StepReclaimed, message).at_step(step));
    }
    if let Some(end) = bounds.end.filter(|end| step > *end) {
        let message = format!("the stream ended before step {end}: there will be no step {step}");
        return Err(Fault::new(ErrorName::StreamEnded, message).at_step(step));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
