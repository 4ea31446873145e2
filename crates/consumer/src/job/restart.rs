//! The restart points of a job: where an attempt begins that does not state its start, and the remedy of a start
//! whose data is reclaimed.
//!
//! A trainer that forgets to pass its saved state would begin at step 0 again: it would train the same data twice
//! and give its checkpoints up. Such an attempt is refused. Only the daemon of global rank 0 asks, when it writes
//! the attempt's record, so the ranks of one attempt never disagree; a rank that joins an open attempt is never
//! refused.

use std::collections::BTreeSet;

use batchweave_core::ids::{AttemptId, JobName, Step};
use batchweave_core::manifest::state::JobState;
use batchweave_core::retention::{JobObjects, restart_points};
use batchweave_core::stream::StreamConfig;
use batchweave_log::{Log, LogError};
use batchweave_wire::{Begin, ErrorName, Fault};

use super::membership::AttemptRequest;
use crate::mistakes::{self, Mistake};

/// Restart points that a message lists.
const LISTED_MAX: usize = 5;

/// The newest attempt that a record may follow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Predecessor {
    /// Any: an attempt that is opened meanwhile is superseded.
    Any,
    /// This one, or none.
    Only(Option<AttemptId>),
}

/// Why an attempt was not opened.
#[derive(Debug)]
pub(crate) enum NotOpened {
    Log(LogError),
    /// Its rank did not state where it begins, and the job has restart points.
    Forgotten(Box<Fault>),
}

impl From<LogError> for NotOpened {
    fn from(why: LogError) -> Self {
        Self::Log(why)
    }
}

/// A request with its start, and the newest attempt of the state for which that start was found.
pub(crate) struct Found {
    pub(crate) request: AttemptRequest,
    pub(crate) after: Predecessor,
}

/// Finds where the attempt of `request` begins; fails if its rank must state that.
pub(crate) async fn found(log: &mut Log, request: &AttemptRequest) -> Result<Found, NotOpened> {
    let job = log.manifest().jobs().get(&request.job);
    let attempts = job.map_or(&[][..], |job| job.attempts.as_slice());
    let after = attempts.last().map(|newest| newest.id);
    // The log may have the attempt already: then its record stays, and the rank joins it.
    let known = attempts.iter().any(|attempt| attempt.id == request.id);
    // Without attempts there is no mark; the rest needs LISTs.
    let objects = match after {
        Some(_) if !known => log.job_objects().await?.remove(&request.job),
        _ => None,
    };
    let m = log.manifest();
    let request = match m.jobs().get(&request.job) {
        Some(job) if !known => {
            let objects = objects.unwrap_or_default();
            begin(request, job, &objects, m.watermark())
                .and_then(|request| in_fork(m.stream(), request))
                .map_err(|fault| NotOpened::Forgotten(Box::new(fault)))?
        }
        _ => request.clone(),
    };
    let after = Predecessor::Only(after);
    Ok(Found { request, after })
}

/// Returns the request with its start by the rule above. Pure.
fn begin(
    request: &AttemptRequest,
    job: &JobState,
    objects: &JobObjects,
    watermark: Step,
) -> Result<AttemptRequest, Fault> {
    let points: BTreeSet<Step> = restart_points(job, objects)
        .into_iter()
        .filter(|point| *point >= watermark && *point > request.start)
        .collect();
    match (request.begin, points.last()) {
        (Begin::Unstated, Some(_)) if !mistakes::is(Mistake::ForgottenState) => {
            Err(forgotten(request, &points))
        }
        (Begin::Latest, newest) => {
            let start = newest.copied().unwrap_or(job.start);
            let parent = newest.and_then(|step| parent_at(job, objects, *step));
            tracing::info!(job = %request.job, start, "an attempt begins at the job's newest restart point");
            Ok(AttemptRequest {
                parent,
                start,
                ..request.clone()
            })
        }
        _ => Ok(request.clone()),
    }
}

/// Refuses an attempt that states no start where the stream is a fork: its steps go on behind a checkpoint of the parent.
fn in_fork(stream: &StreamConfig, request: AttemptRequest) -> Result<AttemptRequest, Fault> {
    let parent = stream.parent_with(request.start);
    let Some(parent) = parent.filter(|_| request.begin == Begin::Unstated) else {
        return Ok(request);
    };
    let (job, step) = (&request.job, parent.step);
    let message = format!("the attempt of job {job} states no start, and {parent}");
    let remedy = format!(
        "pass the state= of the parent's checkpoint at step {step}, or start={step} with the model saved there"
    );
    Err(Fault::new(ErrorName::ForgottenState, message)
        .at_step(step)
        .remedy(remedy))
}

/// Returns the newest attempt of which `step` is a restart point, as a parent.
fn parent_at(job: &JobState, objects: &JobObjects, step: Step) -> Option<(u64, AttemptId, Step)> {
    let marked = |number, dp_size| {
        let of_attempt = objects.get(&number);
        of_attempt.is_some_and(|o| o.complete_marks(dp_size).contains(&step))
    };
    let mut newest = job.attempts.iter().rev();
    let found = newest.find(|a| a.start == step || marked(a.number, a.dp_size))?;
    Some((found.number, found.id, step))
}

fn forgotten(request: &AttemptRequest, points: &BTreeSet<Step>) -> Fault {
    let mut newest = points.iter().rev();
    let first = newest.next().copied().unwrap_or_default();
    let listed: Vec<String> = newest
        .by_ref()
        .take(LISTED_MAX - 1)
        .map(Step::to_string)
        .collect();
    let more = match newest.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let others = match listed.len() {
        0 => String::new(),
        _ => format!(" (before it {}{more})", listed.join(", ")),
    };
    let message = format!(
        "job {} can restart from its checkpoint at step {first}{others}, and this attempt states no start: it \
         would train from step {} again and give the checkpoints up",
        request.job, request.start,
    );
    Fault::new(ErrorName::ForgottenState, message).at_step(first)
}

/// Returns the oldest restart point of a job whose data exists; `None` also if the store can't be listed.
pub(crate) async fn oldest_restart(log: &mut Log, job: &JobName) -> Option<Step> {
    let objects = match log.job_objects().await {
        Ok(objects) => objects.get(job).cloned().unwrap_or_default(),
        Err(why) => {
            tracing::debug!(%job, %why, "restart points can't be listed");
            return None;
        }
    };
    let m = log.manifest();
    let points = restart_points(m.jobs().get(job)?, &objects);
    points.range(m.watermark()..).next().copied()
}

/// Adds the oldest restart point of the job to a fault.
pub(crate) fn with_restart(fault: Fault, job: &JobName, oldest: Option<Step>) -> Fault {
    let remedy = match oldest {
        Some(step) => {
            format!(
                "start from a newer checkpoint: the oldest of job {job} that works is step {step}"
            )
        }
        None => format!("{}; no checkpoint of job {job} is left", fault.remedy),
    };
    fault.remedy(remedy)
}

#[cfg(test)]
mod tests;
