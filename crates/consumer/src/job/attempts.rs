//! Jobs and attempts put into the log: the daemon's own job, and attempts whose global rank 0 it serves.

use std::time::Duration;

use batchweave_core::ids::{JobName, RequestId, Step};
use batchweave_core::manifest::entry::{AttemptOpened, Axis, JobOpened};
use batchweave_core::manifest::state::JobState;
use batchweave_core::manifest::{Entry, Manifest, Void};
use batchweave_core::retention::restart_points;
use batchweave_log::{Log, LogError};
use batchweave_wire::{ErrorName, Fault, WaitCause};
use tokio::sync::oneshot;

use crate::config::JobTable;
use crate::error::RunError;
use crate::job::attempt_rate::{MOST, WINDOW};
use crate::job::membership::{Hold, Wish};

/// Something for the follower, who alone has the log.
pub(crate) enum Order {
    /// Open an attempt; the answer comes when the log has it.
    Open(Box<Wish>, oneshot::Sender<Result<(), LogError>>),
    /// Find the oldest step from which a job can restart.
    Restart(JobName, oneshot::Sender<Option<Step>>),
}

/// Opens the daemon's own job, unless it is open already with the same parameters.
pub(crate) async fn open_job(
    log: &mut Log,
    table: &JobTable,
    writer: &str,
) -> Result<(), RunError> {
    let Ok(job) = table.name.parse::<JobName>() else {
        return Ok(());
    };
    let request = log.new_request();
    loop {
        log.catch_up().await?;
        if let Some(state) = log.manifest().jobs().get(&job) {
            return compare(&job, table, state);
        }
        let entry = Entry::JobOpened(wanted(&job, table, request));
        match log.commit_entry(writer, |_| entry.clone()).await {
            Ok(_) => tracing::info!(%job, "opened the job"),
            // Another node was quicker.
            Err(LogError::Void(Void::JobOpen(_))) => {}
            Err(LogError::Void(Void::BelowWatermark { step, watermark })) => {
                return Err(RunError::JobStart {
                    job,
                    step,
                    watermark,
                });
            }
            Err(why) => return Err(why.into()),
        }
    }
}

fn wanted(job: &JobName, table: &JobTable, request: RequestId) -> JobOpened {
    JobOpened {
        request,
        job: job.clone(),
        start: table.start,
        keep: table.keep,
        holds: table.holds,
        paces: table.paces,
        lease_seconds: table.lease_seconds(),
    }
}

fn compare(job: &JobName, table: &JobTable, state: &JobState) -> Result<(), RunError> {
    let lease = |seconds: Option<u64>| seconds.map_or("none".into(), |s| format!("{s}s"));
    let pairs = [
        ("start", state.start.to_string(), table.start.to_string()),
        ("keep", state.keep.to_string(), table.keep.to_string()),
        ("holds", state.holds.to_string(), table.holds.to_string()),
        ("paces", state.paces.to_string(), table.paces.to_string()),
        (
            "lease",
            lease(state.lease_seconds),
            lease(table.lease_seconds()),
        ),
    ];
    let differences: Vec<String> = pairs
        .into_iter()
        .filter(|(_, open, ours)| open != ours)
        .map(|(key, open, ours)| format!("{key}: the open job has {open}, job.{key} says {ours}"))
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(RunError::OtherJob {
        job: job.clone(),
        opened: state.opened,
        differences,
    })
}

/// Writes the record of an attempt; nothing when it is there already.
pub(crate) async fn open_attempt(log: &mut Log, wish: &Wish, writer: &str) -> Result<(), LogError> {
    let version = log.commit_entry(writer, |m| record(m, wish)).await?;
    if let Some(version) = version {
        tracing::info!(job = %wish.job, attempt = %wish.id, start = wish.start, version, "opened the attempt");
    }
    Ok(())
}

/// The record by the state that it would follow: another attempt that came between is then the
/// predecessor, and superseded.
fn record(m: &Manifest, wish: &Wish) -> Entry {
    let job = m.jobs().get(&wish.job);
    let axis = Axis {
        name: "dp".into(),
        size: wish.dp_size,
    };
    Entry::AttemptOpened(AttemptOpened {
        job: wish.job.clone(),
        opened: wish.opened,
        attempt: wish.id,
        predecessor: job.and_then(|job| job.attempts.last()).map(|a| a.id),
        parent: job.and_then(|job| wish.parent_in(job)),
        start: wish.start,
        dp_size: wish.dp_size,
        mesh: vec![axis],
    })
}

/// What a rank is told while the record of its attempt is on its way to the store.
pub(crate) fn being_opened(wish: &Wish) -> Hold {
    let detail = format!("the record of attempt {} is being written", wish.id);
    Hold {
        cause: WaitCause::AttemptNotOpen,
        fault: Fault::new(ErrorName::AttemptNotOpened, detail.clone()),
        detail,
    }
}

/// What a rank is told whose job has opened too many attempts of late.
pub(crate) fn too_many(wish: &Wish, wait: Duration) -> Hold {
    let detail = format!(
        "job {} has opened {MOST} attempts within {} s, and the log keeps each: the next can be opened in {} s",
        wish.job,
        WINDOW.as_secs(),
        wait.as_secs() + 1
    );
    let remedy = "look why the job starts again and again";
    Hold {
        cause: WaitCause::AttemptNotOpen,
        fault: Fault::new(ErrorName::AttemptNotOpened, detail.clone()).remedy(remedy),
        detail,
    }
}

/// What a rank is told when its attempt could not be opened; what may pass is a wait.
pub(crate) fn refusal(wish: &Wish, why: &LogError) -> Result<Hold, Fault> {
    let fault = |name| Fault::new(name, format!("attempt {} can't be opened: {why}", wish.id));
    match why {
        LogError::Void(Void::BelowWatermark { step, watermark }) => {
            Err(below_watermark(*step, *watermark))
        }
        LogError::Void(Void::BadMesh(_)) => Err(fault(ErrorName::BadMesh)),
        // Closed a moment ago: the next look at the log says what is there now.
        LogError::Void(Void::JobNotOpen { .. }) => Ok(Hold {
            cause: WaitCause::JobNotOpen,
            detail: format!("job {} was closed", wish.job),
            fault: fault(ErrorName::JobNotOpen),
        }),
        LogError::Void(_) => Err(fault(ErrorName::Internal)),
        LogError::Store(_) => Ok(Hold {
            cause: WaitCause::StoreUnavailable,
            detail: why.to_string(),
            fault: fault(ErrorName::StoreUnavailable),
        }),
        _ => Err(fault(ErrorName::LogUnreadable)),
    }
}

/// The oldest restart point of a job whose data is there; `None` too where the store does not say.
pub(crate) async fn oldest_restart(log: &mut Log, job: &JobName) -> Option<Step> {
    let signs = match log.job_objects().await {
        Ok(signs) => signs.get(job).cloned().unwrap_or_default(),
        Err(why) => {
            tracing::debug!(%job, %why, "restart points can't be listed");
            return None;
        }
    };
    let m = log.manifest();
    let points = restart_points(m.jobs().get(job)?, &signs);
    points.range(m.watermark()..).next().copied()
}

/// The refusal with the oldest restart point of the rank's job.
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

/// The refusal of a start below the watermark.
pub(crate) fn below_watermark(step: u64, watermark: u64) -> Fault {
    let message = format!("step {step} is below the watermark {watermark}: its data is reclaimed");
    let remedy = format!("start at step {watermark} or later");
    Fault::new(ErrorName::StepReclaimed, message)
        .at_step(step)
        .remedy(remedy)
}
