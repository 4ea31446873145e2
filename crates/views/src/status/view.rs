//! A stream as a page shows it: the status in words and numbers, without another computation of either.

use std::time::SystemTime;

use batchweave_console::job_status::JobStatus;
use batchweave_console::output::{bytes, count_grouped, grouped_range};
use batchweave_core::ids::{AttemptNo, Epoch, Seq, Step};
use serde::{Deserialize, Serialize};

use super::readers::{Outlook, ReaderStatus};
use super::recent::Recent;
use super::{Producer, StatusReport, render};

/// A stream at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StreamView {
    /// URL of the stream.
    pub(crate) root: String,
    /// Steps in the stream.
    pub(crate) steps: Step,
    /// The first step that can be read.
    pub(crate) watermark: Step,
    /// The step that ends the stream, once that is decided.
    pub(crate) end: Option<Step>,
    /// The answers to the first questions about a stream.
    pub(crate) facts: Vec<Fact>,
    /// At present; `None` when unknown.
    pub(crate) tokens_per_second: Option<f64>,
    /// Steps ahead of the slowest job; `None` without a job.
    pub(crate) lead_steps: Option<u64>,
    #[serde(skip)]
    pub(crate) producers: Vec<ProducerView>,
    #[serde(skip)]
    pub(crate) jobs: Vec<JobView>,
}

/// A line of text and its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A producer of the stream.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProducerView {
    pub(crate) name: String,
    /// `open`, `finished`, `retired` or `not opened`.
    pub(crate) state: &'static str,
    epoch: Epoch,
    /// Batches in the stream.
    batches: Seq,
    /// Age of its last commit; `None` when it is not among the newest records.
    last_commit_seconds: Option<f64>,
    /// Pass, file and share of the pass, in words.
    position: Option<String>,
    /// Passes that are read, with the share of the present one.
    pub(crate) passes: Option<f64>,
}

/// A job that reads the stream.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JobView {
    /// The job and the version that opened it, as `llm@4`.
    pub(crate) job: String,
    pub(crate) open: bool,
    /// The number of its newest attempt.
    attempt: Option<AttemptNo>,
    /// The next step of the slowest rank.
    pub(crate) step: Option<Step>,
    /// Committed steps that it has not received.
    pub(crate) behind: Option<u64>,
    steps_per_second: Option<f64>,
    /// Age of its newest progress.
    progress_seconds: Option<f64>,
    pub(crate) outlook: Option<Outlook>,
    /// Seconds until then: until it runs dry, or ends.
    pub(crate) seconds_left: Option<f64>,
    /// The outlook in words.
    pub(crate) outlook_text: Option<String>,
    /// The steps that it can restart from.
    restart_points: Vec<Step>,
    /// The steps that it keeps from reclamation, in words.
    retains: String,
}

impl StreamView {
    pub(super) fn new(report: &StatusReport, recent: &Recent, now: SystemTime) -> Self {
        // The heading names the root.
        let rows = render::rows(report, batchweave_console::output::Style::default())
            .into_iter()
            .filter(|(name, _)| *name != "root");
        let kept = ("retained", retained(report, recent, report.watermark));
        let facts = rows.chain([kept]).map(|(name, text)| {
            let name = name.to_owned();
            Fact { name, text }
        });
        let slowest = report
            .readers
            .iter()
            .filter(|reader| reader.step.is_some())
            .min_by_key(|reader| reader.step);
        let jobs = report.jobs.iter().zip(&report.readers);
        Self {
            root: report.root.clone(),
            steps: report.head.steps,
            watermark: report.watermark,
            end: report.end,
            facts: facts.collect(),
            tokens_per_second: report
                .rate
                .now()
                .map(|steps| steps * report.tokens_per_step),
            lead_steps: slowest.and_then(|reader| reader.ahead_steps),
            producers: report
                .producers
                .iter()
                .map(|p| producer(p, report, recent, now))
                .collect(),
            jobs: jobs
                .map(|(job, reader)| view_of(job, reader, report, recent))
                .collect(),
        }
    }
}

