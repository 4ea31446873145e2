//! The fourth stage: groups become objects in the store, several at a time; what is durable goes to
//! the commit task in order. Objects have names of their own, so a try may be repeated at will.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, StreamId};
use batchweave_core::keys;
use batchweave_core::provenance::Provenance;
use batchweave_core::tgb::{Identity, LayoutError, Object, Packed, TgbData, frame_bytes, pack};
use batchweave_log::CommitItem;
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError};
use futures::stream::{FuturesUnordered, TryStreamExt};
use tokio::time::Instant;

use crate::batching::Group;
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::Encoder;

/// A batch larger than an object is cut into at most this many, so that its log entry stays small.
const PARTS_MAX: u64 = 64;
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
    /// Makes payloads.
    pub(crate) encoder: Arc<Encoder>,
    /// Whether to store what batches were made from.
    pub(crate) provenance: bool,
    /// Size of an object.
    pub(crate) object_bytes: u64,
    /// How long one object is tried.
    pub(crate) give_up_after: Duration,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
}

impl Uploader {
    /// Makes the group durable.
    pub(crate) async fn upload(self: Arc<Self>, group: Group) -> Result<CommitItem, RunError> {
        let this = self.clone();
        // Payloads, checksums and copies: too long for an async thread, and several at a time.
        let built = tokio::task::spawn_blocking(move || {
            this.build(&group).map(|packed| (packed, group.cursor))
        });
        let (packed, cursor) = built.await.map_err(RunError::task)??;
        let uploads: FuturesUnordered<_> = packed
            .objects
            .into_iter()
            .map(|object| self.put(object))
            .collect();
        uploads.try_collect::<()>().await?;
        Ok(CommitItem {
            tgbs: packed.tgbs,
            cursor,
        })
    }

    fn build(&self, group: &Group) -> Result<Packed, RunError> {
        let identity = Identity::new(self.stream, &self.producer, self.epoch);
        let encode = |(seq, batch)| self.encoder.encode(seq, batch);
        let tgbs: Result<Vec<TgbData>, LayoutError> = (group.first_seq..)
            .zip(&group.batches)
            .map(encode)
            .collect();
        let mut tgbs = tgbs?;
        let last = tgbs.last().map_or(group.first_seq, |tgb| tgb.seq);
        let seqs = (group.first_seq, last);
        let sizes = tgbs.iter().flat_map(|tgb| &tgb.slices);
        let bytes: u64 = sizes.filter_map(|s| frame_bytes(s.len() as u64)).sum();
        let random = rand::random();
        let sources = self.sources(group, seqs, random);
        for tgb in &mut tgbs {
            tgb.provenance = sources.as_ref().map(|object| object.key.clone());
        }
        let key = |part| keys::data(&self.producer, self.epoch, self.nonce, seqs, random, part);
        let cut = self.object_bytes.max(bytes.div_ceil(PARTS_MAX));
        let mut packed = pack(identity, &tgbs, cut, key)?;
        packed.objects.extend(sources);
        Ok(packed)
    }

    /// What the group's batches were made from, as an object beside theirs.
    fn sources(&self, group: &Group, seqs: (Seq, Seq), random: u64) -> Option<Object> {
        if !self.provenance {
            return None;
        }
        let provenance = Provenance {
            inputs: group.inputs,
            first_seq: group.first_seq,
            tgbs: group.batches.iter().map(|b| b.sources.clone()).collect(),
        };
        Some(Object {
            key: keys::provenance(&self.producer, self.epoch, self.nonce, seqs, random),
            bytes: provenance.encode().into(),
            runs: Vec::new(),
        })
    }

    async fn put(&self, object: Object) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.store.upload(&object.key, object.bytes.clone()).await {
                Ok(Create::Created) => {
                    // Without slices it says where others are from.
                    if !object.runs.is_empty() {
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
