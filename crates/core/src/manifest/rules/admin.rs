//! The rules of jobs, attempts, mixtures, quarantine and watermark.

use super::{Validity, levels, number, text};
use crate::guards;
use crate::ids::{JobName, Step, Version};
use crate::limits::MESH_RANKS_MAX;
use crate::manifest::entry::{
    AttemptOpened, JobClosed, JobOpened, Mixture, QuarantineLifted, Quarantined, Watermark,
};
use crate::manifest::state::{JobState, Manifest};
use crate::manifest::void::Void;

fn open_job<'m>(m: &'m Manifest, job: &JobName, opened: Version) -> Result<&'m JobState, Void> {
    let found = m.jobs.get(job).filter(|state| state.opened == opened);
    found.ok_or_else(|| Void::JobNotOpen {
        job: job.clone(),
        opened,
    })
}

fn at_watermark(m: &Manifest, step: Step) -> Result<(), Void> {
    number(step)?;
    if step < m.watermark {
        return Err(Void::BelowWatermark {
            step,
            watermark: m.watermark,
        });
    }
    Ok(())
}

pub(super) fn job_opened(m: &Manifest, e: &JobOpened) -> Result<(), Void> {
    if m.jobs.contains_key(&e.job) {
        return Err(Void::JobOpen(e.job.clone()));
    }
    if e.keep == 0 {
        return Err(Void::KeepNothing);
    }
    e.lease_seconds.map_or(Ok(()), number)?;
    at_watermark(m, e.start)
}

pub(super) fn job_closed(m: &Manifest, e: &JobClosed) -> Result<(), Void> {
    text(&e.reason)?;
    open_job(m, &e.job, e.opened).map(|_| ())
}

pub(super) fn attempt_opened(m: &Manifest, e: &AttemptOpened) -> Result<Validity, Void> {
    let job = open_job(m, &e.job, e.opened)?;
    if job.attempts.iter().any(|a| a.id == e.attempt) {
        return Ok(Validity::Repeat);
    }
    if job.attempts.last().map(|a| a.id) != e.predecessor {
        return Err(Void::WrongPredecessor);
    }
    if let Some(parent) = e.parent
        && parent.attempt >= job.attempts_opened()
    {
        return Err(Void::NoParent(parent.attempt));
    }
    inherited(m, e)?;
    mesh(m.stream.slices, e)?;
    at_watermark(m, e.start)?;
    Ok(Validity::Applies)
}

/// Checks that a checkpoint of the parent stream is one at the first step of this fork, where the attempt starts.
fn inherited(m: &Manifest, e: &AttemptOpened) -> Result<(), Void> {
    let Some(inherited) = e.inherited else {
        return Ok(());
    };
    let parent = m.stream.parent.as_ref();
    let fits = parent.is_some_and(|p| {
        (p.stream, p.step) == (inherited.stream, inherited.step) && e.start == p.step
    });
    if !fits || e.parent.is_some() {
        return Err(Void::NotInherited);
    }
    Ok(())
}

fn mesh(slices: u32, e: &AttemptOpened) -> Result<(), Void> {
    if e.dp_size == 0 || !slices.is_multiple_of(e.dp_size) {
        return Err(Void::BadMesh(format!(
            "dp_size {} does not divide {slices} slices",
            e.dp_size
        )));
    }
    let ranks = e.mesh.iter().try_fold(1_u64, |ranks, axis| {
        ranks
            .checked_mul(u64::from(axis.size))
            .filter(|r| (1..=MESH_RANKS_MAX).contains(r))
    });
    if e.mesh.len() > 16 || ranks.is_none() {
        return Err(Void::BadMesh(format!(
            "its axes must give 1 to {MESH_RANKS_MAX} ranks"
        )));
    }
    e.mesh.iter().try_for_each(|axis| text(&axis.name))
}

pub(super) fn mixture(m: &Manifest, e: &Mixture) -> Result<(), Void> {
    if e.id != m.mixture.id + 1 {
        return Err(Void::MixtureOrder {
            current: m.mixture.id,
            found: e.id,
        });
    }
    levels(&e.spec)?;
    e.why.as_ref().map_or(Ok(()), levels)?;
    for (name, &seq) in &e.from {
        number(seq)?;
        let state = m
            .producers
            .get(name)
            .ok_or_else(|| Void::NotOpened(name.clone()))?;
        if seq < state.next_seq || state.mixtures.keys().any(|&set| set > seq) {
            let producer = name.clone();
            return Err(Void::MixtureTooLate {
                producer,
                next: state.next_seq,
                found: seq,
            });
        }
    }
    Ok(())
}

pub(super) fn quarantined(_: &Manifest, e: &Quarantined) -> Result<(), Void> {
    text(&e.reason)?;
    number(e.last)?;
    if e.first > e.last {
        return Err(Void::StepRange {
            first: e.first,
            last: e.last,
        });
    }
    Ok(())
}

pub(super) fn quarantine_lifted(m: &Manifest, e: &QuarantineLifted) -> Result<(), Void> {
    let in_force = m
        .quarantine
        .iter()
        .any(|q| q.id == e.quarantine && q.lifted.is_none());
    if in_force {
        Ok(())
    } else {
        Err(Void::NoQuarantine)
    }
}

pub(super) fn watermark(m: &Manifest, e: &Watermark) -> Result<(), Void> {
    if e.step <= m.watermark {
        return Err(Void::WatermarkOrder {
            current: m.watermark,
            found: e.step,
        });
    }
    if e.step > m.next_step {
        return Err(Void::WatermarkAboveHead {
            found: e.step,
            head: m.next_step,
        });
    }
    if e.jobs != m.holding_jobs() && !guards::accepts_stale_watermark() {
        return Err(Void::WatermarkJobs);
    }
    if e.jobs.is_empty() && e.request.is_none() {
        return Err(Void::WatermarkUnasked);
    }
    Ok(())
}
