//! The fourth stage: makes objects of groups and uploads them, several at a time. Every object has its own name,
//! so an upload may be repeated. `part_assembler` puts together the batches of several objects.

mod part_assembler;

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, StreamId};
use batchweave_core::keys;
use batchweave_core::provenance::Provenance;
use batchweave_core::tgb::{
    Digest, Identity, Object, ObjectBuilder, SliceCost, SliceRun, TgbRecord,
};
use batchweave_log::CommitItem;
use batchweave_store::{Backoff, Create, Effect, ErrorKind, Op, Retry, Store, StoreError};

use crate::buffers::Buffers;
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::{Encoder, PackedBatch};
use crate::pipeline::batch::{BatchGroup, BatchPart};
use crate::sample::SampleTaker;

pub(crate) use part_assembler::PartAssembler;

/// Reserved for the index and trailer of an object; a larger one makes the buffer move once more.
const ROOM_BEHIND_BYTES: u64 = 256 << 10;
/// The pauses between the tries of an upload.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));

/// Makes objects and uploads them.
#[derive(Debug)]
pub(crate) struct Uploader {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stream: StreamId,
    pub(crate) producer: ProducerName,
    pub(crate) epoch: Epoch,
    pub(crate) nonce: Nonce,
    /// Number of the first batch that is stored: earlier ones are those of a fork's parent.
    pub(crate) first_new: Seq,
    pub(crate) buffers: Buffers,
    pub(crate) encoder: Arc<Encoder>,
    /// Store the documents that batches were made from.
    pub(crate) provenance: bool,
    /// Time after which the upload of an object is no longer retried.
    pub(crate) give_up_after: Duration,
    pub(crate) metrics: Arc<Metrics>,
    /// Where the status page shows a sample of the data.
    pub(crate) sampler: Option<Arc<SampleTaker>>,
}

/// A group whose objects are durable.
#[derive(Debug)]
pub(crate) enum Uploaded {
    /// Whole batches, ready to commit.
    Batches(CommitItem),
    /// One of several objects of a batch.
    Part {
        run: SliceRun,
        size: BatchSize,
        /// Set with the last slice of the batch.
        last: Option<Last>,
    },
}

/// The size of a batch, or of a part of one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchSize {
    rows: u64,
    tokens: u64,
    /// Of bins: the cost of the slices of the whole batch.
    cost: Option<SliceCost>,
}

/// The data of a batch that are known with its last part.
#[derive(Debug)]
pub(crate) struct Last {
    provenance: Option<String>,
    cursor: Cursor,
    mixture: Option<u64>,
}

/// The objects of a group before the upload.
struct Built {
    object: Object,
    sources: Option<Object>,
    contents: Contents,
}

/// The batches, or the part of a batch, in an object.
struct Contents {
    /// The size of each batch, or of the part.
    sizes: Vec<BatchSize>,
    last: bool,
    whole: bool,
    cursor: Cursor,
    mixture: Option<u64>,
}

impl Contents {
    /// Returns the result of the upload that stored these runs, and the provenance under this key.
    fn uploaded(self, runs: Vec<SliceRun>, provenance: Option<String>) -> Uploaded {
        let Self {
            cursor, mixture, ..
        } = self;
        let mut made = runs.into_iter().zip(self.sizes);
        if !self.whole
            && let Some((run, size)) = made.next()
        {
            return Uploaded::Part {
                run,
                size,
                last: self.last.then_some(Last {
                    provenance,
                    cursor,
                    mixture,
                }),
            };
        }
        let tgbs = made.map(|(run, size)| TgbRecord {
            rows: size.rows,
            tokens: size.tokens,
            digest: Digest::from_crcs(run.crcs),
            parts: vec![run.part],
            provenance: provenance.clone(),
            cost: size.cost,
        });
        Uploaded::Batches(CommitItem {
            tgbs: tgbs.collect(),
            cursor,
            mixture,
        })
    }
}

