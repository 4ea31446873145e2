//! The stages joined by bounded channels: read -> tokenize -> batch -> upload -> commit. Each stage
//! ends when the one before it ends or nobody takes its output, so a failure anywhere, or a stop,
//! ends all of them; what is durable by then is committed.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Hash;
use batchweave_log::{CommitEnd, CommitQueue};
use futures::stream::{self, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::batching::{Batching, BatchingOptions, Group};
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::Point;
use crate::reading::{Read, ReadEnd, Reading};
use crate::sources::SourceError;
use crate::tokenizing::{Pool, Results, Tokenizing};
use crate::upload::Uploader;

/// Everything the stages need.
pub(crate) struct Pipeline {
    pub(crate) reading: Reading,
    pub(crate) tokenizing: Tokenizing,
    pub(crate) threads: usize,
    pub(crate) batching: BatchingOptions,
    pub(crate) linger: Duration,
    pub(crate) uploader: Arc<Uploader>,
    pub(crate) uploads: usize,
    pub(crate) metrics: Arc<Metrics>,
    /// Cancelled: who is held back stops waiting.
    pub(crate) pacing: CancellationToken,
}

/// What the reader hands to the batching stage, in order.
enum Ordered {
    Chunk(oneshot::Receiver<Results>),
    Grown(Hash),
    PassEnd { whole: bool },
    End(Result<ReadEnd, SourceError>),
}

impl Pipeline {
    /// Runs until the input is over, `stop` is cancelled, or something fails. The commit queue is
    /// closed in every case.
    pub(crate) async fn run(
        self,
        queue: CommitQueue,
        stop: CancellationToken,
    ) -> Result<CommitEnd, RunError> {
        let end = stop.child_token();
        // Who waits for more input in a blocking thread must not outlive this.
        let _end = end.clone().drop_guard();
        let pool = Pool::start(self.threads, self.tokenizing).map_err(RunError::task)?;
        let (to_batching, ordered) = mpsc::channel(2 * self.threads + 2);
        let (to_upload, groups) = mpsc::channel(1);
        let last = self.reading.end();
        let reader = (self.reading, end.clone());
        tokio::task::spawn_blocking(move || read(&reader.0, &reader.1, &pool, &to_batching));
        let stage = BatchingStage {
            batching: Batching::new(self.batching),
            ordered,
            waiting: None,
            to_upload,
            linger: self.linger,
            metrics: self.metrics,
            runtime: Handle::current(),
        };
        let batching = tokio::task::spawn_blocking(move || stage.run(last));

        let uploaded = upload_all(self.uploader, self.uploads, groups, &queue, &stop).await;
        end.cancel();
        let batched = batching.await.map_err(RunError::task)?;
        let finished = matches!((&uploaded, &batched), (Ok(true), Ok(ReadEnd::Complete)));
        if !finished {
            self.pacing.cancel();
        }
        let (commit_end, _) = queue.close(finished).await?;
        // A fence explains all else that went wrong.
        if let CommitEnd::Drained { .. } = commit_end {
            uploaded?;
            batched?;
        }
        Ok(commit_end)
    }
}

/// Ends when `stage` is gone (`send` fails), the pool is gone, or the input is over.
fn read(reading: &Reading, stop: &CancellationToken, pool: &Pool, stage: &mpsc::Sender<Ordered>) {
    let end = reading.run(stop, |read| {
        let next = match read {
            Read::Chunk(chunk) => pool.submit(chunk).map(Ordered::Chunk),
            Read::Grown(inputs) => Some(Ordered::Grown(inputs)),
            Read::PassEnd { whole } => Some(Ordered::PassEnd { whole }),
        };
        next.is_some_and(|next| stage.blocking_send(next).is_ok())
    });
    // A stage that is gone has its own reason.
    let _ = stage.blocking_send(Ordered::End(end));
}

struct BatchingStage {
    batching: Batching,
    ordered: mpsc::Receiver<Ordered>,
    /// A chunk's result that was not there yet when the linger time was over.
    waiting: Option<oneshot::Receiver<Results>>,
    to_upload: mpsc::Sender<Group>,
    linger: Duration,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

enum Input {
    Results(Results),
    Grown(Hash),
    PassEnd { whole: bool },
    End(Result<ReadEnd, SourceError>),
    LingerOver,
}

impl BatchingStage {
    /// On failure the batches before it still go up: a restart then fails at once, at the same place.
    fn run(mut self, last: Point) -> Result<ReadEnd, RunError> {
        let mut deadline = None;
        let mut full = Vec::new();
        loop {
            let input = self.runtime.clone().block_on(self.next(deadline));
            let step = match input {
                Input::LingerOver => Ok(None),
                Input::Results(results) => self.take(results, &mut full).map(|()| None),
                Input::Grown(inputs) => {
                    self.batching.grown(inputs);
                    Ok(None)
                }
                Input::PassEnd { whole } => self.batching.pass_end(whole).map(|()| None),
                Input::End(end) => end.map(Some).map_err(RunError::from),
            };
            let is_last = !matches!(step, Ok(None));
            if is_last && !matches!(step, Ok(Some(ReadEnd::Complete)))
                || deadline.is_some_and(|at| at <= Instant::now())
            {
                full.extend(self.batching.take());
            }
            for group in full.drain(..) {
                deadline = None;
                if self.to_upload.blocking_send(group).is_err() {
                    return Ok(ReadEnd::Stopped);
                }
            }
            match step? {
                Some(ReadEnd::Complete) => return Ok(self.finish(last)),
                Some(ReadEnd::Stopped) => return Ok(ReadEnd::Stopped),
                None if self.batching.has_group() => {
                    deadline = deadline.or(Some(Instant::now() + self.linger));
                }
                None => deadline = None,
            }
        }
    }

    fn take(&mut self, results: Results, full: &mut Vec<Group>) -> Result<(), RunError> {
        results?
            .into_iter()
            .try_for_each(|item| self.batching.push(item, &self.metrics, full))
    }

    fn finish(self, last: Point) -> ReadEnd {
        for group in self.batching.finish(&self.metrics, last) {
            if self.to_upload.blocking_send(group).is_err() {
                return ReadEnd::Stopped;
            }
        }
        ReadEnd::Complete
    }

    async fn next(&mut self, deadline: Option<Instant>) -> Input {
        let Some(deadline) = deadline else {
            return self.receive().await;
        };
        timeout_at(deadline, self.receive())
            .await
            .unwrap_or(Input::LingerOver)
    }

    /// May be dropped at any await: a result that is waited for stays in `waiting`.
    async fn receive(&mut self) -> Input {
        if self.waiting.is_none() {
            match self.ordered.recv().await {
                Some(Ordered::Chunk(result)) => self.waiting = Some(result),
                Some(Ordered::Grown(inputs)) => return Input::Grown(inputs),
                Some(Ordered::PassEnd { whole }) => return Input::PassEnd { whole },
                Some(Ordered::End(end)) => return Input::End(end),
                None => return Input::End(Ok(ReadEnd::Stopped)),
            }
        }
        let Some(waiting) = &mut self.waiting else {
            return Input::End(Ok(ReadEnd::Stopped));
        };
        let result = waiting.await;
        self.waiting = None;
        // Without a result its thread is gone, and so is the pool.
        result.map_or(Input::End(Ok(ReadEnd::Stopped)), Input::Results)
    }
}

/// True when all groups are uploaded and handed to the commit task.
async fn upload_all(
    uploader: Arc<Uploader>,
    at_once: usize,
    groups: mpsc::Receiver<Group>,
    queue: &CommitQueue,
    stop: &CancellationToken,
) -> Result<bool, RunError> {
    // What is held back already is enough: nothing more goes up meanwhile.
    let room = (groups, queue.standing());
    let groups = stream::unfold(room, async |(mut groups, mut standing)| {
        let _ = standing.wait_for(|now| now.held.is_none()).await;
        let group = groups.recv().await?;
        Some((group, (groups, standing)))
    });
    let groups = groups.take_until(stop.cancelled());
    let uploads = groups
        .map(|group| tokio::spawn(uploader.clone().upload(group)))
        .buffered(at_once);
    let mut uploads = std::pin::pin!(uploads);
    while let Some(upload) = uploads.next().await {
        if !queue.submit(upload.map_err(RunError::task)??).await {
            return Ok(false);
        }
    }
    Ok(!stop.is_cancelled())
}
