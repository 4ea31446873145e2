//! The steps from which a job can restart, and so the steps that it may still need.
//!
//! - Of the newest attempt: its start and its complete marks.
//! - Of an earlier attempt: the same, except above the start of any later attempt: that part of its history
//!   is abandoned, and its marks belong to a run that no longer exists.
//! - The floor is the K-th last of them; with fewer than K there is none.
//! - The floor is at most the position of the newest attempt's slowest coordinate: a mark may be there
//!   while another rank still has to read steps before it.

use std::collections::BTreeSet;

use super::attempt_objects::{AttemptObjects, JobObjects};
use crate::guards;
use crate::ids::Step;
use crate::manifest::state::{AttemptState, JobState};

/// Returns the steps from which `job` can restart. A mark below the start of its own attempt is ignored:
/// that attempt never had those steps.
pub fn restart_points(job: &JobState, objects: &JobObjects) -> BTreeSet<Step> {
    let mut points = BTreeSet::new();
    let mut lowest_later_start = Step::MAX;
    for attempt in job.attempts.iter().rev() {
        let still = |point: &Step| *point <= lowest_later_start || guards::counts_abandoned_marks();
        points.extend(own_points(attempt, objects.get(&attempt.number)).filter(still));
        lowest_later_start = lowest_later_start.min(attempt.start);
        if guards::counts_newest_marks_only() {
            break;
        }
    }
    points
}

fn own_points(
    attempt: &AttemptState,
    objects: Option<&AttemptObjects>,
) -> impl Iterator<Item = Step> + use<> {
    let start = attempt.start;
    let marks = objects
        .map(|objects| objects.complete_marks(attempt.dp_size))
        .unwrap_or_default()
        .into_iter();
    marks.filter(move |mark| *mark >= start).chain([start])
}

/// Returns the oldest step that `job` may still need; `None` when it has too few restart points, which
/// holds the watermark where it is.
pub fn floor(job: &JobState, objects: &JobObjects) -> Option<Step> {
    let newest = job.attempts.last()?;
    let points = restart_points(job, objects);
    let keep = (job.keep.max(1) as usize).min(points.len().max(1));
    // Counting only the newest attempt's points would otherwise hold the watermark for long.
    let enough = guards::accepts_fewer_restart_points() || guards::counts_newest_marks_only();
    if points.len() < job.keep as usize && !enough {
        return None;
    }
    let kept = *points.iter().rev().nth(keep - 1)?;
    if guards::ignores_progress() {
        return Some(kept);
    }
    let of_newest = objects.get(&newest.number);
    let position = of_newest.map_or(newest.start, |objects| objects.position(newest));
    Some(kept.min(position))
}

#[cfg(test)]
mod tests;
