//! Where the frames of a step lie in the store. The rules are core's; here is the one read that they
//! may need: index entries, when the frames of a part differ in size.

use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::{Seq, Step, StreamId};
use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::plan::{Frame, Located, wanted};
use batchweave_core::tgb::{Expect, Identity, TgbError};
use batchweave_store::{Store, StoreError};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;

/// One slice of one step: the unit of need, of fetching and of release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FrameId {
    pub(crate) step: Step,
    pub(crate) slice: u32,
}

/// Where a frame lies in the store, and whose it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) key: Arc<str>,
    /// Header, payload and padding.
    pub(crate) range: Range<u64>,
    pub(crate) identity: Identity,
    pub(crate) seq: Seq,
}

impl Location {
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// What the frame must say of itself.
    pub(crate) fn expect(&self, id: FrameId) -> Expect<'_> {
        Expect {
            key: &self.key,
            step: Some(id.step),
            identity: self.identity,
            seq: self.seq,
            slice: id.slice,
        }
    }

    /// For core's joining of reads.
    pub(crate) fn frame(&self, id: FrameId) -> Frame<'_> {
        Frame {
            step: id.step,
            seq: self.seq,
            slice: id.slice,
            key: &self.key,
            range: self.range.clone(),
        }
    }
}

/// Why a step's frames are not known.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum PlanError {
    /// The index could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The index is wrong.
    #[error(transparent)]
    Tgb(#[from] TgbError),
}

/// The places of all slices of a step, by slice. Reads index entries of parts that need it; `on_read`
/// hears the bytes of each such read.
pub(crate) async fn resolve(
    store: &dyn Store,
    stream: StreamId,
    entry: &StepEntry,
    slices: u32,
    mut on_read: impl FnMut(u64),
) -> Result<Arc<[Location]>, PlanError> {
    let identity = Identity::new(stream, &entry.producer, entry.epoch);
    let mut all = Vec::with_capacity(slices as usize);
    for part in wanted(entry.step, entry.seq, &entry.tgb, 0..slices) {
        let key: Arc<str> = part.part.key.as_str().into();
        let frames = match part.locate() {
            Located::Frames(frames) => frames,
            Located::Index(range) => {
                on_read(range.end - range.start);
                part.from_index(&read(store, &key, range).await?)?
            }
        };
        all.extend(frames.into_iter().map(|frame| Location {
            key: key.clone(),
            range: frame.range,
            identity,
            seq: entry.seq,
        }));
    }
    Ok(all.into())
}

async fn read(store: &dyn Store, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
    let mut bytes = BytesMut::with_capacity((range.end - range.start) as usize);
    let mut chunks = store.get_range(key, range).await?;
    while let Some(chunk) = chunks.try_next().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
