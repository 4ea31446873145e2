//! Between the readers and the tokenizing threads: chunks are handed out, and their results received in order, within a
//! bound on the input that is read ahead.

use std::sync::Arc;

use batchweave_core::inputs::LinkId;
use batchweave_daemon::panics::guard;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::budget::Budget;
use super::read::{CHUNK_BYTES, Chunk, ReadEnd, ReadItem};
use super::tokenize::{ChunkResults, TokenizerPool};
use crate::error::RunError;
use crate::progress::Reached;
use crate::sources::SourceError;

/// An item that the reader hands to the batch stage, in order.
pub(super) enum Ordered {
    Chunk(PendingChunk),
    Grown(LinkId),
    PassEnd { whole: bool },
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

/// The read stage: hands chunks to the tokenizing threads, and their results in order to the batch stage.
pub(super) struct ReadStage {
    pool: Arc<TokenizerPool>,
    stage: mpsc::Sender<Ordered>,
    budget: Budget,
    runtime: Handle,
}

impl ReadStage {
    /// Returns a stage that reads at most `ahead` bytes ahead, and the channel of its chunks.
    pub(super) fn new(
        pool: Arc<TokenizerPool>,
        threads: usize,
        ahead: u64,
    ) -> (Self, mpsc::Receiver<Ordered>) {
        // The bound is in bytes: while all of a window waits to be tokenized, the next one is read. Its chunks may be
        // far from full, of short documents.
        let chunks = 2 * threads + 2 + 16 * (ahead / CHUNK_BYTES as u64) as usize;
        let (stage, receiver) = mpsc::channel(chunks);
        let reader = Self {
            pool,
            stage,
            budget: Budget::new(ahead),
            runtime: Handle::current(),
        };
        (reader, receiver)
    }

    /// Runs until the batch stage or the pool is gone, or the input is over.
    pub(super) fn read(
        &self,
        run: impl FnOnce(&mut dyn FnMut(ReadItem) -> bool) -> Result<ReadEnd, SourceError>,
    ) {
        let read = || {
            run(&mut |read| {
                let next = match read {
                    ReadItem::Chunk(chunk) => self.submit(chunk),
                    ReadItem::Grown(inputs) => Some(Ordered::Grown(inputs)),
                    ReadItem::PassEnd { whole } => Some(Ordered::PassEnd { whole }),
                };
                next.is_some_and(|next| self.stage.blocking_send(next).is_ok())
            })
        };
        let end = match guard(read) {
            Ok(end) => end.map_err(RunError::from),
            Err(panic) => Err(RunError::lost("read", panic)),
        };
        // A batch stage that is gone has reported its own reason.
        let _ = self.stage.blocking_send(Ordered::End(end));
    }

    fn submit(&self, chunk: Chunk) -> Option<Ordered> {
        let bytes = chunk.units.iter().map(|unit| unit.bytes() as u64).sum();
        // A dropped stage returns its permits, so this cannot block for ever.
        let permit = self.runtime.block_on(self.budget.take(bytes))?;
        let reached = chunk.reached();
        let results = self.pool.submit(chunk)?;
        Some(Ordered::Chunk(PendingChunk {
            results,
            reached,
            permit,
        }))
    }
}
