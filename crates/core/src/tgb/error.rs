//! Faults of a stored object's bytes: the broken rule, the place, and the remedy.

use std::fmt;

use crate::ids::{Seq, Step, StreamId};

/// The place of a fault in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrameLocation {
    pub key: String,
    /// The step, when a step was read.
    pub step: Option<Step>,
    pub seq: Option<Seq>,
    pub slice: Option<u32>,
}

impl fmt::Display for FrameLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        let numbers = [
            ("step", self.step),
            ("seq", self.seq),
            ("slice", self.slice.map(u64::from)),
        ];
        let known: Vec<_> = numbers
            .iter()
            .filter_map(|(name, n)| n.map(|n| format!("{name} {n}")))
            .collect();
        if known.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", known.join(", "))
    }
}

/// The rule of the format that the bytes break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There are fewer bytes than the structure has.
    #[error("{what} needs {need} bytes, there are {have}: the object or the read is cut short")]
    Truncated {
        what: &'static str,
        need: u64,
        have: u64,
    },
    /// There are more or fewer bytes than the structure states.
    #[error("{what} is {expected} bytes long by its own fields, there are {found}")]
    Length {
        what: &'static str,
        expected: u64,
        found: u64,
    },
    /// The structure does not begin or end with its magic number.
    #[error("{what} has the magic number {found:02x?}: this is not a TGB object, or not its start")]
    Magic { what: &'static str, found: [u8; 4] },
    /// This build does not support the version of the format.
    #[error("{what} has version {found}, this build reads version 1")]
    Version { what: &'static str, found: u8 },
    /// The structure's own checksum does not match.
    #[error("{what}: CRC32C is {computed:08x}, stored is {stored:08x}")]
    Crc {
        what: &'static str,
        stored: u32,
        computed: u32,
    },
    #[error("the payload's CRC32C is {computed:08x}, stored is {stored:08x}")]
    PayloadCrc { stored: u32, computed: u32 },
    /// Bytes that must be zero are not.
    #[error("{what} is not zero")]
    NotZero { what: &'static str },
    /// The object belongs to another stream.
    #[error("belongs to stream {found}, not {expected}")]
    Stream { expected: StreamId, found: StreamId },
    /// Another producer wrote it.
    #[error(
        "its producer's name hashes to {found:016x}, not {expected:016x}: another producer wrote it"
    )]
    Producer { expected: u64, found: u64 },
    /// It was written in another epoch.
    #[error("was written in term {found}, not {expected}")]
    Epoch { expected: u64, found: u64 },
    #[error("{what} is of TGB {found}, not {expected}")]
    Seq {
        what: &'static str,
        expected: u64,
        found: u64,
    },
    #[error("{what} is of slice {found}, not {expected}")]
    Slice {
        what: &'static str,
        expected: u32,
        found: u32,
    },
    /// An index entry points outside its part.
    #[error("the index puts a frame at bytes {start} to {end}, outside its place")]
    Offset { start: u64, end: u64 },
    /// The object has no frames, or another number of TGBs than stated.
    #[error("the trailer counts {frames} frames of {tgbs} TGBs, the index has others")]
    Counts { frames: u32, tgbs: u32 },
    /// An index entry and its frame's header differ in the payload's length or checksum.
    #[error("the index and the frame's header differ about the payload")]
    Disagree,
}

/// A fault and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}; {}", fault.remedy())]
pub struct TgbError {
    pub place: Box<FrameLocation>,
    pub fault: Fault,
}

impl TgbError {
    /// Returns a fault of the object `key` as a whole.
    pub fn at(key: &str, fault: Fault) -> Self {
        Self {
            place: Box::new(FrameLocation {
                key: key.to_owned(),
                ..FrameLocation::default()
            }),
            fault,
        }
    }
}

impl Fault {
    /// Returns the remedy for a person.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Version { .. } => "upgrade BatchWeave",
            Self::Stream { .. } | Self::Producer { .. } | Self::Epoch { .. } => {
                "someone copied or overwrote data objects: restore the object, or quarantine the step"
            }
            _ => "read it again; if that gives the same, restore the object or quarantine the step",
        }
    }
}
