//! The stages joined by bounded channels: read -> tokenize -> batch -> upload -> commit. Each stage ends when the
//! one before it ends or the one after it is gone, so that a failure anywhere, or a stop, ends all of them; what is
//! durable by then is committed.
//!
//! - `mix` reads the sources (`read_source`), and mixes them in the order of the sampler; `mixtures` follows the mixtures of the log;
//! - `read` are chunks of units, `named_files` reads the files that these name; `new_files` polls for more;
//! - `read_stage` hands what is read to the tokenizing threads, within a bound;
//! - `tokenize` makes documents of units in a pool of threads;
//! - `stages` are the shapes of batches, and `batch` changes between them;
//! - `batch` packs documents into batches and groups them into objects (`group`); `split` divides one larger than an object;
//! - `repeated` compares batches that the parent of a fork has, and drops them;
//! - `upload` makes the objects and `upload_stage` stores them; `budget` bounds the bytes of input read ahead and of uploads in progress.

pub mod batch;
mod budget;
mod group;
mod mix;
mod mixtures;
pub(crate) mod named_files;
pub mod new_files;
mod noted;
pub mod read;
pub mod read_source;
mod read_stage;
pub(crate) mod repeated;
mod split;
pub(crate) mod stages;
pub mod tokenize;
pub(crate) mod upload;
mod upload_stage;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use batchweave_log::{ChangesInLog, CommitEnd, CommitQueue};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::batch::{BatchBuilder, BatchBuilderOptions, BatchGroup};
use self::budget::Budget;
pub(crate) use self::mix::Reading;
use self::mix::{MixedFeed, MixedItem, start_sources};
pub(crate) use self::mixtures::MixedSources;
use self::mixtures::MixtureWatch;
use self::named_files::NamedFiles;
use self::read::{ReadEnd, read_ahead};
use self::repeated::Repeated;
use self::stages::MissingStage;
use self::tokenize::{ChunkTokenizer, TokenizerPool};
use self::upload::Uploader;
use self::upload_stage::UploadStage;
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::Point;
use crate::progress::InputProgress;
use crate::worker::Worker;

/// Of several sources, progress is reported once per this number of documents.
const PROGRESS_DOCUMENTS: u64 = 256;
/// Of documents that need no wait, the clock is read once per this number.
const CLOCK_DOCUMENTS: u64 = 64;

/// The stages before they run.
pub(crate) struct Pipeline {
    pub(crate) reading: Reading,
    /// The point behind all documents.
    pub(crate) end: Point,
    pub(crate) tokenizing: ChunkTokenizer,
    /// The files that documents name.
    pub(crate) files: Option<Arc<NamedFiles>>,
    pub(crate) threads: usize,
    pub(crate) batching: BatchBuilderOptions,
    pub(crate) linger: Duration,
    pub(crate) windows: BatchWindows,
    pub(crate) uploader: Arc<Uploader>,
    pub(crate) uploads: usize,
    /// The batches of a fork's parent that come first.
    pub(crate) repeated: Repeated,
    /// Most bytes of batches and objects that are uploaded at a time.
    pub(crate) memory: u64,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) progress: Arc<InputProgress>,
    /// Set when the producer lacks the stage of its next batch.
    pub(crate) held: Arc<OnceLock<MissingStage>>,
    /// Cancelling it ends all waits of flow control.
    pub(crate) stop_waiting: CancellationToken,
}

/// The windows of batches that are shuffled or arranged together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchWindows {
    /// Number of batches of a window; 1 where batches are made one by one.
    pub(crate) batches: u64,
    /// A window of followed input ends when nothing has come for this time.
    pub(crate) linger: Option<Duration>,
}

