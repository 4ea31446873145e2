//! The plan of a pass: what it would delete, and which jobs retain the rest.

use std::collections::BTreeMap;

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::JobState;
use batchweave_core::retention::reclaim::Reclaim;
use batchweave_core::retention::{self, Due, JobObjects, Progress};
use bytes::Bytes;
use serde::Serialize;

use super::job_objects::{self, ObjectsByJob, each};
use super::report::{Class, ReclaimError, Requests, Totals};
use super::scan::{self, Keep, Known};
use crate::error::LogError;
use crate::log::Log;
use crate::read::fitting::get_fitting;

/// Restart points reported per job: its newest.
const POINTS_REPORTED: usize = 8;

/// The data that a job retains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobRetention {
    pub job: JobName,
    pub opened: Version,
    /// The number of restart points that it keeps.
    pub keep: u32,
    /// The oldest step that it may need; `None` while it has fewer restart points than it keeps.
    pub floor: Option<Step>,
    /// Steps from `floor` to the head.
    pub steps: u64,
    /// Its newest restart points that are not reclaimed, oldest first.
    pub restart_points: Vec<Step>,
    /// The number of its newest attempt.
    pub attempt: Option<AttemptNo>,
    /// The version that opened that attempt.
    pub attempt_opened: Option<Version>,
    /// The first step that not all ranks of that attempt received.
    pub position: Option<Step>,
    /// When its newest progress was stored, by its daemon's clock.
    pub last_progress: Option<String>,
    /// Marks that some data coordinates have not made, with these coordinates.
    pub incomplete_marks: Vec<(Step, Vec<u32>)>,
}

/// A pass as it would be now.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The watermark requested by a person.
    pub asked: Option<Step>,
    /// The next version: the plan rests on all records before it.
    pub next_version: Version,
    /// The first step that is not committed.
    pub head: Step,
    pub watermark: Step,
    /// The watermark after the pass.
    pub after: Step,
    /// The watermark that follows from the jobs.
    pub due: Due,
    /// The jobs that retain data.
    pub held: Vec<JobRetention>,
    /// The objects in the store, by class.
    pub totals: BTreeMap<Class, Totals>,
    pub requests: Requests,
}

impl Plan {
    /// The number of steps that would be reclaimed.
    pub fn steps(&self) -> u64 {
        self.after - self.watermark
    }
}

pub(super) async fn make(
    log: &mut Log,
    known: &mut Known,
    to: Option<Step>,
    keep_losses: u64,
) -> Result<Plan, ReclaimError> {
    log.catch_up().await?;
    let mut listed = job_objects::list(log).await?;
    let (objects, gets) = known.verified.verify(log, &mut listed).await?;
    let fold = log.manifest().clone();
    let due = retention::watermark(&fold, &objects);
    let after = match (to, &due) {
        (Some(step), _) => {
            let request = log.new_request();
            retention::requested_watermark(&fold, &objects, step, request)?.step
        }
        (None, Due::Publish(entry)) => entry.step,
        (None, _) => fold.watermark(),
    };
    let rule = Reclaim::as_if(&fold, after).keep_losses(keep_losses);
    let mut found = scan::scan(log, &rule, &objects, known, Keep::none()).await?;
    found.requests.lists += listed.pages;
    found.requests.gets += gets;
    let held = retentions(log, &fold, &objects, &mut found.requests).await?;
    Ok(Plan {
        asked: to,
        next_version: fold.next_version(),
        head: fold.next_step(),
        watermark: fold.watermark(),
        after,
        due,
        held,
        totals: found.totals,
        requests: found.requests,
    })
}

async fn retentions(
    log: &Log,
    fold: &Manifest,
    objects: &ObjectsByJob,
    requests: &mut Requests,
) -> Result<Vec<JobRetention>, LogError> {
    let none = JobObjects::new();
    let mut held = Vec::new();
    for (name, job) in fold.jobs().iter().filter(|(_, job)| job.holds) {
        let objects = objects.get(name).unwrap_or(&none);
        let mut points: Vec<_> = retention::restart_points(job, objects)
            .into_iter()
            .collect();
        // The log keeps the start of an attempt also when its data is reclaimed.
        points.retain(|point| *point >= fold.watermark());
        points.drain(..points.len().saturating_sub(POINTS_REPORTED));
        let newest = job.attempts.last();
        let of_newest = newest.and_then(|attempt| Some((attempt, objects.get(&attempt.number)?)));
        let floor = retention::floor(job, objects);
        let position = of_newest.map(|(attempt, objects)| objects.position(attempt));
        held.push(JobRetention {
            job: name.clone(),
            opened: job.opened,
            keep: job.keep,
            floor,
            steps: fold.next_step().saturating_sub(floor.unwrap_or(0)),
            restart_points: points,
            attempt: newest.map(|attempt| attempt.number),
            attempt_opened: newest.map(|attempt| attempt.opened),
            position: position.or(newest.map(|attempt| attempt.start)),
            last_progress: seen(log, name, job, requests).await?,
            incomplete_marks: of_newest.map_or_else(Vec::new, |(a, o)| o.incomplete(a.dp_size)),
        });
    }
    Ok(held)
}

/// Returns when the newest attempt last stored progress, for people; `None` also for an unreadable object.
async fn seen(
    log: &Log,
    name: &JobName,
    job: &JobState,
    requests: &mut Requests,
) -> Result<Option<String>, LogError> {
    let Some(attempt) = job.attempts.last() else {
        return Ok(None);
    };
    let prefix = keys::progress_of(name, job.opened, attempt.number);
    let mut newest: Option<(Step, String)> = None;
    each(log.store.as_ref(), &prefix, &mut requests.lists, |object| {
        let parsed = keys::parse_progress(&object.key);
        let found = parsed.map(|progress| (progress.step, object.key));
        newest = newest.take().max(found);
        true
    })
    .await?;
    let Some((_, key)) = newest else {
        return Ok(None);
    };
    requests.gets += 1;
    let stream = log.manifest().stream_id();
    let parse = |bytes: &Bytes| Progress::from_json(bytes, &key, stream);
    let read = get_fitting(log.store.as_ref(), &key, parse).await;
    Ok(read.ok().and_then(Result::ok).map(|progress| progress.at))
}
