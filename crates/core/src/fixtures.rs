//! A small stream and its TGBs, for tests, measurements and simulators that need only the form of records.
//! No stored bytes belong to these records.

use crate::ids::{AttemptId, AttemptNo, Hash, JobName, ProducerName, Step, StreamId, Version};
use crate::retention::{Mark, Progress};
use crate::stream::{ParentStream, StreamConfig, StreamOrder, TokenizerId};
use crate::tgb::{Digest, ObjectPart, TgbRecord};

/// Slices per TGB of the fixture stream.
pub const SLICES: u32 = 4;
/// Tokens per slice of the fixture stream: one row.
pub const SEQ_LEN: u32 = 8;

/// Returns a stream of such TGBs; its id is derived from `id`.
pub fn stream(id: [u8; 16], order: StreamOrder, producers: Vec<ProducerName>) -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random(id),
        slices: SLICES,
        order,
        producers,
        tokenizer: TokenizerId {
            name: "bytes".into(),
            fingerprint: Hash::sha256(b"bytes"),
        },
        seq_len: SEQ_LEN,
        rows_per_slice: 1,
        created: "2026-11-21T00:00:00Z".into(),
        form: None,
        parent: None,
    }
}

/// Returns the stream as a fork of `parent` that begins at `step`.
pub fn fork(stream: StreamConfig, parent: StreamId, step: Step) -> StreamConfig {
    let parent = ParentStream {
        stream: parent,
        root: "file:///parent".into(),
        step,
        version: None,
        record: Hash([0; 32]),
        view: Hash([0; 32]),
        state: Hash([0; 32]),
    };
    StreamConfig {
        format: 2,
        parent: Some(parent),
        ..stream
    }
}

/// Returns a TGB that lies at position `index` in the object `key`: one part of `bytes`, all slices of one
/// size.
pub fn tgb(key: &str, index: u64, bytes: u64, digest: Digest) -> TgbRecord {
    TgbRecord {
        rows: u64::from(SLICES),
        tokens: u64::from(SLICES * SEQ_LEN),
        digest,
        parts: vec![ObjectPart {
            key: key.to_owned(),
            offset: index * bytes,
            length: bytes,
            first_slice: 0,
            slices: SLICES,
            frame_bytes: Some(bytes / u64::from(SLICES)),
            index: None,
        }],
        provenance: None,
        cost: None,
    }
}

/// An attempt of a job, as the objects of the attempt name it; one node reads all its ranks.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The stream that the job reads.
    pub stream: StreamId,
    pub job: JobName,
    /// The record that opened the job.
    pub opened: Version,
    /// The attempt's number, from 0.
    pub number: AttemptNo,
    pub dp_size: u32,
}

impl Attempt {
    /// Returns the id, which follows from the number.
    pub fn id(&self) -> AttemptId {
        AttemptId([self.number as u8 + 1; 16])
    }

    /// Returns the mark of one data coordinate at `step`, or of one rank for all of them.
    pub fn mark(&self, step: Step, dp_rank: Option<u32>) -> Mark {
        Mark {
            format: 1,
            stream: self.stream,
            job: self.job.clone(),
            opened: self.opened,
            attempt: self.number,
            id: self.id(),
            dp_rank,
            dp_size: self.dp_size,
            step,
            state: "{}".into(),
        }
    }

    /// Returns the progress of the coordinates `first..=last`: they received each step below `step`.
    pub fn progress(&self, step: Step, (first, last): (u32, u32)) -> Progress {
        Progress {
            format: 1,
            stream: self.stream,
            job: self.job.clone(),
            opened: self.opened,
            attempt: self.number,
            id: self.id(),
            node: "a1".into(),
            first,
            last,
            step,
            at: "2026-01-01T00:00:00Z".into(),
        }
    }
}
