//! The report of `batchweave reclaim`, as JSON and for the text output.

use batchweave_core::ids::{JobName, Step, Version};
use batchweave_core::retention::Due;
use batchweave_log::Log;
use batchweave_log::reclaim::{Class, JobRetention, Plan, Requests, Tally, Totals};
use serde::Serialize;

pub(super) type Applied = batchweave_log::reclaim::ReclaimReport;

/// The objects of one class.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) class: &'static str,
    #[serde(flatten)]
    pub(super) totals: Totals,
    /// Objects that this command deleted.
    pub(super) deleted: Option<Tally>,
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
    /// The jobs that hold data.
    pub(super) jobs: Vec<JobRetention>,
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
        let row = |class: Class| Row {
            class: class.name(),
            totals: plan.totals.get(&class).copied().unwrap_or_default(),
            deleted: done.map(|done| done.deleted.get(&class).copied().unwrap_or_default()),
        };
        let lowest = plan.held.iter().min_by_key(|held| held.floor);
        Self {
            root: log.store().root().to_owned(),
            applied: done.is_some(),
            head: plan.head,
            watermark: plan.watermark,
            watermark_after: after,
            steps: after.saturating_sub(plan.watermark),
            published: done.and_then(|done| done.published),
            held_by: lowest.map(|held| held.job.clone()),
            reason: reason(plan),
            jobs: plan.held.clone(),
            closed: done.map_or_else(Vec::new, |done| done.closed.clone()),
            classes: Class::ALL.into_iter().map(row).collect(),
            refused: done.map_or(0, |done| done.refused_keys),
            more: done.is_some_and(|done| done.more),
            requests: done.map_or(plan.requests, |done| done.requests),
        }
    }
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
