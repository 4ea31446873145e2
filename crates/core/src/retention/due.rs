//! The watermark that may be published now, and the job that holds it back.

use std::collections::BTreeMap;

use super::attempt_objects::JobObjects;
use super::restart::floor;
use crate::guards;
use crate::ids::{JobName, RequestId, Step};
use crate::manifest::Manifest;
use crate::manifest::entry::Watermark;

/// The next step for the watermark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// This watermark may be published. Valid only while no other writer commits: the loser of a race reads
    /// the marks again.
    Publish(Watermark),
    /// This job needs the step at the watermark.
    HeldBy {
        job: JobName,
        /// Its floor; `None` when it has fewer restart points than it keeps.
        floor: Option<Step>,
    },
    /// No job holds data: only a person's request moves the watermark.
    NoJob,
    /// The watermark is at the head: there is nothing to release.
    UpToDate,
}

/// Returns the watermark by the floors of all jobs that hold data. `objects` must have been read after the
/// fold to `m`, for its incarnations; a job without them has its attempts' starts alone.
pub fn watermark(m: &Manifest, objects: &BTreeMap<JobName, JobObjects>) -> Due {
    let Some((job, floor)) = lowest(m, objects) else {
        return Due::NoJob;
    };
    let step = floor.unwrap_or_default().min(m.next_step());
    if m.watermark() == m.next_step() {
        return Due::UpToDate;
    }
    if floor.is_none() || step <= m.watermark() {
        return Due::HeldBy { job, floor };
    }
    Due::Publish(Watermark {
        step,
        jobs: m.holding_jobs(),
        request: None,
    })
}

/// The refusal of a person's request to move the watermark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatermarkRefused {
    /// The watermark is there already.
    #[error("the watermark is at step {watermark}, not below {step}: nothing to release")]
    NotAbove { step: Step, watermark: Step },
    /// The stream has fewer steps.
    #[error("step {step} is beyond the stream's {head} steps: it can not be released yet")]
    BeyondHead { step: Step, head: Step },
    /// A job needs steps below the requested one.
    #[error(
        "job {job} may still need steps below {step}: {}; close the job first (`batchweave job close {job} --reason TEXT`), \
         or choose a lower step",
        .floor.map_or_else(
            || "it has fewer restart points than it keeps, so it releases nothing".to_owned(),
            |floor| format!("it can restart from step {floor}")
        )
    )]
    Needed {
        step: Step,
        job: JobName,
        /// The oldest step that the job may need.
        floor: Option<Step>,
    },
}

/// Returns the watermark at `step` on a person's request: never above the floor of a job that holds data.
pub fn requested_watermark(
    m: &Manifest,
    objects: &BTreeMap<JobName, JobObjects>,
    step: Step,
    request: RequestId,
) -> Result<Watermark, WatermarkRefused> {
    let (watermark, head) = (m.watermark(), m.next_step());
    if step <= watermark {
        return Err(WatermarkRefused::NotAbove { step, watermark });
    }
    if step > head {
        return Err(WatermarkRefused::BeyondHead { step, head });
    }
    if let Some((job, floor)) = lowest(m, objects)
        && floor.is_none_or(|floor| floor < step)
    {
        return Err(WatermarkRefused::Needed { step, job, floor });
    }
    Ok(Watermark {
        step,
        jobs: m.holding_jobs(),
        request: Some(request),
    })
}

/// Returns the job with the lowest floor; a missing floor is the lowest.
fn lowest(
    m: &Manifest,
    objects: &BTreeMap<JobName, JobObjects>,
) -> Option<(JobName, Option<Step>)> {
    let none = JobObjects::new();
    let holding = m.jobs().iter().filter(|(_, job)| job.holds);
    let floors = holding.map(|(name, job)| {
        let objects = objects.get(name).unwrap_or(&none);
        (name.clone(), floor(job, objects))
    });
    if guards::follows_highest_floor() {
        return floors.max_by_key(|(_, floor)| *floor);
    }
    floors.min_by_key(|(_, floor)| *floor)
}
