//! The report of `batchweave reclaim`, as JSON and for the text output.

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::retention::Due;
use batchweave_log::Log;
use batchweave_log::reclaim::{Class, JobRetention, Plan, Requests, Tally, Totals};
use serde::Serialize;

/// The library's report of an applied pass.
pub(super) type Applied = batchweave_log::reclaim::ReclaimReport;

/// The objects of one class.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) class: &'static str,
    /// Objects that may still be needed.
    pub(super) needed: Tally,
    /// Objects that no record names yet.
    pub(super) uncommitted: Tally,
    /// Objects that can't be needed any more.
    pub(super) dead: Tally,
    /// Objects with foreign names, which are left alone.
    pub(super) foreign: Tally,
    /// Objects that this command deleted.
    pub(super) deleted: Option<Tally>,
}

/// A job that holds data.
#[derive(Debug, Serialize)]
pub(super) struct Holder {
    pub(super) job: JobName,
    pub(super) opened: Version,
    pub(super) keep: u32,
    /// The oldest step that it may need; `None` while it has fewer restart points than it keeps.
    pub(super) floor: Option<Step>,
    /// Steps from `floor`, or from 0 without one, to the head.
    pub(super) steps: u64,
    pub(super) restart_points: Vec<Step>,
    pub(super) attempt: Option<AttemptNo>,
    pub(super) attempt_opened: Option<Version>,
    /// The step below which all its ranks have received everything.
    pub(super) position: Option<Step>,
    /// The time at which it last stored progress, by its daemon's clock.
    pub(super) last_progress: Option<String>,
    /// Steps with an incomplete mark, each with the data coordinates that have not made theirs.
    pub(super) incomplete_marks: Vec<(Step, Vec<u32>)>,
}

#[derive(Debug, Serialize)]
pub(super) struct ReclaimReport {
    pub(super) root: String,
    pub(super) applied: bool,
    pub(super) head: Step,
    pub(super) watermark: Step,
    pub(super) watermark_after: Step,
    /// Steps that are or would be given up.
    pub(super) steps: u64,
    /// The version that published the watermark.
    pub(super) published: Option<Version>,
    /// The job that keeps the watermark from moving further.
    pub(super) held_by: Option<JobName>,
    /// The reason why the watermark does not move, if it does not.
    pub(super) reason: Option<&'static str>,
    pub(super) jobs: Vec<Holder>,
    /// Jobs that this command closed because their lease had run out.
    pub(super) closed: Vec<JobName>,
    pub(super) classes: Vec<Row>,
    /// Keys that the store refused to delete.
    pub(super) refused: u64,
    /// Whether there is more to delete.
    pub(super) more: bool,
    pub(super) requests: Requests,
}

impl ReclaimReport {
    pub(super) fn new(log: &Log, plan: &Plan, done: Option<&Applied>) -> Self {
        let after = done.map_or(plan.after, |done| done.watermark);
        let totals = |class: Class| plan.totals.get(&class).copied().unwrap_or_default();
        let row = |class: Class| row(class, totals(class), done);
        Self {
            root: log.store().root().to_owned(),
            applied: done.is_some(),
            head: plan.head,
            watermark: plan.watermark,
            watermark_after: after,
            steps: after.saturating_sub(plan.watermark),
            published: done.and_then(|done| done.published),
            held_by: lowest(&plan.held),
            reason: reason(plan),
            jobs: plan.held.iter().map(|h| holder(h, plan.head)).collect(),
            closed: done.map_or_else(Vec::new, |done| done.closed.clone()),
            classes: Class::ALL.into_iter().map(row).collect(),
            refused: done.map_or(0, |done| done.refused_keys),
            more: done.is_some_and(|done| done.more),
            requests: done.map_or(plan.requests, |done| done.requests),
        }
    }
}

fn row(class: Class, totals: Totals, done: Option<&Applied>) -> Row {
    let deleted = done.map(|done| done.deleted.get(&class).copied().unwrap_or_default());
    Row {
        class: class.name(),
        needed: totals.needed,
        uncommitted: totals.uncommitted,
        dead: totals.dead,
        foreign: totals.foreign,
        deleted,
    }
}

fn lowest(held: &[JobRetention]) -> Option<JobName> {
    let lowest = held.iter().min_by_key(|held| held.floor);
    lowest.map(|held| held.job.clone())
}

fn reason(plan: &Plan) -> Option<&'static str> {
    match &plan.due {
        _ if plan.asked.is_some() => None,
        Due::Publish(_) => None,
        Due::HeldBy { floor: None, .. } => Some("fewer restart points than the job keeps"),
        Due::HeldBy { .. } => Some("the job may restart from there"),
        Due::NoJob => Some("no job holds data: only --to STEP moves the watermark"),
        Due::UpToDate => Some("it is at the head"),
    }
}

fn holder(held: &JobRetention, head: Step) -> Holder {
    Holder {
        job: held.job.clone(),
        opened: held.opened,
        keep: held.keep,
        floor: held.floor,
        steps: head.saturating_sub(held.floor.unwrap_or(0)),
        restart_points: held.points.clone(),
        attempt: held.attempt.map(|(number, _, _)| number),
        attempt_opened: held.attempt.map(|(_, opened, _)| opened),
        position: held.attempt.map(|(_, _, position)| position),
        last_progress: held.seen.clone(),
        incomplete_marks: held.incomplete.clone(),
    }
}
