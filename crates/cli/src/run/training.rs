//! The end of production and of training, from the log and from the job's progress in the store.

use std::time::Duration;

use batchweave_console::context::Context;
use batchweave_console::job_status;
use batchweave_log::Log;
use tokio::time::{Instant, timeout};

/// The job's progress is read every quarter of the time since its ranks have gone, within these bounds.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_RARELY: Duration = Duration::from_secs(30);
/// Longest wait for the store; the display stands still meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Training {
    context: Context,
    producer: String,
    jobs: Vec<String>,
    /// Those that had not taken all steps when no rank was connected.
    left: Vec<String>,
    log: Option<Log>,
    /// Sessions that ever connected, at the last read of the progress.
    ever: u64,
    /// When the last rank was seen.
    gone: Instant,
    due: Instant,
}

impl Training {
    pub(super) fn new(context: Context, producer: &str, jobs: Vec<String>) -> Self {
        Self {
            context,
            producer: producer.to_owned(),
            jobs,
            left: Vec::new(),
            log: None,
            ever: 0,
            gone: Instant::now(),
            due: Instant::now(),
        }
    }

    /// Opens the log, or reads its newest records. The daemons report failures of the store, so none is an
    /// error here.
    pub(super) async fn open(&mut self) -> Option<&mut Log> {
        let mut log = self.log.take();
        let read = async {
            if let Some(log) = &mut log {
                return log.catch_up().await.is_ok();
            }
            log = self.context.followed_log().await.ok();
            log.is_some()
        };
        // After an interruption the log is opened anew.
        if timeout(PATIENCE, read).await.ok()? {
            self.log = log;
        }
        self.log.as_mut()
    }

    /// Returns the tokens of a batch, or its samples; 0 while the stream was not opened.
    pub(super) fn batch_tokens(&self) -> u64 {
        let Some(log) = &self.log else { return 0 };
        log.manifest().stream().batch_items()
    }

    /// Returns the number of the producer's batches if nothing more will come from it.
    pub(super) async fn produced(&mut self) -> Option<u64> {
        let name = self.producer.parse().ok()?;
        let log = self.open().await?;
        let m = log.manifest();
        let producer = m.producer(&name);
        let over = m.sealed() || m.end().is_some() || producer.is_some_and(|p| p.finished);
        over.then(|| producer.map_or(0, |p| p.next_seq))
    }

    /// Returns the last words of the run if its jobs have taken all steps and their ranks have gone. `sessions`
    /// are the connected ranks and those that ever connected.
    pub(super) async fn ended(&mut self, sessions: Option<(u64, u64)>) -> Option<String> {
        let (0, ever) = sessions? else {
            (self.gone, self.due) = (Instant::now(), Instant::now());
            return None;
        };
        if ever == 0 && self.ever == 0 {
            return None;
        }
        // A restarted consumer counts from 0.
        if ever != 0 && ever != self.ever {
            (self.ever, self.gone, self.due) = (ever, Instant::now(), Instant::now());
        }
        if Instant::now() < self.due {
            return None;
        }
        self.due = Instant::now() + (self.gone.elapsed() / 4).clamp(READ_EVERY, READ_RARELY);
        let names = self.jobs.clone();
        let log = self.open().await?;
        let objects = timeout(PATIENCE, log.job_objects()).await.ok()?.ok()?;
        let end = log.manifest().end()?;
        let jobs = job_status::of_open_jobs(log.manifest(), Some(&objects));
        let misses = |name: &&String| {
            let mine = jobs.iter().find(|one| one.name.as_str() == name.as_str());
            let position = mine.and_then(|mine| mine.position);
            position.is_none_or(|position| position < end)
        };
        let left: Vec<String> = names.iter().filter(misses).cloned().collect();
        self.left = left;
        self.left.is_empty().then(|| match &names[..] {
            [job] => format!("done: job {job} has taken all {end} steps"),
            jobs => format!("done: jobs {} have taken all {end} steps", jobs.join(", ")),
        })
    }

    /// Returns the jobs that had not taken all steps at the last read; none for a single job.
    pub(super) fn left(&self) -> &[String] {
        if self.jobs.len() < 2 { &[] } else { &self.left }
    }
}