impl Pipeline {
    /// Runs until the input is over, `stop` is cancelled, or a stage fails. Closes the commit queue in every case.
    pub(crate) async fn run(
        self,
        queue: CommitQueue,
        stop: CancellationToken,
    ) -> Result<CommitEnd, RunError> {
        let end = stop.child_token();
        // A reader that waits for more input in a blocking thread must not outlive this function.
        let _end = end.clone().drop_guard();
        let pool = Arc::new(TokenizerPool::start(self.threads, self.tokenizing)?);
        // A whole window waits here, so that the next one is made while it is uploaded.
        let waiting = usize::try_from(self.windows.batches).unwrap_or(usize::MAX);
        let (to_upload, groups) = mpsc::channel(waiting.min(Semaphore::MAX_PERMITS));
        let ahead = read_ahead(self.memory);
        let log = (self.reading.named).then(|| queue.changes());
        let watch = log.map(|log| MixtureWatch::new(self.reading.sources.clone(), log));
        let (feed, _reading) =
            start_sources(self.reading, &pool, self.threads, ahead, self.files, &end)?;
        let last = self.end;
        let stage = BatchStage {
            batching: BatchBuilder::new(self.batching),
            feed,
            watch,
            log: queue.changes(),
            held: self.held,
            to_upload,
            linger: self.linger,
            window_linger: self.windows.linger,
            metrics: self.metrics,
            progress: self.progress,
            given: 0,
            runtime: Handle::current(),
        };
        let batching = Worker::start("batch", move || stage.run(last))?;

        let uploads = UploadStage {
            repeated: self.repeated,
            uploader: self.uploader,
            at_once: self.uploads,
            budget: Budget::new(self.memory),
        };
        let uploaded = uploads.run(groups, &queue, &stop).await;
        end.cancel();
        let batched = batching.join().await.map_err(RunError::from).flatten();
        let finished = matches!((&uploaded, &batched), (Ok(true), Ok(ReadEnd::Complete)));
        // A held producer still commits what lies before the stage that it lacks, however long a job holds that back.
        let held = matches!((&uploaded, &batched), (Ok(true), Ok(ReadEnd::Held)));
        if !finished && !held {
            self.stop_waiting.cancel();
        }
        let (commit_end, _) = queue.close(finished).await?;
        // A fence explains all other failures.
        if let CommitEnd::Drained { .. } = commit_end {
            // A failure before this stage also leaves batches of a parent unmade.
            if !matches!(&uploaded, Err(RunError::LessThanParent { .. })) || batched.is_ok() {
                uploaded?;
            }
            batched?;
        }
        Ok(commit_end)
    }
}

struct BatchStage {
    batching: BatchBuilder,
    feed: MixedFeed,
    /// The changes of the mixture in the log, where sources have names.
    watch: Option<MixtureWatch>,
    /// The changes that the log has.
    log: watch::Receiver<ChangesInLog>,
    held: Arc<OnceLock<MissingStage>>,
    to_upload: mpsc::Sender<BatchGroup>,
    linger: Duration,
    /// The time without input that ends a window of followed input.
    window_linger: Option<Duration>,
    metrics: Arc<Metrics>,
    progress: Arc<InputProgress>,
    /// Number of documents that were taken.
    given: u64,
    runtime: Handle,
}

/// The next document, or the way in which reading ended.
type Next = Result<MixedItem, Result<ReadEnd, RunError>>;

impl BatchStage {
    /// On failure the batches before it are still uploaded, so that a restart fails at once, at the same place; those of an open
    /// window are made again.
    fn run(mut self, last: Point) -> Result<ReadEnd, RunError> {
        let (mut deadline, mut idle) = (None, None);
        loop {
            if self.is_held() {
                return Ok(self.hold());
            }
            if self.batching.is_over() {
                return self.finish(last);
            }
            let asks_clock;
            let step = if let Some(item) = self.feed.ready() {
                asks_clock = self.given.is_multiple_of(CLOCK_DOCUMENTS);
                idle = None;
                self.note_growth();
                self.take(item, &mut deadline)
            } else {
                asks_clock = true;
                idle = idle.or_else(|| self.idle_from_now());
                let until = deadline.into_iter().chain(idle).min();
                let next = self.runtime.clone().block_on(self.next(until));
                self.note_growth();
                match next {
                    None => self.flush_idle(&mut idle, &mut deadline),
                    Some(Ok(item)) => {
                        idle = None;
                        self.take(item, &mut deadline)
                    }
                    Some(Err(end)) => end.map(Some),
                }
            };
            let is_last = !matches!(step, Ok(None));
            if is_last && !matches!(step, Ok(Some(ReadEnd::Complete)))
                || asks_clock && deadline.is_some_and(|at| at <= Instant::now())
            {
                deadline = None;
                if self.batching.take().is_some_and(|group| !self.send(group)) {
                    return Ok(ReadEnd::Stopped);
                }
            }
            match step? {
                Some(ReadEnd::Complete) => return self.finish(last),
                Some(end) => return Ok(end),
                None if self.batching.has_group() => {
                    deadline = deadline.or_else(|| Some(Instant::now() + self.linger));
                }
                None => deadline = None,
            }
        }
    }

