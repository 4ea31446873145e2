//! The records of a pass: the closing of jobs whose lease has run out, then a watermark.

use batchweave_core::guards;
use batchweave_core::ids::{RequestId, Step};
use batchweave_core::manifest::{Entry, Manifest, Writer};
use batchweave_core::retention::{self, Due, WatermarkRefused};
use tracing::{info, warn};

use super::job_objects::{self, ObjectsByJob};
use super::lease::{self, Leases};
use super::report::{ReclaimError, ReclaimReport};
use super::scan::Known;
use crate::commit::append::Append;
use crate::log::Log;

/// Races for a version that one pass may lose; then it continues without a new watermark.
const LOST_MAX: u64 = 16;

/// Commits the records that are due: the closing of each job whose lease has run out, then one watermark, at
/// step `to` if that is given. After each closing and each lost race, decides anew from the present state.
/// Returns the marks and progress behind the last decision. On return the log is folded up to the watermark's
/// record; if none was committed, up to the head.
pub(super) async fn publish(
    log: &mut Log,
    leases: &mut Leases,
    known: &mut Known,
    to: Option<Step>,
    report: &mut ReclaimReport,
) -> Result<ObjectsByJob, ReclaimError> {
    let request = log.new_request();
    let mut before = None;
    let mut computed: Option<Entry> = None;
    loop {
        log.catch_up().await?;
        let watermark = log.manifest().watermark();
        report.watermark_before = *before.get_or_insert(watermark);
        let mut listed = job_objects::list(log).await?;
        report.requests.lists += listed.pages;
        let (objects, gets) = known.verified.verify(log, &mut listed).await?;
        report.requests.gets += gets;
        let now = log.clock.now();
        let overdue = leases.overdue(log.manifest(), &objects, now);
        let entry = match overdue {
            Some(job) => Some(lease::close(log.new_request(), job)),
            None => due_watermark(
                log.manifest(),
                &objects,
                to.map(|step| (step, request)),
                report,
            )?,
        };
        // Without deliberate mistakes, `stale` is always `None`: a watermark is never carried over a lost race.
        let stale = computed
            .take()
            .filter(|_| guards::accepts_stale_watermark())
            .filter(|entry| log.manifest().validate(entry).is_ok());
        let Some(entry) = stale.or(entry) else {
            return Ok(objects);
        };
        if report.lost_races >= LOST_MAX {
            warn!(
                LOST_MAX,
                "the watermark waits for the next pass: other writers won each version"
            );
            return Ok(objects);
        }
        let closes = matches!(entry, Entry::JobClosed(_));
        if !closes {
            computed = Some(entry.clone());
        }
        if append(log, entry, report).await? && !closes {
            return Ok(objects);
        }
    }
}

/// Returns the watermark's entry, if one is due, and notes in the report why none is.
fn due_watermark(
    m: &Manifest,
    objects: &ObjectsByJob,
    asked: Option<(Step, RequestId)>,
    report: &mut ReclaimReport,
) -> Result<Option<Entry>, ReclaimError> {
    if let Some((step, request)) = asked {
        return match retention::requested_watermark(m, objects, step, request) {
            Ok(entry) => Ok(Some(Entry::Watermark(entry))),
            // Another writer raised it already.
            Err(WatermarkRefused::NotAbove { .. }) => Ok(None),
            Err(refused) => Err(refused.into()),
        };
    }
    let due = retention::watermark(m, objects);
    let entry = match &due {
        Due::Publish(entry) => Some(Entry::Watermark(entry.clone())),
        _ => None,
    };
    report.due = entry.is_none().then_some(due);
    Ok(entry)
}

/// Appends a record with `entry` and notes the result in the report; returns false when another writer won
/// the version.
async fn append(
    log: &mut Log,
    entry: Entry,
    report: &mut ReclaimReport,
) -> Result<bool, ReclaimError> {
    let writer = Writer {
        name: "reclaimer".to_owned(),
        epoch: 0,
    };
    // A watermark that is too high cannot be corrected, because readers act on it. So the state behind it is
    // first compared with a second fold.
    log.confirm().await?;
    report.requests.puts += 1;
    match log.append(&writer, vec![entry.clone()]).await? {
        Append::Won { version, .. } => {
            match entry {
                Entry::JobClosed(closed) => {
                    info!(job = %closed.job, reason = closed.reason, "closed a job");
                    report.closed.push(closed.job);
                }
                _ => report.published = Some(version),
            }
            Ok(true)
        }
        Append::Lost { .. } => {
            report.lost_races += 1;
            Ok(false)
        }
    }
}
