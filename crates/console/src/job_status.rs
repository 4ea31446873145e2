//! The status of open jobs, from the log and from their marks and progress. Shared by all verbs that show
//! jobs.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::{JobName, Step};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::{AttemptState, JobState, QuarantineState};
use batchweave_core::retention::{self, Due, JobObjects};
use batchweave_log::Log;
use futures::future::BoxFuture;
use serde::Serialize;

use crate::context;
use crate::error::CliError;
use crate::job::incarnation;
use crate::output::{Style, cells, or_dash, table};

/// The marks and progress of all jobs.
pub type ObjectsByJob = BTreeMap<JobName, JobObjects>;

/// The status of an open job.
#[derive(Debug, Clone, Serialize)]
pub struct JobStatus {
    pub name: JobName,
    #[serde(flatten)]
    pub state: JobState,
    /// The next step of its slowest data coordinate; `None` before the first attempt, and for past states
    /// of the stream.
    pub position: Option<Step>,
    /// The steps that it can restart from; `None` for past states.
    pub restart_points: Option<BTreeSet<Step>>,
    /// The oldest step that it still needs; `None` while that is not decided.
    pub floor: Option<Step>,
}

/// The reason why the watermark stays where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ReclaimStatus {
    /// Reclamation may publish this watermark.
    May { watermark: Step },
    /// This job still needs the steps from `floor` on; `None`: it has too few restart points.
    Held { job: String, floor: Option<Step> },
    /// Only `batchweave reclaim --to` moves the watermark, because no job holds data.
    NoJob,
    /// All that may be reclaimed is reclaimed.
    Nothing,
}

/// The newest attempt of a job as a reader of certain steps: a quarantined range, or one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reader {
    /// The job and the version that opened it, as `llm@4`.
    pub job: String,
    pub attempt: u64,
    pub position: Option<Step>,
    /// One of `reads`, `passes over` and `has passed`.
    pub does: &'static str,
}

/// Returns the status of all open jobs by name; `objects` is `None` for past states.
pub fn of_open_jobs(m: &Manifest, objects: Option<&ObjectsByJob>) -> Vec<JobStatus> {
    let none = JobObjects::new();
    let one = |(name, state): (&JobName, &JobState)| {
        let mine = objects.map(|all| all.get(name).unwrap_or(&none));
        JobStatus::new(name, state, mine)
    };
    m.jobs().iter().map(one).collect()
}

/// Reads all marks and progress of one job, also those that no longer matter.
pub fn read_all_objects<'a>(
    log: &'a Log,
    name: &'a JobName,
    job: &'a JobState,
) -> BoxFuture<'a, Result<JobObjects, CliError>> {
    Box::pin(async move {
        let head = log.manifest().next_step();
        let mut all = JobObjects::new();
        for attempt in &job.attempts {
            let objects = all.entry(attempt.number).or_default();
            let folders = [keys::marks, keys::progress_of];
            for folder in folders.map(|of| of(name, job.opened, attempt.number)) {
                for object in context::list(log.store().as_ref(), &folder).await? {
                    objects.note(&object.key, attempt.dp_size, head);
                }
            }
        }
        Ok(all)
    })
}

fn position(state: &JobState, objects: &JobObjects) -> Option<Step> {
    let newest = state.attempts.last()?;
    let Some(seen) = objects.get(&newest.number) else {
        return Some(newest.start);
    };
    // Progress is stored less often than marks, and a mark means that the steps below it are received.
    let marked = seen.complete_marks(newest.dp_size).last().copied();
    Some(seen.position(newest).max(marked.unwrap_or_default()))
}

impl JobStatus {
    /// Returns the status of a job; `objects` is `None` for past states.
    pub fn new(name: &JobName, state: &JobState, objects: Option<&JobObjects>) -> Self {
        Self {
            name: name.clone(),
            position: objects.and_then(|objects| position(state, objects)),
            restart_points: objects.map(|objects| retention::restart_points(state, objects)),
            floor: objects.and_then(|objects| retention::floor(state, objects)),
            state: state.clone(),
        }
    }

