//! The stages joined by bounded channels: read -> tokenize -> batch -> upload -> commit. Each stage
//! ends when the one before it ends or nobody takes its output, so a failure anywhere, or a stop,
//! ends all of them; what is durable by then is committed. What is read ahead and what goes up is
//! bounded by its bytes.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::inputs::LinkId;
use batchweave_daemon::panics::guard;
use batchweave_log::{CommitEnd, CommitQueue};
use futures::stream::{self, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::batching::{Batching, BatchingOptions, Group};
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::Point;
use crate::reading::{Chunk, Read, ReadEnd, Reading};
use crate::threads::Worker;
use crate::tokenizing::{Pool, Results, Tokenizing};
use crate::upload::{Joining, Uploader};

/// Bytes of input that are read ahead, as tokens or not yet, at most.
const READ_AHEAD_BYTES: u64 = 16 << 20;

/// Everything the stages need.
pub(crate) struct Pipeline {
    pub(crate) reading: Reading,
    pub(crate) tokenizing: Tokenizing,
    pub(crate) threads: usize,
    pub(crate) batching: BatchingOptions,
    pub(crate) linger: Duration,
    pub(crate) uploader: Arc<Uploader>,
    pub(crate) uploads: usize,
    /// Bytes of batches and objects that go up at a time.
    pub(crate) memory: u64,
    pub(crate) metrics: Arc<Metrics>,
    /// Cancelled: who is held back stops waiting.
    pub(crate) pacing: CancellationToken,
}

/// What the reader hands to the batching stage, in order.
enum Ordered {
    Chunk(oneshot::Receiver<Results>, OwnedSemaphorePermit),
    Grown(LinkId),
    PassEnd { whole: bool },
    End(Result<ReadEnd, RunError>),
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
        let pool = Pool::start(self.threads, self.tokenizing)?;
        let (to_batching, ordered) = mpsc::channel(2 * self.threads + 2);
        let (to_upload, groups) = mpsc::channel(1);
        let last = self.reading.end();
        let (reading, stop_reading, runtime) = (self.reading, end.clone(), Handle::current());
        let to_tokens = ToTokens {
            pool,
            stage: to_batching,
            room: Budget::new(READ_AHEAD_BYTES.min(self.memory / 4)),
            runtime,
        };
        let _reader = Worker::start("read", move || to_tokens.read(&reading, &stop_reading))?;
        let stage = BatchingStage {
            batching: Batching::new(self.batching),
            ordered,
            waiting: None,
            to_upload,
            linger: self.linger,
            metrics: self.metrics,
            runtime: Handle::current(),
        };
        let batching = Worker::start("batch", move || stage.run(last))?;

        let uploads = Uploads {
            uploader: self.uploader,
            at_once: self.uploads,
            room: Budget::new(self.memory),
        };
        let uploaded = uploads.run(groups, &queue, &stop).await;
        end.cancel();
        let batched = batching.join().await.and_then(|ended| ended);
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

/// The way of what is read to the tokenizing threads, and in order to the next stage.
struct ToTokens {
    pool: Pool,
    stage: mpsc::Sender<Ordered>,
    room: Budget,
    runtime: Handle,
}

impl ToTokens {
    /// Ends when the stage is gone (`send` fails), the pool is gone, or the input is over.
    fn read(&self, reading: &Reading, stop: &CancellationToken) {
        let read = || {
            reading.run(stop, |read| {
                let next = match read {
                    Read::Chunk(chunk) => self.submit(chunk),
                    Read::Grown(inputs) => Some(Ordered::Grown(inputs)),
                    Read::PassEnd { whole } => Some(Ordered::PassEnd { whole }),
                };
                next.is_some_and(|next| self.stage.blocking_send(next).is_ok())
            })
        };
        let end = match guard(read) {
            Ok(end) => end.map_err(RunError::from),
            Err(panic) => Err(RunError::lost("read", panic)),
        };
        // A stage that is gone has its own reason.
        let _ = self.stage.blocking_send(Ordered::End(end));
    }

    fn submit(&self, chunk: Chunk) -> Option<Ordered> {
        let bytes = chunk.units.iter().map(|unit| unit.bytes() as u64).sum();
        // Who is gone gives its room back, so this ends.
        let room = self.runtime.block_on(self.room.take(bytes))?;
        let result = self.pool.submit(chunk)?;
        Some(Ordered::Chunk(result, room))
    }
}

struct BatchingStage {
    batching: Batching,
    ordered: mpsc::Receiver<Ordered>,
    /// A chunk's result that was not there yet when the linger time was over.
    waiting: Option<(oneshot::Receiver<Results>, OwnedSemaphorePermit)>,
    to_upload: mpsc::Sender<Group>,
    linger: Duration,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

enum Input {
    Results(Results),
    Grown(LinkId),
    PassEnd { whole: bool },
    End(Result<ReadEnd, RunError>),
    LingerOver,
}

impl BatchingStage {
    /// On failure the batches before it still go up: a restart then fails at once, at the same place.
    fn run(mut self, last: Point) -> Result<ReadEnd, RunError> {
        let mut deadline = None;
        loop {
            let input = self.runtime.clone().block_on(self.next(deadline));
            let step = match input {
                Input::LingerOver => Ok(None),
                Input::Results(results) => self.take(results, &mut deadline),
                Input::Grown(inputs) => {
                    self.batching.grown(inputs);
                    Ok(None)
                }
                Input::PassEnd { whole } => self.batching.pass_end(whole).map(|()| None),
                Input::End(end) => end.map(Some),
            };
            let is_last = !matches!(step, Ok(None));
            if is_last && !matches!(step, Ok(Some(ReadEnd::Complete)))
                || deadline.is_some_and(|at| at <= Instant::now())
            {
                deadline = None;
                if self.batching.take().is_some_and(|group| !self.send(group)) {
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

    /// False when nobody takes it.
    fn send(&self, group: Group) -> bool {
        self.to_upload.blocking_send(group).is_ok()
    }

    /// Groups go on one by one, as they become full.
    fn take(
        &mut self,
        results: Results,
        deadline: &mut Option<Instant>,
    ) -> Result<Option<ReadEnd>, RunError> {
        for item in results? {
            self.batching.push(item, &self.metrics)?;
            while let Some(group) = self.batching.next_group(&self.metrics) {
                *deadline = None;
                if !self.send(group) {
                    return Ok(Some(ReadEnd::Stopped));
                }
            }
        }
        Ok(None)
    }

    fn finish(mut self, last: Point) -> ReadEnd {
        self.batching.end(last);
        while let Some(group) = self.batching.next_group(&self.metrics) {
            if !self.send(group) {
                return ReadEnd::Stopped;
            }
        }
        for group in self.batching.finish(&self.metrics) {
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
                Some(Ordered::Chunk(result, room)) => self.waiting = Some((result, room)),
                Some(Ordered::Grown(inputs)) => return Input::Grown(inputs),
                Some(Ordered::PassEnd { whole }) => return Input::PassEnd { whole },
                Some(Ordered::End(end)) => return Input::End(end),
                None => return Input::End(Err(RunError::lost("read", "it gave no end"))),
            }
        }
        let Some((waiting, _)) = &mut self.waiting else {
            return Input::End(Ok(ReadEnd::Stopped));
        };
        let result = waiting.await;
        self.waiting = None;
        // Without a result its thread is gone.
        let results = result.unwrap_or_else(|why| Err(RunError::lost("tokenize", why)));
        Input::Results(results)
    }
}

/// The last stage before the commit task.
struct Uploads {
    uploader: Arc<Uploader>,
    at_once: usize,
    room: Budget,
}

impl Uploads {
    /// True when all groups are uploaded and handed to the commit task.
    async fn run(
        self,
        groups: mpsc::Receiver<Group>,
        queue: &CommitQueue,
        stop: &CancellationToken,
    ) -> Result<bool, RunError> {
        // What is held back already is enough: nothing more goes up meanwhile.
        let from = (groups, queue.flow_control(), self.room);
        let groups = stream::unfold(from, async |(mut groups, mut standing, room)| {
            let _ = standing.wait_for(|now| now.held.is_none()).await;
            let group = groups.recv().await?;
            let bytes = group.bytes.saturating_add(group.memory);
            let taken = room.take(bytes).await?;
            Some(((group, taken), (groups, standing, room)))
        });
        let groups = groups.take_until(stop.cancelled());
        let uploads = groups.map(|(group, room)| {
            let upload = self.uploader.clone().upload(group);
            tokio::spawn(async move {
                let uploaded = upload.await;
                drop(room);
                uploaded
            })
        });
        let mut uploads = std::pin::pin!(uploads.buffered(self.at_once));
        let mut joining = Joining::default();
        while let Some(upload) = uploads.next().await {
            let Some(item) = joining.take(upload.map_err(|why| RunError::lost("upload", why))??)
            else {
                continue;
            };
            if !queue.submit(item).await {
                return Ok(false);
            }
        }
        Ok(!stop.is_cancelled())
    }
}

/// A bound in bytes for what is under way. What is larger than all of it goes alone.
struct Budget {
    room: Arc<Semaphore>,
    units: u32,
}

impl Budget {
    fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes >> 10)
            .unwrap_or(u32::MAX)
            .clamp(1, 1 << 28);
        Self {
            room: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// `None` never comes: nobody closes it.
    async fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes >> 10)
            .unwrap_or(u32::MAX)
            .min(self.units);
        self.room.clone().acquire_many_owned(units).await.ok()
    }
}
