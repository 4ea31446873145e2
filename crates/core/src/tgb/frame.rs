//! A slice frame: a header of 64 bytes, the payload, zeros up to the next multiple of 64.

use std::ops::Range;

use super::error::{Fault, FrameLocation, TgbError};
use super::{HEADER_BYTES, Identity, TGB_VERSION, bytes_at, frame_bytes, u32_at, u64_at};
use crate::crc::{Crc32c, crc32c, followed_by_zeros};
use crate::ids::{Seq, Step, StreamId};

const MAGIC: [u8; 3] = *b"BWF";
const CRC_AT: usize = 60;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub identity: Identity,
    pub seq: Seq,
    pub slice: u32,
    /// Bytes of the payload, without padding.
    pub payload_bytes: u64,
    /// CRC32C of the payload.
    pub payload_crc: u32,
}

/// The frame that a reader expects.
#[derive(Debug, Clone, Copy)]
pub struct Expect<'a> {
    /// The object, for messages.
    pub key: &'a str,
    /// The step, for messages.
    pub step: Option<Step>,
    pub identity: Identity,
    pub seq: Seq,
    pub slice: u32,
}

impl Expect<'_> {
    /// Returns `fault` at this place.
    pub fn error(&self, fault: Fault) -> TgbError {
        let Self {
            step, seq, slice, ..
        } = *self;
        let place = FrameLocation {
            key: self.key.to_owned(),
            step,
            seq: Some(seq),
            slice: Some(slice),
        };
        TgbError {
            place: Box::new(place),
            fault,
        }
    }
}

impl FrameHeader {
    /// Returns the stored form.
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut out = [0; HEADER_BYTES as usize];
        out[..3].copy_from_slice(&MAGIC);
        out[3] = TGB_VERSION;
        out[4..8].copy_from_slice(&self.slice.to_le_bytes());
        out[8..24].copy_from_slice(&self.identity.stream.0);
        out[24..32].copy_from_slice(&self.identity.producer.to_le_bytes());
        out[32..40].copy_from_slice(&self.identity.epoch.to_le_bytes());
        out[40..48].copy_from_slice(&self.seq.to_le_bytes());
        out[48..56].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[56..60].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a header; checks everything except its identity.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let what = "a frame header";
        let Some(head) = bytes.get(..HEADER_BYTES as usize) else {
            return Err(Fault::Truncated {
                what,
                need: HEADER_BYTES,
                have: bytes.len() as u64,
            });
        };
        check_magic(what, bytes_at(head, 0), MAGIC)?;
        check_crc(what, head, CRC_AT)?;
        Ok(Self {
            slice: u32_at(head, 4),
            identity: identity_at(head, 8),
            seq: u64_at(head, 40),
            payload_bytes: u64_at(head, 48),
            payload_crc: u32_at(head, 56),
        })
    }

    /// Returns the bytes of the whole frame; saturates, since the field may hold anything.
    pub fn frame_bytes(&self) -> u64 {
        frame_bytes(self.payload_bytes).unwrap_or(u64::MAX)
    }

    /// Checks field by field that this is the expected frame.
    pub fn check_identity(&self, expect: &Expect<'_>) -> Result<(), Fault> {
        same_identity(self.identity, expect.identity)?;
        let what = "the frame";
        if self.seq != expect.seq {
            return Err(Fault::Seq {
                what,
                expected: expect.seq,
                found: self.seq,
            });
        }
        if self.slice != expect.slice {
            return Err(Fault::Slice {
                what,
                expected: expect.slice,
                found: self.slice,
            });
        }
        Ok(())
    }

    /// Returns the range of the payload in `frame`, which is all bytes of the frame.
    fn payload(&self, frame: &[u8]) -> Result<Range<usize>, Fault> {
        let found = frame.len() as u64;
        if self.frame_bytes() != found {
            return Err(Fault::Length {
                what: "the frame",
                expected: self.frame_bytes(),
                found,
            });
        }
        Ok(HEADER_BYTES as usize..(HEADER_BYTES + self.payload_bytes) as usize)
    }

    /// Checks the payload, which is at `range` in `frame`, and the padding.
    fn check_payload(&self, frame: &[u8], range: &Range<usize>) -> Result<(), Fault> {
        let computed = crc32c(&frame[range.clone()]);
        if computed != self.payload_crc {
            return Err(Fault::PayloadCrc {
                stored: self.payload_crc,
                computed,
            });
        }
        check_padding(frame, range)
    }
}

