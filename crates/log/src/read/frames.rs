//! Reads and verifies the frames of one step's batch.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::ranges::{self, FrameSlot, Located, PIECE_BYTES_MAX};
use batchweave_core::tgb::{Expect, FrameHeader, Identity, TgbError, verify};
use batchweave_store::{ErrorKind, StoreError, read_range};
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;

use crate::log::Log;

/// Reads of a damaged step before the damage is reported.
const READS: u32 = 4;
/// Time between these reads.
const PAUSE: Duration = Duration::from_millis(50);

/// One stored slice of a step.
#[derive(Debug, Serialize)]
pub struct Frame {
    pub slice: u32,
    /// The key of its object.
    pub key: String,
    pub offset: u64,
    /// Bytes of the frame: header, payload and padding.
    pub bytes: u64,
    /// CRC32C of the payload, after verification.
    pub crc32c: Option<Crc>,
    /// The damage, if there is any.
    pub fault: Option<String>,
    /// The payload, when it is intact and was requested.
    #[serde(skip)]
    pub payload: Option<Bytes>,
}

/// A CRC32C; printed as eight hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub struct Crc(pub u32);

impl fmt::Display for Crc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl Serialize for Crc {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A batch whose frames could not be located or read.
#[derive(Debug, thiserror::Error)]
pub enum FramesError {
    /// A request to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The index of an object contradicts the log.
    #[error(transparent)]
    Index(#[from] TgbError),
}

impl FramesError {
    /// Whether an object is missing, truncated or contradicts the log; anything else is a failure of the store.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Store(why) => is_damage(why),
            Self::Index(_) => true,
        }
    }
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Range)
}

impl Log {
    /// Reads `slices` of the batch in large reads and verifies each frame. Damage is reported per frame, after
    /// it was read again over other connections; any other failure is an error. Payloads are dropped unless
    /// `keep`.
    pub fn read_frames<'a>(
        &'a self,
        entry: &'a StepEntry,
        slices: Range<u32>,
        keep: bool,
    ) -> BoxFuture<'a, Result<Vec<Frame>, FramesError>> {
        Box::pin(async move {
            let mut found = self.frames_once(entry, slices.clone(), keep, false).await;
            for _ in 1..READS {
                let wrong = match &found {
                    Ok(frames) => frames.iter().any(|frame| frame.fault.is_some()),
                    Err(FramesError::Store(why)) if why.kind == ErrorKind::Contract => true,
                    Err(why) => why.is_damage(),
                };
                if !wrong {
                    break;
                }
                self.clock.sleep(PAUSE).await;
                found = self.frames_once(entry, slices.clone(), keep, true).await;
            }
            found
        })
    }

    async fn frames_once(
        &self,
        entry: &StepEntry,
        slices: Range<u32>,
        keep: bool,
        fresh: bool,
    ) -> Result<Vec<Frame>, FramesError> {
        let (store, stream) = (self.raw.as_ref(), self.manifest.stream_id());
        let mut located = Vec::new();
        for wanted in ranges::part_slices(entry.step, entry.seq, &entry.tgb, slices) {
            match wanted.locate() {
                Located::Frames(frames) => located.extend(frames),
                Located::Index(range) => {
                    let index = read_range(store, &wanted.part.key, range, fresh).await?;
                    located.extend(wanted.from_index(&index)?);
                }
            }
        }
        let identity = Identity::new(stream, &entry.producer, entry.epoch);
        let mut all = Vec::with_capacity(located.len());
        for read in ranges::coalesce(&located, PIECE_BYTES_MAX) {
            let fetched = match read_range(store, &read.key, read.range.clone(), fresh).await {
                Ok(bytes) => Ok(bytes),
                Err(e) if is_damage(&e) => Err(e.to_string()),
                Err(e) => return Err(e.into()),
            };
            for slot in &read.frames {
                let bytes = fetched.as_ref().map_err(Clone::clone);
                let checked = bytes.and_then(|bytes| verified(bytes, slot, &read.key, identity));
                let offset = read.range.start + slot.offset;
                all.push(frame(&read.key, slot, offset, checked, keep));
            }
        }
        Ok(all)
    }
}

fn frame(
    key: &str,
    slot: &FrameSlot,
    offset: u64,
    checked: Result<(Crc, Bytes), String>,
    keep: bool,
) -> Frame {
    let (intact, fault) = match checked {
        Ok(intact) => (Some(intact), None),
        Err(fault) => (None, Some(fault)),
    };
    let (crc32c, payload) = intact.unzip();
    Frame {
        slice: slot.slice,
        key: key.to_owned(),
        offset,
        bytes: slot.bytes,
        crc32c,
        fault,
        payload: payload.filter(|_| keep),
    }
}

/// Returns the checksum and payload of a frame, from the bytes of a read.
fn verified(
    read: &Bytes,
    slot: &FrameSlot,
    key: &str,
    identity: Identity,
) -> Result<(Crc, Bytes), String> {
    let start = slot.offset as usize;
    let end = start + slot.bytes as usize;
    if end > read.len() {
        return Err(format!("a read ended {} bytes early", end - read.len()));
    }
    let bytes = read.slice(start..end);
    let expect = Expect {
        key,
        step: Some(slot.step),
        identity,
        seq: slot.seq,
        slice: slot.slice,
    };
    let payload = verify(&bytes, &expect).map_err(|e| e.to_string())?;
    let header = FrameHeader::decode(&bytes).map_err(|e| e.to_string())?;
    Ok((Crc(header.payload_crc), bytes.slice(payload)))
}
