//! Writing jobs and attempts into the log: the daemon's own jobs, and attempts whose global rank 0 it serves.

use std::time::Duration;

use batchweave_core::ids::{JobName, RequestId, Step};
use batchweave_core::manifest::entry::{AttemptOpened, Axis, JobOpened};
use batchweave_core::manifest::state::JobState;
use batchweave_core::manifest::{Entry, Manifest, Void};
use batchweave_core::stream::StreamConfig;
use batchweave_log::{Log, LogError};
use batchweave_wire::{Begin, ErrorName, Fault, WaitCause};
use tokio::sync::oneshot;

use super::attempt_rate::{MOST, WINDOW};
use super::membership::{AttemptRequest, WaitReason};
use super::restart::{self, NotOpened, Predecessor};
use crate::config::JobTable;
use crate::error::RunError;
use crate::stream_head::below_first;

/// A request to the follower, which alone has the log.
pub(crate) enum LogRequest {
    /// Open an attempt; answered when it is in the log.
    Open(Box<AttemptRequest>, oneshot::Sender<Result<(), NotOpened>>),
    /// Find the oldest step from which a job can restart.
    Restart(JobName, oneshot::Sender<Option<Step>>),
}

/// Opens one of the daemon's own jobs, unless it is open with the same parameters.
pub(crate) async fn open_job(
    log: &mut Log,
    name: &str,
    table: &JobTable,
    writer: &str,
) -> Result<(), RunError> {
    let Ok(job) = name.parse::<JobName>() else {
        return Ok(());
    };
    let request = log.new_request();
    loop {
        log.catch_up().await?;
        let start = log.manifest().stream().job_start(table.start);
        if let Some(state) = log.manifest().jobs().get(&job) {
            return compare(&job, table, start, state);
        }
        let entry = Entry::JobOpened(wanted(&job, table, start, request));
        match log.commit_entry(writer, |_| entry.clone()).await {
            Ok(_) => tracing::info!(%job, "opened the job"),
            // Another node opened it first.
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

/// Checks that one of the daemon's own jobs could be opened in `manifest`, or is open with the same parameters. Returns
/// whether it is open.
pub(crate) fn check_job(
    manifest: &Manifest,
    name: &str,
    table: &JobTable,
) -> Result<bool, RunError> {
    let Ok(job) = name.parse::<JobName>() else {
        return Ok(false);
    };
    let (step, watermark) = (
        manifest.stream().job_start(table.start),
        manifest.watermark(),
    );
    if let Some(state) = manifest.jobs().get(&job) {
        return compare(&job, table, step, state).map(|()| true);
    }
    if step < watermark {
        return Err(RunError::JobStart {
            job,
            step,
            watermark,
        });
    }
    Ok(false)
}

fn wanted(job: &JobName, table: &JobTable, start: Step, request: RequestId) -> JobOpened {
    JobOpened {
        request,
        job: job.clone(),
        start,
        keep: table.keep,
        holds: table.holds,
        paces: table.paces,
        lease_seconds: table.lease_seconds(),
    }
}

/// Compares an open job with the table, which would open it at step `start`.
fn compare(job: &JobName, table: &JobTable, start: Step, state: &JobState) -> Result<(), RunError> {
    let lease = |seconds: Option<u64>| seconds.map_or("none".into(), |s| format!("{s}s"));
    let pairs = [
        ("start", state.start.to_string(), start.to_string()),
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

/// Writes the record of an attempt, unless the log has it.
pub(crate) async fn open_attempt(
    log: &mut Log,
    request: &AttemptRequest,
    writer: &str,
) -> Result<(), NotOpened> {
    if request.begin == Begin::Stated {
        return Ok(commit(log, request, Predecessor::Any, writer).await?);
    }
    loop {
        log.catch_up().await?;
        let found = restart::found(log, request).await?;
        match commit(log, &found.request, found.after, writer).await {
            // Another attempt was opened meanwhile, which changes the restart points.
            Err(LogError::Void(Void::WrongPredecessor)) => {}
            outcome => return Ok(outcome?),
        }
    }
}

async fn commit(
    log: &mut Log,
    request: &AttemptRequest,
    after: Predecessor,
    writer: &str,
) -> Result<(), LogError> {
    let entry = |m: &Manifest| record(m, request, after);
    if let Some(version) = log.commit_entry(writer, entry).await? {
        tracing::info!(job = %request.job, attempt = %request.id, start = request.start, version, "opened the attempt");
    }
    Ok(())
}

/// Builds the record for the state that it would follow.
fn record(m: &Manifest, request: &AttemptRequest, after: Predecessor) -> Entry {
    let job = m.jobs().get(&request.job);
    let inherited = request.inherited(m.stream());
    // A job of the fork may have an attempt of the same number and id.
    let own = job.filter(|_| inherited.is_none());
    let axis = Axis {
        name: "dp".into(),
        size: request.dp_size,
    };
    Entry::AttemptOpened(AttemptOpened {
        job: request.job.clone(),
        opened: request.opened,
        attempt: request.id,
        predecessor: match after {
            Predecessor::Any => job.and_then(|job| job.attempts.last()).map(|a| a.id),
            Predecessor::Only(newest) => newest,
        },
        parent: own.and_then(|job| request.parent_in(job)),
        inherited,
        start: request.start,
        dp_size: request.dp_size,
        mesh: vec![axis],
    })
}

/// Returns the reason of waiting while the record of the attempt is being written.
pub(crate) fn being_opened(request: &AttemptRequest) -> WaitReason {
    let detail = format!("the record of attempt {} is being written", request.id);
    WaitReason {
        cause: WaitCause::AttemptNotOpen,
        fault: Fault::new(ErrorName::AttemptNotOpened, detail.clone()),
        detail,
    }
}

/// Returns the reason of waiting when the job has opened too many attempts recently.
pub(crate) fn too_many(request: &AttemptRequest, wait: Duration) -> WaitReason {
    let detail = format!(
        "job {} has opened {MOST} attempts within {} s, and the log keeps each: the next can be opened in {} s",
        request.job,
        WINDOW.as_secs(),
        wait.as_secs() + 1
    );
    let remedy = "find out why the job restarts again and again";
    WaitReason {
        cause: WaitCause::AttemptNotOpen,
        fault: Fault::new(ErrorName::AttemptNotOpened, detail.clone()).remedy(remedy),
        detail,
    }
}

/// Classifies a failure to open an attempt: a reason to wait if it may pass, else a fault.
pub(crate) fn refusal(
    request: &AttemptRequest,
    why: NotOpened,
    stream: &StreamConfig,
) -> Result<WaitReason, Fault> {
    let why = match why {
        NotOpened::Forgotten(fault) => return Err(*fault),
        NotOpened::Log(why) => why,
    };
    let fault = |name| {
        Fault::new(
            name,
            format!("attempt {} can't be opened: {why}", request.id),
        )
    };
    match &why {
        LogError::Void(Void::BelowWatermark { step, watermark }) => {
            Err(below_first(stream, *step, *watermark))
        }
        LogError::Void(Void::BadMesh(_)) => Err(fault(ErrorName::BadMesh)),
        // Closed a moment ago: the next poll of the log shows the new state.
        LogError::Void(Void::JobNotOpen { .. }) => Ok(WaitReason {
            cause: WaitCause::JobNotOpen,
            detail: format!("job {} was closed", request.job),
            fault: fault(ErrorName::JobNotOpen),
        }),
        LogError::Void(_) => Err(fault(ErrorName::Internal)),
        LogError::Store(_) => Ok(WaitReason {
            cause: WaitCause::StoreUnavailable,
            detail: why.to_string(),
            fault: fault(ErrorName::StoreUnavailable),
        }),
        _ => Err(fault(ErrorName::LogUnreadable)),
    }
}