fn check_padding(frame: &[u8], payload: &Range<usize>) -> Result<(), Fault> {
    if frame[payload.end..].iter().any(|&b| b != 0) {
        return Err(Fault::NotZero {
            what: "the padding behind the payload",
        });
    }
    Ok(())
}

/// Checks all of a frame, where `bytes` is exactly the frame. Returns the range of the payload.
pub fn verify(bytes: &[u8], expect: &Expect<'_>) -> Result<Range<usize>, TgbError> {
    let check = || {
        let header = FrameHeader::decode(bytes)?;
        header.check_identity(expect)?;
        let payload = header.payload(bytes)?;
        header.check_payload(bytes, &payload)?;
        Ok(payload)
    };
    check().map_err(|fault| expect.error(fault))
}

/// Like [`verify`], without reading the payload again: `body` is the checksum of all bytes after the
/// header, computed as they arrived. When it does not match, the payload is read after all, which decides
/// and names the fault.
pub fn verify_summed(
    bytes: &[u8],
    body: &Crc32c,
    expect: &Expect<'_>,
) -> Result<Range<usize>, TgbError> {
    let check = || {
        let header = FrameHeader::decode(bytes)?;
        header.check_identity(expect)?;
        let payload = header.payload(bytes)?;
        let whole = followed_by_zeros(header.payload_crc, bytes.len() - payload.end);
        let all = body.bytes() == bytes.len() as u64 - HEADER_BYTES;
        if all && body.value() == whole {
            check_padding(bytes, &payload)?;
        } else {
            header.check_payload(bytes, &payload)?;
        }
        Ok(payload)
    };
    check().map_err(|fault| expect.error(fault))
}

pub(super) fn check_magic(what: &'static str, found: [u8; 4], magic: [u8; 3]) -> Result<(), Fault> {
    if found[..3] != magic {
        return Err(Fault::Magic { what, found });
    }
    if found[3] != TGB_VERSION {
        return Err(Fault::Version {
            what,
            found: found[3],
        });
    }
    Ok(())
}

/// Compares the CRC32C stored at `at` with that of all bytes before it.
pub(super) fn check_crc(what: &'static str, bytes: &[u8], at: usize) -> Result<(), Fault> {
    let computed = crc32c(bytes.get(..at).unwrap_or_default());
    let stored = u32_at(bytes, at);
    if computed == stored {
        Ok(())
    } else {
        Err(Fault::Crc {
            what,
            stored,
            computed,
        })
    }
}

pub(super) fn identity_at(bytes: &[u8], at: usize) -> Identity {
    Identity {
        stream: StreamId(bytes_at(bytes, at)),
        producer: u64_at(bytes, at + 16),
        epoch: u64_at(bytes, at + 24),
    }
}

pub(super) fn same_identity(found: Identity, expected: Identity) -> Result<(), Fault> {
    if found.stream != expected.stream {
        return Err(Fault::Stream {
            expected: expected.stream,
            found: found.stream,
        });
    }
    if found.producer != expected.producer {
        return Err(Fault::Producer {
            expected: expected.producer,
            found: found.producer,
        });
    }
    if found.epoch != expected.epoch {
        return Err(Fault::Epoch {
            expected: expected.epoch,
            found: found.epoch,
        });
    }
    Ok(())
}
