//! What a pass would do, and who holds back what.

use std::collections::BTreeMap;

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::JobState;
use batchweave_core::retention::reclaim::Reclaim;
use batchweave_core::retention::{self, Due, JobObjects, Progress};

use super::job_objects::{self, Signs, each};
use super::report::{Class, ReclaimError, Requests, Totals};
use super::scan::{self, Keep, Known};
use crate::{Log, LogError};

/// Restart points of a job that are told: its newest.
const POINTS_TOLD: usize = 8;

/// What a job keeps from reclamation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRetention {
    /// Who.
    pub job: JobName,
    /// Its incarnation.
    pub opened: Version,
    /// The restart points that it keeps.
    pub keep: u32,
    /// The oldest step that it may need; none while it has fewer restart points than it keeps.
    pub floor: Option<Step>,
    /// Its newest restart points whose data is there, oldest first.
    pub points: Vec<Step>,
    /// Its newest attempt, the version that opened it, and what all its ranks have received.
    pub attempt: Option<(AttemptNo, Version, Step)>,
    /// When its newest progress was stored, as its daemon's clock had it.
    pub seen: Option<String>,
    /// Marks that some data coordinates have not made.
    pub incomplete: Vec<(Step, Vec<u32>)>,
}

/// What a pass would do now.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where a person wants the watermark.
    pub asked: Option<Step>,
    /// The next version: the plan is by the fold before it.
    pub next_version: Version,
    /// The first step that nobody has yet.
    pub head: Step,
    /// The watermark now.
    pub watermark: Step,
    /// The watermark afterwards.
    pub after: Step,
    /// What follows from the jobs.
    pub due: Due,
    /// The jobs that hold.
    pub held: Vec<JobRetention>,
    /// What is there, by class.
    pub totals: BTreeMap<Class, Totals>,
    /// What the plan has cost.
    pub requests: Requests,
}

impl Plan {
    /// Steps that would be given up.
    pub fn steps(&self) -> u64 {
        self.after - self.watermark
    }
}

pub(super) async fn make(
    log: &mut Log,
    known: &mut Known,
    to: Option<Step>,
) -> Result<Plan, ReclaimError> {
    log.catch_up().await?;
    let mut listed = job_objects::list(log).await?;
    let (signs, gets) = known.proved.signs(log, &mut listed).await?;
    let fold = log.manifest().clone();
    let due = retention::watermark(&fold, &signs);
    let after = match (to, &due) {
        (Some(step), _) => {
            let request = log.new_request();
            retention::requested_watermark(&fold, &signs, step, request)?.step
        }
        (None, Due::Publish(entry)) => entry.step,
        (None, _) => fold.watermark(),
    };
    let rule = Reclaim::as_if(&fold, after);
    let mut found = scan::scan(log, &rule, &signs, known, Keep::none()).await?;
    found.requests.lists += listed.pages;
    found.requests.gets += gets;
    let held = held(log, &fold, &signs, &mut found.requests).await?;
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

async fn held(
    log: &Log,
    fold: &Manifest,
    signs: &Signs,
    requests: &mut Requests,
) -> Result<Vec<JobRetention>, LogError> {
    let none = JobObjects::new();
    let mut held = Vec::new();
    for (name, job) in fold.jobs().iter().filter(|(_, job)| job.holds) {
        let signs = signs.get(name).unwrap_or(&none);
        let mut points: Vec<_> = retention::restart_points(job, signs).into_iter().collect();
        // The start of an attempt stands in the log also when its data is gone.
        points.retain(|point| *point >= fold.watermark());
        points.drain(..points.len().saturating_sub(POINTS_TOLD));
        let newest = job.attempts.last();
        let of_newest = newest.and_then(|attempt| Some((attempt, signs.get(&attempt.number)?)));
        held.push(JobRetention {
            job: name.clone(),
            opened: job.opened,
            keep: job.keep,
            floor: retention::floor(job, signs),
            points,
            attempt: newest.map(|attempt| {
                let position = of_newest.map_or(attempt.start, |(a, s)| s.position(a));
                (attempt.number, attempt.opened, position)
            }),
            seen: seen(log, name, job, requests).await?,
            incomplete: of_newest.map_or_else(Vec::new, |(a, s)| s.incomplete(a.dp_size)),
        });
    }
    Ok(held)
}

/// When the newest attempt has last stored progress. For people: an unreadable body tells nothing.
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
    let Ok(bytes) = log.store.get(&key, keys::bytes_max(&key)).await else {
        return Ok(None);
    };
    let read = Progress::from_json(&bytes, &key, log.manifest().stream_id());
    Ok(read.ok().map(|progress| progress.at))
}
