//! Between the readers and the tokenizing threads: chunks are handed out, and their results received in order, within a
//! bound on the input that is read ahead.
//!
//! A reader gives its chunks to a `ReadStage`, and a thread of its own, the `ChunkFeed`, hands them to the tokenizing
//! threads: while those work on one window of a shuffled source, the next window is read.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use batchweave_core::inputs::LinkId;
use batchweave_daemon::panics::guard;
use futures::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::budget::Budget;
use super::named_files::NamedFiles;
use super::read::{CHUNK_BYTES, Chunk, ReadEnd, ReadItem};
use super::tokenize::{ChunkResults, TokenizerPool};
use crate::error::RunError;
use crate::progress::Reached;
use crate::sources::SourceError;
use crate::worker::Worker;

/// An item that the reader hands to the batch stage, in order.
pub(super) enum Ordered {
    Chunk(PendingChunk),
    Grown(LinkId),
    PassEnd { pass: u64 },
    End(Result<ReadEnd, RunError>),
}

/// A chunk in the tokenizing threads.
pub(super) struct PendingChunk {
    pub(super) results: oneshot::Receiver<ChunkResults>,
    /// The place in the input after it.
    pub(super) reached: Reached,
    /// Its share of the input that is read ahead, returned when this is dropped.
    pub(super) permit: OwnedSemaphorePermit,
}

/// An item between the reader and the tokenizing threads.
enum Queued {
    /// A chunk and its share of the input that is read ahead.
    Chunk(Chunk, OwnedSemaphorePermit),
    /// An item that needs no tokenizing.
    Other(Ordered),
}

/// The reader's end: takes what is read, within the bound.
pub(super) struct ReadStage {
    queue: SyncSender<Queued>,
    budget: Budget,
    files: Option<Arc<NamedFiles>>,
    runtime: Handle,
}

/// The end of the tokenizing threads: hands them chunks, and their results in order to the batch stage.
struct ChunkFeed {
    queue: Receiver<Queued>,
    pool: Arc<TokenizerPool>,
    stage: mpsc::Sender<Ordered>,
}

impl ReadStage {
    /// Returns a stage that reads at most `ahead` bytes ahead, the channel of its results, and the thread of its feed.
    pub(super) fn start(
        pool: Arc<TokenizerPool>,
        threads: usize,
        ahead: u64,
        files: Option<Arc<NamedFiles>>,
    ) -> Result<(Self, mpsc::Receiver<Ordered>, Worker<()>), RunError> {
        let (reader, feed, chunks) = Self::new(pool, threads, ahead, files);
        Ok((reader, chunks, Worker::start("feed", move || feed.run())?))
    }

    /// Returns a stage that reads at most `ahead` bytes ahead, the feed of its chunks, and the channel of their results.
    fn new(
        pool: Arc<TokenizerPool>,
        threads: usize,
        ahead: u64,
        files: Option<Arc<NamedFiles>>,
    ) -> (Self, ChunkFeed, mpsc::Receiver<Ordered>) {
        // The bound is in bytes: while all of a window waits to be tokenized, the next one is read. Its chunks may be
        // far from full, of short documents.
        let chunks = 2 * threads + 2 + 16 * (ahead / CHUNK_BYTES as u64) as usize;
        let (stage, receiver) = mpsc::channel(chunks);
        let (to_feed, queue) = sync_channel(chunks);
        let reader = Self {
            queue: to_feed,
            budget: Budget::new(ahead),
            files,
            runtime: Handle::current(),
        };
        let feed = ChunkFeed { queue, pool, stage };
        (reader, feed, receiver)
    }

    /// Runs until the feed is gone, or the input is over.
    pub(super) fn read(
        &self,
        run: impl FnOnce(&mut dyn FnMut(ReadItem) -> bool) -> Result<ReadEnd, SourceError>,
    ) {
        let mut failed = None;
        let read = || {
            run(&mut |read| {
                let next = match read {
                    ReadItem::Chunk(chunk) => {
                        let given = self.give(chunk);
                        return given.unwrap_or_else(|why| {
                            failed = Some(why);
                            false
                        });
                    }
                    ReadItem::Grown(inputs) => Ordered::Grown(inputs),
                    ReadItem::PassEnd { pass } => Ordered::PassEnd { pass },
                };
                self.queue.send(Queued::Other(next)).is_ok()
            })
        };
        let end = match guard(read) {
            Ok(end) => failed.map_or(end, Err).map_err(RunError::from),
            Err(panic) => Err(RunError::lost("read", panic)),
        };
        // A feed that is gone had a reason of its own.
        let _ = self.queue.send(Queued::Other(Ordered::End(end)));
    }