    /// Returns the job and the version that opened it, as `llm@4`.
    pub fn id(&self) -> String {
        incarnation(&self.name, self.state.opened)
    }

    /// Returns whether the newest attempt reads the steps of `quarantine`; `None` before the first attempt.
    pub fn reader(&self, quarantine: &QuarantineState) -> Option<Reader> {
        let newest = self.state.attempts.last()?;
        let over = quarantine.in_force_at(newest.opened);
        Some(self.reads(newest, quarantine.last, over))
    }

    /// Returns whether the newest attempt reads one step.
    pub fn reader_of(&self, step: Step, all: &[QuarantineState]) -> Option<Reader> {
        let newest = self.state.attempts.last()?;
        let mut around = all.iter().filter(|q| (q.first..=q.last).contains(&step));
        let over = around.any(|q| q.in_force_at(newest.opened));
        Some(self.reads(newest, step, over))
    }

    /// Returns how the newest attempt reads the steps up to `last`; `over`: it passes over them.
    fn reads(&self, newest: &AttemptState, last: Step, over: bool) -> Reader {
        let does = if over {
            "passes over"
        } else if self.position.unwrap_or(newest.start) > last {
            "has passed"
        } else {
            "reads"
        };
        Reader {
            job: self.id(),
            attempt: newest.number,
            position: self.position,
            does,
        }
    }
}

impl Reader {
    /// Formats the attempt and its position: `llm@4 attempt 2 (at step 800)`.
    pub fn attempt_text(&self) -> String {
        let at = self
            .position
            .map_or(String::new(), |at| format!(" (at step {at})"));
        format!("{} attempt {}{at}", self.job, self.attempt)
    }

    /// Formats the attempt and whether it reads one step.
    pub fn text(&self) -> String {
        let does = self.does.replace("reads", "is still to read");
        format!("{} {does} it", self.attempt_text())
    }
}

impl ReclaimStatus {
    /// Returns the reason for the present watermark.
    pub fn new(m: &Manifest, objects: &ObjectsByJob) -> Self {
        match retention::watermark(m, objects) {
            Due::Publish(due) => Self::May {
                watermark: due.step,
            },
            Due::HeldBy { job, floor } => {
                let opened = m.jobs().get(&job).map_or(0, |state| state.opened);
                let job = incarnation(&job, opened);
                Self::Held { job, floor }
            }
            Due::NoJob => Self::NoJob,
            Due::UpToDate => Self::Nothing,
        }
    }

    /// Describes the reason in a few words that follow the watermark.
    pub fn text(&self) -> String {
        match self {
            Self::May { watermark } => {
                format!("may move to {watermark}: `batchweave reclaim` shows what goes")
            }
            Self::Held {
                job,
                floor: Some(floor),
            } => format!("held by {job}, which may restart from step {floor}"),
            Self::Held { job, floor: None } => {
                format!("held by {job}, which has too few restart points yet")
            }
            Self::NoJob => "no job holds data: `batchweave reclaim --to STEP` moves it".to_owned(),
            Self::Nothing => "nothing is due to go".to_owned(),
        }
    }
}

/// Formats a table with one line per job.
pub fn job_table(jobs: &[JobStatus], style: Style) -> String {
    let row = |job: &JobStatus| {
        let (state, newest) = (&job.state, job.state.attempts.last());
        let from = newest.map_or(state.start, |attempt| attempt.start);
        let dp = or_dash(newest.map(|attempt| attempt.dp_size));
        let (position, floor) = (or_dash(job.position), or_dash(job.floor));
        let [holds, paces] = [state.holds, state.paces].map(|is| if is { "yes" } else { "no" });
        let attempts = state.attempts_opened();
        cells![
            job.id(),
            attempts,
            from,
            dp,
            position,
            state.keep,
            floor,
            holds,
            paces
        ]
    };
    let header = [
        "JOB", "ATTEMPTS", "FROM", "DP", "POSITION", "KEEPS", "FLOOR", "HOLDS", "PACES",
    ];
    table(style, &header, jobs.iter().map(row))
}
