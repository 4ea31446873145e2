//! The fourth stage: groups become objects in the store, several at a time; what is durable goes to
//! the commit task in order. Objects have names of their own, so a try may be repeated at will.

mod buffers;
mod part_assembler;

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, StreamId};
use batchweave_core::keys;
use batchweave_core::provenance::Provenance;
use batchweave_core::tgb::{Digest, Identity, Object, ObjectBuilder, SliceRun, TgbRecord};
use batchweave_log::CommitItem;
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError};
use tokio::time::Instant;

use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::{Encoder, PackedBatch};
use crate::pipeline::batch::{BatchGroup, BatchPart};

pub(crate) use buffers::Buffers;
pub(crate) use part_assembler::PartAssembler;

/// For an object's index and trailer, mostly: with less than it takes the object is moved once more.
const ROOM_BEHIND_BYTES: u64 = 256 << 10;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What uploads need to know.
#[derive(Debug)]
pub(crate) struct Uploader {
    /// Where to.
    pub(crate) store: Arc<dyn Store>,
    /// Of which stream.
    pub(crate) stream: StreamId,
    /// By whom.
    pub(crate) producer: ProducerName,
    /// In which epoch.
    pub(crate) epoch: Epoch,
    /// And under which nonce.
    pub(crate) nonce: Nonce,
    /// Where objects are made.
    pub(crate) buffers: Buffers,
    /// Makes payloads.
    pub(crate) encoder: Arc<Encoder>,
    /// Whether to store what batches were made from.
    pub(crate) provenance: bool,
    /// How long one object is tried.
    pub(crate) give_up_after: Duration,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
}

/// What is durable.
#[derive(Debug)]
pub(crate) enum Uploaded {
    /// Batches, whole.
    Batches(CommitItem),
    /// An object of a batch that has several.
    Part {
        run: SliceRun,
        rows: u64,
        tokens: u64,
        /// With the batch's last slice.
        last: Option<Last>,
    },
}

#[derive(Debug)]
pub(crate) struct Last {
    provenance: Option<String>,
    cursor: Cursor,
}

/// What is built of a group.
struct Built {
    object: Object,
    sources: Option<Object>,
    /// Rows and tokens of each batch, or of the part.
    sizes: Vec<(u64, u64)>,
    last: bool,
    whole: bool,
    cursor: Cursor,
}

impl Uploader {
    /// Makes the group durable.
    pub(crate) async fn upload(self: Arc<Self>, group: BatchGroup) -> Result<Uploaded, RunError> {
        let this = self.clone();
        // Payloads, checksums and copies: too long for an async thread, and several at a time.
        let built = tokio::task::spawn_blocking(move || this.build(group));
        let Built {
            mut object,
            sources,
            sizes,
            last,
            whole,
            cursor,
        } = built.await.map_err(|why| RunError::lost("build", why))??;
        let provenance = sources.as_ref().map(|object| object.key.clone());
        let runs = std::mem::take(&mut object.runs);
        let beside = async {
            match sources {
                Some(object) => self.put(object, false).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(self.put(object, true), beside)?;
        let mut made = runs.into_iter().zip(sizes);
        if !whole && let Some((run, (rows, tokens))) = made.next() {
            let last = last.then_some(Last { provenance, cursor });
            return Ok(Uploaded::Part {
                run,
                rows,
                tokens,
                last,
            });
        }
        let tgbs = made.map(|(run, (rows, tokens))| TgbRecord {
            rows,
            tokens,
            digest: Digest::from_crcs(run.crcs),
            parts: vec![run.part],
            provenance: provenance.clone(),
        });
        Ok(Uploaded::Batches(CommitItem {
            tgbs: tgbs.collect(),
            cursor,
        }))
    }

    /// Batches are let go of as they are written.
    fn build(&self, group: BatchGroup) -> Result<Built, RunError> {
        let identity = Identity::new(self.stream, &self.producer, self.epoch);
        let mut builder = ObjectBuilder::new(identity)
            .within(self.buffers.take())
            .reserve(group.bytes + ROOM_BEHIND_BYTES);
        let last_seq = match &group.part {
            Some(_) => group.first_seq,
            None => group.first_seq + (group.batches.len() as u64).saturating_sub(1),
        };
        let seqs = (group.first_seq, last_seq);
        let random = group
            .part
            .as_ref()
            .map_or_else(rand::random, |part| part.random);
        let sources = self.sources(&group, seqs, random);
        let BatchGroup {
            first_seq,
            batches,
            part,
            cursor,
            ..
        } = group;
        let mut sizes = Vec::new();
        match &part {
            Some(part) => sizes.push(self.write_part(&mut builder, first_seq, part, batches)?),
            None => {
                for (seq, batch) in (first_seq..).zip(batches) {
                    let slices = self.encoder.slices();
                    for n in 0..slices {
                        self.write(&mut builder, (seq, n), (&batch, n as usize))?;
                    }
                    sizes.push((self.encoder.rows_of(&batch, slices), batch.own));
                }
            }
        }
        let number = part.as_ref().map_or(0, |part| part.number);
        let (producer, epoch, nonce) = (&self.producer, self.epoch, self.nonce);
        let key = keys::data(producer, epoch, nonce, seqs, random, number);
        Ok(Built {
            object: builder.finish_as(&key, |bytes| self.buffers.share(bytes))?,
            sources,
            sizes,
            last: part.as_ref().is_some_and(|part| part.last.is_some()),
            whole: part.is_none(),
            cursor,
        })
    }

    /// Rows and tokens.
    fn write_part(
        &self,
        builder: &mut ObjectBuilder,
        seq: Seq,
        part: &BatchPart,
        slices: Vec<PackedBatch>,
    ) -> Result<(u64, u64), RunError> {
        let (mut rows, mut tokens) = (0, 0);
        for (n, slice) in (part.first_slice..).zip(slices) {
            self.write(builder, (seq, n), (&slice, 0))?;
            rows += self.encoder.rows_of(&slice, 1);
            tokens += slice.own;
        }
        Ok((rows, tokens))
    }

    fn write(
        &self,
        builder: &mut ObjectBuilder,
        (seq, slice): (Seq, u32),
        (batch, of_batch): (&PackedBatch, usize),
    ) -> Result<(), RunError> {
        let made = self.encoder.slice(batch, of_batch)?;
        builder.push_slice_with(seq, slice, made.payload_len(), |room| {
            made.write(room).map_err(RunError::from)
        })
    }

    /// What the group's batches were made from, as an object beside theirs; of a batch in parts with
    /// the last.
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

    /// `data`: it is counted as a data object.
    async fn put(&self, object: Object, data: bool) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.store.upload(&object.key, object.bytes.clone()).await {
                Ok(Create::Created) => {
                    if data {
                        self.metrics.objects.inc();
                        self.metrics.object_bytes.inc_by(object.bytes.len() as u64);
                    }
                    return Ok(());
                }
                Ok(Create::Exists) => return Err(self.taken(&object.key)),
                Err(error) => error,
            };
            if !error.kind.is_transient() || began.elapsed() + pause > self.give_up_after {
                return Err(error);
            }
            tracing::warn!(%error, "uploading again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The name holds 64 random bits: this is a store that mixes objects up.
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