    /// Hands on a chunk, with the files that its documents name. Returns false when the next stage is gone.
    fn give(&self, chunk: Chunk) -> Result<bool, SourceError> {
        let Some(files) = &self.files else {
            return Ok(self.within_bound(chunk));
        };
        let mut after = chunk.after.into_iter();
        let empty = || Chunk {
            pass: chunk.pass,
            read: chunk.read,
            ..Chunk::new(chunk.source)
        };
        // With their files the documents may be far larger than a chunk.
        let mut next = empty();
        let mut bytes = 0;
        let mut units = {
            let _runtime = self.runtime.enter();
            files.fill(chunk.units)
        };
        while let Some(unit) = self.runtime.block_on(units.next()).transpose()? {
            bytes += unit.bytes();
            next.units.push(unit);
            next.after.extend(after.next());
            if bytes >= CHUNK_BYTES {
                bytes = 0;
                if !self.within_bound(std::mem::replace(&mut next, empty())) {
                    return Ok(false);
                }
            }
        }
        Ok(next.units.is_empty() || self.within_bound(next))
    }

    /// Hands on a chunk when the bound allows it.
    fn within_bound(&self, chunk: Chunk) -> bool {
        let bytes = chunk.units.iter().map(|unit| unit.bytes() as u64).sum();
        // A dropped stage returns its permits, so this cannot block for ever.
        let permit = self.runtime.block_on(self.budget.take(bytes));
        permit.is_some_and(|permit| self.queue.send(Queued::Chunk(chunk, permit)).is_ok())
    }
}

impl ChunkFeed {
    /// Runs until the batch stage or the pool is gone, or the reader has ended.
    fn run(self) {
        while let Ok(queued) = self.queue.recv() {
            let next = match queued {
                Queued::Other(next) => Some(next),
                Queued::Chunk(chunk, permit) => self.submit(chunk, permit),
            };
            // A batch stage that is gone has reported its own reason.
            if next.is_none_or(|next| self.stage.blocking_send(next).is_err()) {
                return;
            }
        }
    }

    fn submit(&self, chunk: Chunk, permit: OwnedSemaphorePermit) -> Option<Ordered> {
        let reached = chunk.reached();
        let results = self.pool.submit(chunk)?;
        Some(Ordered::Chunk(PendingChunk {
            results,
            reached,
            permit,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ProducerConfig, TokenizerKind};
    use crate::pipeline::tokenize::ChunkTokenizer;
    use crate::sources::{InputList, Inputs, Place, Unit, UnitKind};
    use crate::transform::DocumentTransform;

    fn chunk() -> ReadItem {
        let mut chunk = Chunk::new(0);
        chunk.units.push(Unit {
            place: Place::default(),
            kind: UnitKind::Line,
            raw: Ok(vec![b'x'; 1 << 10].into()),
            cells: Vec::new(),
        });
        chunk.after.push(Place::default().position(0));
        ReadItem::Chunk(chunk)
    }

    fn pool() -> Arc<TokenizerPool> {
        let mut config = ProducerConfig::default();
        config.tokenizer.kind = TokenizerKind::Bytes;
        let work = ChunkTokenizer {
            transform: Arc::new(DocumentTransform::new(&config).unwrap()),
            inputs: Arc::new(Inputs::new(InputList::default())),
            sources: Vec::new(),
            metrics: None,
        };
        Arc::new(TokenizerPool::start(1, work).unwrap())
    }

    #[tokio::test]
    async fn a_unit_without_a_position_is_an_error() {
        let ReadItem::Chunk(mut chunk) = chunk() else {
            panic!("no chunk");
        };
        chunk.after.clear();
        let why = pool().submit(chunk).unwrap().await.unwrap().unwrap_err();
        assert!(why.to_string().contains("without positions"), "{why}");
    }

    #[tokio::test]
    async fn a_reader_waits_for_the_bound_and_not_for_the_tokenizing_threads() {
        let pool = pool();
        // The feed does not run, as while all threads are busy.
        let (reader, feed, receiver) = ReadStage::new(pool, 1, 8 << 10, None);
        let read = std::thread::spawn(move || {
            let mut given = 0;
            reader.read(|sink| {
                while given < 3 && sink(chunk()) {
                    given += 1;
                }
                Ok(ReadEnd::Complete)
            });
            given
        });
        let given = tokio::task::spawn_blocking(|| read.join().unwrap());
        assert_eq!(given.await.unwrap(), 3);
        drop((feed, receiver));
    }
}