    fn is_held(&self) -> bool {
        self.batching.missing_stage().is_some()
    }

    /// Sends what was made before the stage that the producer lacks.
    fn hold(mut self) -> ReadEnd {
        if let Some(missing) = self.batching.missing_stage() {
            // It is set once.
            let _ = self.held.set(missing.clone());
        }
        if self.batching.take().is_some_and(|group| !self.send(group)) {
            return ReadEnd::Stopped;
        }
        ReadEnd::Held
    }

    /// Returns when a window ends, if nothing comes from now on.
    fn idle_from_now(&mut self) -> Option<Instant> {
        let linger = self.window_linger?;
        let can_flush = self.batching.packer().can_flush();
        can_flush.then(|| Instant::now() + linger)
    }

    /// Ends a window when its time is over.
    fn flush_idle(
        &mut self,
        idle: &mut Option<Instant>,
        deadline: &mut Option<Instant>,
    ) -> Result<Option<ReadEnd>, RunError> {
        if idle.is_none_or(|at| at > Instant::now()) {
            return Ok(None);
        }
        *idle = None;
        self.batching.packer().flush().map_err(RunError::from)?;
        Ok((!self.send_full(deadline)?).then_some(ReadEnd::Stopped))
    }

    /// Notes the input list that has grown, and the place that was reached.
    fn note_growth(&mut self) {
        if let Some(inputs) = self.feed.grown() {
            self.batching.grown(inputs);
        }
        if let Some(reached) = self.feed.reached() {
            self.progress.reached(reached);
        }
    }

    /// Returns false when the upload stage is gone.
    fn send(&self, group: BatchGroup) -> bool {
        self.to_upload.blocking_send(group).is_ok()
    }

    /// Adds a document and sends the groups that it fills.
    fn take(
        &mut self,
        mixed: MixedItem,
        deadline: &mut Option<Instant>,
    ) -> Result<Option<ReadEnd>, RunError> {
        if let Some(watch) = &mut self.watch
            && let Some(new) = watch.changed()?
        {
            self.feed.learn(new.weights);
            self.batching.learn(&new.from);
        }
        if self.log.has_changed().unwrap_or(false) {
            self.batching.learn_stages(&self.log.borrow_and_update());
        }
        let source = mixed.source;
        let before = mixed.before;
        self.feed.count(&mixed.item, source, &self.metrics.sources);
        let states = before.zip(self.feed.state());
        self.batching.push(mixed.item, states, &self.metrics)?;
        self.given += 1;
        if self.watch.is_some() && self.given % PROGRESS_DOCUMENTS == 1 {
            self.progress.reported(self.feed.progress(source));
        }
        if !self.send_full(deadline)? {
            return Ok(Some(ReadEnd::Stopped));
        }
        for mixture in self.batching.begun() {
            self.feed.change(mixture);
        }
        Ok(None)
    }

    /// Sends the full groups. Returns false when the upload stage is gone.
    fn send_full(&mut self, deadline: &mut Option<Instant>) -> Result<bool, RunError> {
        while let Some(group) = self.batching.next_group(&self.metrics)? {
            *deadline = None;
            if !self.send(group) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn finish(mut self, last: Point) -> Result<ReadEnd, RunError> {
        self.batching.end(last)?;
        while let Some(group) = self.batching.next_group(&self.metrics)? {
            if !self.send(group) {
                return Ok(ReadEnd::Stopped);
            }
        }
        if self.is_held() {
            return Ok(self.hold());
        }
        for group in self.batching.finish(&self.metrics) {
            if self.to_upload.blocking_send(group).is_err() {
                return Ok(ReadEnd::Stopped);
            }
        }
        Ok(ReadEnd::Complete)
    }

    /// Returns `None` when the linger time is over. Cancel-safe: a result that is waited for stays in the feed.
    async fn next(&mut self, deadline: Option<Instant>) -> Option<Next> {
        let next = self.feed.next();
        match deadline {
            None => Some(next.await),
            Some(deadline) => timeout_at(deadline, next).await.ok(),
        }
    }
}