impl Uploader {
    /// Makes the objects of a group and uploads them; those of a fork's parent are only made.
    pub(crate) async fn upload(self: Arc<Self>, group: BatchGroup) -> Result<Uploaded, RunError> {
        let this = self.clone();
        let stored = group.first_seq >= self.first_new;
        // Payloads, checksums and copies take too long for an async thread.
        let built = tokio::task::spawn_blocking(move || this.build(group));
        let Built {
            mut object,
            sources,
            contents,
        } = built.await.map_err(|why| RunError::lost("build", why))??;
        let provenance = sources.as_ref().map(|object| object.key.clone());
        let runs = std::mem::take(&mut object.runs);
        if !stored {
            return Ok(contents.uploaded(runs, None));
        }
        let beside = async {
            match sources {
                Some(object) => self.put(object, false).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(self.put(object, true), beside)?;
        Ok(contents.uploaded(runs, provenance))
    }

    /// Returns the builder of an object for frames of this many bytes.
    fn builder(&self, bytes: u64) -> ObjectBuilder {
        let identity = Identity::new(self.stream, &self.producer, self.epoch);
        let room = bytes.saturating_add(ROOM_BEHIND_BYTES);
        let large_enough = usize::try_from(room).unwrap_or(usize::MAX)..=usize::MAX;
        ObjectBuilder::new(identity)
            .within(self.buffers.take(&large_enough).unwrap_or_default())
            .reserve(room)
    }

    /// Makes the objects of a group; each batch is dropped once it is written.
    fn build(&self, group: BatchGroup) -> Result<Built, RunError> {
        let mut builder = self.builder(group.bytes);
        let seqs = group.seqs();
        let part = group.part.as_ref();
        let random = part.map_or_else(rand::random, |part| part.random);
        let sources = self.sources(&group, seqs, random);
        if let Some(sampler) = &self.sampler {
            sampler.take(&group);
        }
        let BatchGroup {
            first_seq,
            batches,
            part,
            cursor,
            mixture,
            ..
        } = group;
        let mut sizes = Vec::new();
        match &part {
            Some(part) => sizes.push(self.write_part(&mut builder, first_seq, part, batches)?),
            None => {
                for (seq, batch) in (first_seq..).zip(batches) {
                    sizes.push(self.write_batch(&mut builder, seq, &batch)?);
                }
            }
        }
        let number = part.as_ref().map_or(0, |part| part.number);
        let key = keys::data(&self.producer, self.epoch, self.nonce, seqs, random, number);
        Ok(Built {
            object: builder.finish_as(&key, |bytes| self.buffers.share(bytes))?,
            sources,
            contents: Contents {
                sizes,
                last: part.as_ref().is_some_and(|part| part.last.is_some()),
                whole: part.is_none(),
                cursor,
                mixture,
            },
        })
    }

    /// Writes all slices of a batch. Returns its size.
    fn write_batch(
        &self,
        builder: &mut ObjectBuilder,
        seq: Seq,
        batch: &PackedBatch,
    ) -> Result<BatchSize, RunError> {
        let slices = self.encoder.slices();
        for n in 0..slices {
            self.write(builder, seq, n, batch, n as usize)?;
        }
        Ok(BatchSize {
            rows: self.encoder.rows_of(batch, slices),
            tokens: batch.own,
            cost: batch.cost(),
        })
    }

    /// Writes the slices of a part. Returns its size.
    fn write_part(
        &self,
        builder: &mut ObjectBuilder,
        seq: Seq,
        part: &BatchPart,
        slices: Vec<PackedBatch>,
    ) -> Result<BatchSize, RunError> {
        let mut size = BatchSize::default();
        for (n, slice) in (part.first_slice..).zip(slices) {
            self.write(builder, seq, n, &slice, 0)?;
            size.rows += self.encoder.rows_of(&slice, 1);
            size.tokens += slice.own;
            size.cost = slice.cost();
        }
        Ok(size)
    }

    /// Writes slice `slice` of batch `seq`, which is the one at `at` in `content`.
    fn write(
        &self,
        builder: &mut ObjectBuilder,
        seq: Seq,
        slice: u32,
        content: &PackedBatch,
        at: usize,
    ) -> Result<(), RunError> {
        let made = self.encoder.slice(content, at)?;
        builder.push_slice_with(seq, slice, made.payload_len(), |room| {
            made.write(room).map_err(RunError::from)
        })
    }

    /// Returns the provenance of the group as an object; that of a batch in parts comes with the last part.
    fn sources(&self, group: &BatchGroup, seqs: (Seq, Seq), random: u64) -> Option<Object> {
        if !self.provenance {
            return None;
        }
        let blocks = match &group.part {
            Some(part) => vec![part.last.clone()?],
            None => group.batches.iter().map(|b| b.sources.encode()).collect(),
        };
        let bytes = Provenance::of_blocks(group.inputs.hash, group.first_seq, &blocks);
        Some(Object {
            key: keys::provenance(&self.producer, self.epoch, self.nonce, seqs, random),
            bytes: bytes.into(),
            runs: Vec::new(),
        })
    }

    /// Uploads an object, with retries; `data` counts it as a data object.
    async fn put(&self, object: Object, data: bool) -> Result<(), StoreError> {
        let once = || self.store.upload(&object.key, object.bytes.clone());
        let failed =
            |error: &StoreError| tracing::warn!(%error, "cannot upload an object; retrying");
        let retry = Retry::within(self.give_up_after, PAUSES);
        match retry.run(once, failed).await? {
            Create::Created if data => {
                self.metrics.objects.inc();
                self.metrics.object_bytes.inc_by(object.bytes.len() as u64);
                Ok(())
            }
            Create::Created => Ok(()),
            Create::Exists => Err(self.taken(&object.key)),
        }
    }

    /// Returns the error for a name in use. Names hold 64 random bits, so this is a fault of the store.
    fn taken(&self, key: &str) -> StoreError {
        StoreError {
            op: Op::Upload,
            location: format!("{}/{key}", self.store.root()),
            kind: ErrorKind::Contract,
            effect: Effect::DidNot,
            detail: "an object of another size is there already".to_owned(),
        }
    }
}
