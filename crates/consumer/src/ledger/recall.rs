//! What a rank received, told from the store: the checksums in the indexes of data objects. For the
//! steps between what a dead daemon had stored in ledgers and where its ranks stand.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{Seq, Step};
use batchweave_core::lifecycle::LedgerEntry;
use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::{ENTRY_BYTES, Identity, IndexEntry, TRAILER_BYTES, TgbError, Trailer};
use batchweave_log::{Located, Log, LogError, LogOptions};
use batchweave_store::{Store, StoreError};
use bytes::BytesMut;
use futures::TryStreamExt;
use rand::RngExt;

use crate::member::Member;

/// Indexes kept: the ranks of a node come back together and ask for the same.
const CACHE_MAX: usize = 64;
const TRIES: u32 = 6;

/// Why steps can't be told.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecallError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Tgb(#[from] TgbError),
    #[error("{0}")]
    Gone(String),
}

/// The index of one object, or a part of it.
struct Index {
    key: String,
    entries: Vec<IndexEntry>,
}

/// Reads logs and indexes, and keeps what it has read.
pub(super) struct Recall {
    store: Arc<dyn Store>,
    log: Option<Log>,
    cache: VecDeque<Index>,
}

impl Recall {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            log: None,
            cache: VecDeque::new(),
        }
    }

    /// An entry for the steps of a rank; none where it passes over all of them.
    pub(super) async fn tell(
        &mut self,
        member: &Member,
        steps: Range<Step>,
    ) -> Result<Option<LedgerEntry>, RecallError> {
        let mut step = member.skips.pass(steps.start);
        let mut entry = LedgerEntry {
            dp_rank: member.dp_rank,
            rank: member.rank,
            first_slice: member.slices.start,
            slices: member.slices.len() as u32,
            from: step,
            to: step,
            resumed: true,
            crcs: Vec::new(),
            skipped: Vec::new(),
        };
        while step < steps.end {
            if entry.to < step {
                entry.skipped.push((entry.to, step));
            }
            entry.to = step + 1;
            let found = self.locate(step).await?;
            for slice in member.slices.clone() {
                entry.crcs.push(self.crc(&found, slice).await?);
            }
            step = member.skips.pass(step + 1);
        }
        Ok((entry.from < entry.to).then_some(entry))
    }

    /// The oldest step whose data is there.
    pub(super) async fn watermark(&mut self) -> Result<Step, RecallError> {
        let log = self.log().await?;
        log.catch_up().await?;
        Ok(log.manifest().watermark())
    }

    async fn log(&mut self) -> Result<&mut Log, LogError> {
        let log = if let Some(log) = self.log.take() {
            log
        } else {
            let options = LogOptions {
                write_snapshots: false,
                ..LogOptions::new(rand::random())
            };
            Log::open(Arc::clone(&self.store), &options).await?
        };
        Ok(self.log.insert(log))
    }

    async fn locate(&mut self, step: Step) -> Result<Arc<StepEntry>, RecallError> {
        let gone = |why: String| RecallError::Gone(format!("step {step} {why}"));
        let log = self.log().await?;
        if step >= log.manifest().next_step() {
            log.catch_up().await?;
        }
        match log.locate(step).await? {
            Located::At(entry) => Ok(entry),
            Located::Reclaimed { watermark } => {
                Err(gone(format!("is below the watermark {watermark}")))
            }
            Located::NotYet | Located::Ended { .. } => Err(gone("is not in the log".into())),
        }
    }

    async fn crc(&mut self, step: &StepEntry, slice: u32) -> Result<u32, RecallError> {
        let holds =
            |p: &&batchweave_core::tgb::Part| (p.first_slice..p.end_slice()).contains(&slice);
        let part = step.tgb.parts.iter().find(holds);
        let gone = || {
            let step = step.step;
            RecallError::Gone(format!("no index has slice {slice} of step {step}"))
        };
        let key = &part.ok_or_else(gone)?.key;
        let known = self.cache.iter().position(|index| index.key == *key);
        let at = if let Some(at) = known {
            at
        } else {
            let entries = self.patiently(key, step).await?;
            let key = key.clone();
            self.cache.push_back(Index { key, entries });
            if self.cache.len() > CACHE_MAX {
                self.cache.pop_front();
            }
            self.cache.len() - 1
        };
        let wanted: (Seq, u32) = (step.seq, slice);
        let entries = self.cache.get(at).map_or(&[][..], |index| &index.entries);
        let found = entries.iter().find(|e| (e.seq, e.slice) == wanted);
        found.map(|entry| entry.payload_crc).ok_or_else(gone)
    }

    async fn patiently(&self, key: &str, step: &StepEntry) -> Result<Vec<IndexEntry>, RecallError> {
        let mut pause = Duration::from_millis(100);
        for _ in 1..TRIES {
            match self.index(key, step).await {
                Err(RecallError::Store(why)) if why.kind.is_transient() => {
                    tracing::debug!(%why, "trying again");
                }
                outcome => return outcome,
            }
            let jitter = rand::rng().random_range(0.5..1.5);
            tokio::time::sleep(pause.mul_f64(jitter)).await;
            pause *= 2;
        }
        self.index(key, step).await
    }

    /// Size, trailer, index: three small reads.
    async fn index(&self, key: &str, step: &StepEntry) -> Result<Vec<IndexEntry>, RecallError> {
        let gone = |why: &str| RecallError::Gone(format!("{key}: {why}"));
        let size = self.store.head(key).await?.size;
        let trailer_at = size.checked_sub(TRAILER_BYTES);
        let trailer_at = trailer_at.ok_or_else(|| gone("is too short for an object"))?;
        let trailer = self.read(key, trailer_at, size).await?;
        let trailer = Trailer::decode(&trailer).map_err(|fault| gone(&fault.to_string()))?;
        let stream = trailer.identity.stream;
        if trailer.identity != Identity::new(stream, &step.producer, step.epoch) {
            return Err(gone("is another producer's"));
        }
        if trailer.index_offset > trailer_at {
            return Err(gone("its trailer does not fit its size"));
        }
        let index = self.read(key, trailer.index_offset, trailer_at).await?;
        let entries = index.chunks(ENTRY_BYTES as usize).map(IndexEntry::decode);
        let entries: Result<Vec<_>, _> = entries.collect();
        entries.map_err(|fault| gone(&fault.to_string()))
    }

    async fn read(&self, key: &str, from: u64, to: u64) -> Result<BytesMut, StoreError> {
        let mut bytes = BytesMut::with_capacity((to - from) as usize);
        if from < to {
            let mut chunks = self.store.get_range(key, from..to).await?;
            while let Some(chunk) = chunks.try_next().await? {
                bytes.extend_from_slice(&chunk);
            }
        }
        Ok(bytes)
    }
}
