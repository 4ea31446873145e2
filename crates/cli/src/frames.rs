//! Reading and verification of the frames of one step's batch.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use batchweave_core::ids::StreamId;
use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::ranges::{self, FrameSlot, Located, PIECE_BYTES_MAX};
use batchweave_core::tgb::{Expect, FrameHeader, Identity, verify};
use batchweave_store::{ErrorKind, Store, StoreError, read_range};
use bytes::Bytes;
use serde::Serialize;

use crate::error::CliError;

/// One stored slice of a step.
#[derive(Debug, Serialize)]
pub struct Frame {
    pub slice: u32,
    pub key: String,
    pub offset: u64,
    /// Bytes of the frame: header, payload and padding.
    pub bytes: u64,
    /// CRC32C of the payload, after verification.
    pub crc32c: Option<Crc>,
    /// The damage, if there is any.
    pub fault: Option<String>,
    /// The payload, when it is intact.
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

/// Reads of a damaged step before the damage is reported.
const READS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// Reads `slices` of the batch in large reads and verifies each frame. Damage is reported per frame, after
/// it was read again over other connections; any other failure of the store is an error. Payloads are
/// dropped unless `keep`.
pub async fn read(
    store: &dyn Store,
    stream: StreamId,
    entry: &StepEntry,
    slices: Range<u32>,
    keep: bool,
) -> Result<Vec<Frame>, CliError> {
    let mut found = read_once(store, stream, (entry, slices.clone()), keep, false).await;
    for _ in 1..READS {
        let wrong = match &found {
            Ok(frames) => frames.iter().any(|frame| frame.fault.is_some()),
            Err(CliError::Store(why)) => why.kind == ErrorKind::Contract || is_damage(why),
            Err(why) => matches!(why, CliError::Tgb(_)),
        };
        if !wrong {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        found = read_once(store, stream, (entry, slices.clone()), keep, true).await;
    }
    found
}

async fn read_once(
    store: &dyn Store,
    stream: StreamId,
    (entry, slices): (&StepEntry, Range<u32>),
    keep: bool,
    fresh: bool,
) -> Result<Vec<Frame>, CliError> {
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
            let mut frame = check(&read.key, slot, identity, fetched.as_ref());
            frame.offset = read.range.start + slot.offset;
            frame.payload = frame.payload.filter(|_| keep);
            all.push(frame);
        }
    }
    Ok(all)
}

/// Whether an object is missing or truncated: damage of its frames, not a failure of the store.
pub fn is_damage(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Range)
}

fn check(key: &str, slot: &FrameSlot, identity: Identity, read: Result<&Bytes, &String>) -> Frame {
    let mut frame = Frame {
        slice: slot.slice,
        key: key.to_owned(),
        offset: 0,
        bytes: slot.bytes,
        crc32c: None,
        fault: None,
        payload: None,
    };
    let expect = Expect {
        key,
        step: Some(slot.step),
        identity,
        seq: slot.seq,
        slice: slot.slice,
    };
    match read
        .map_err(Clone::clone)
        .and_then(|all| verified(all, slot, &expect))
    {
        Ok((crc, payload)) => {
            frame.crc32c = Some(crc);
            frame.payload = Some(payload);
        }
        Err(fault) => frame.fault = Some(fault),
    }
    frame
}

fn verified(read: &Bytes, slot: &FrameSlot, expect: &Expect<'_>) -> Result<(Crc, Bytes), String> {
    let start = slot.offset as usize;
    let end = start + slot.bytes as usize;
    if end > read.len() {
        return Err(format!("a read ended {} bytes early", end - read.len()));
    }
    let bytes = read.slice(start..end);
    let payload = verify(&bytes, expect).map_err(|e| e.to_string())?;
    let header = FrameHeader::decode(&bytes).map_err(|e| e.to_string())?;
    Ok((Crc(header.payload_crc), bytes.slice(payload)))
}