impl JobView {
    /// Returns the job as it was before it was closed.
    pub(crate) fn closed(self) -> Self {
        Self {
            open: false,
            outlook: None,
            seconds_left: None,
            outlook_text: None,
            steps_per_second: None,
            retains: "nothing: it is closed".to_owned(),
            ..self
        }
    }
}

/// Describes the steps from `first` on and their bytes.
fn retained(report: &StatusReport, recent: &Recent, first: Step) -> String {
    let steps = report.head.steps.saturating_sub(first);
    if steps == 0 {
        return "nothing".to_owned();
    }
    let range = grouped_range(first, report.head.steps);
    let (number, size) = (
        count_grouped(steps, "step"),
        bytes(recent.per_step.bytes_of(steps)),
    );
    format!("{number} ({range}), about {size}")
}

fn producer(p: &Producer, report: &StatusReport, recent: &Recent, now: SystemTime) -> ProducerView {
    let input = report.inputs.iter().find(|input| input.producer == p.name);
    let finished = p.state == "finished";
    // The store's clock may be ahead of ours.
    let age = |at: SystemTime| now.duration_since(at).unwrap_or_default().as_secs_f64();
    ProducerView {
        name: p.name.to_string(),
        state: p.state,
        epoch: p.epoch,
        batches: p.next_seq,
        last_commit_seconds: recent.last_commit(&p.name).map(age),
        position: input.map(|input| input.text(finished)),
        passes: input
            .filter(|_| !finished)
            .and_then(|input| Some(input.passes as f64 + input.share?)),
    }
}

fn view_of(
    job: &JobStatus,
    reader: &ReaderStatus,
    report: &StatusReport,
    recent: &Recent,
) -> JobView {
    let retains = match job.floor {
        _ if !job.state.holds => "nothing: it holds no data".to_owned(),
        Some(floor) => retained(report, recent, floor.max(report.watermark)),
        None => {
            let all = retained(report, recent, report.watermark);
            format!("{all}, until it has {} restart points", job.state.keep)
        }
    };
    JobView {
        job: job.id(),
        open: true,
        attempt: job.state.attempts.last().map(|attempt| attempt.number),
        step: reader.step,
        behind: reader.ahead_steps,
        steps_per_second: reader.steps_per_second,
        progress_seconds: reader.progress_seconds,
        outlook: reader.outlook,
        seconds_left: reader.seconds_left,
        outlook_text: reader.outlook_text(),
        restart_points: job.restart_points.iter().flatten().copied().collect(),
        retains,
    }
}

#[cfg(test)]
impl StreamView {
    /// Returns a stream of 100 steps for tests.
    pub(crate) fn example(jobs: Vec<JobView>) -> Self {
        Self {
            root: "s3://b/stream".to_owned(),
            steps: 100,
            watermark: 0,
            end: None,
            facts: Vec::new(),
            tokens_per_second: Some(640.0),
            lead_steps: jobs.iter().filter_map(|job| job.behind).max(),
            producers: Vec::new(),
            jobs,
        }
    }
}

#[cfg(test)]
impl JobView {
    /// Returns a job for tests.
    pub(crate) fn example(job: &str, step: Option<Step>, outlook: Option<Outlook>) -> Self {
        Self {
            job: job.to_owned(),
            open: true,
            attempt: step.map(|_| 0),
            step,
            behind: step.map(|step| 100 - step),
            steps_per_second: None,
            progress_seconds: None,
            outlook,
            seconds_left: outlook.map(|_| 12.0),
            outlook_text: None,
            restart_points: Vec::new(),
            retains: String::new(),
        }
    }
}

#[cfg(test)]
impl ProducerView {
    /// Returns a producer for tests.
    pub(crate) fn example(name: &str, passes: Option<f64>) -> Self {
        Self {
            name: name.to_owned(),
            state: "open",
            epoch: 1,
            batches: 3,
            last_commit_seconds: None,
            position: None,
            passes,
        }
    }
}
