//! A small stream and its TGBs: what tests, measurements and simulators put into a log when only the
//! form of it matters. No bytes belong to these records.

use crate::ids::{Hash, ProducerName, StreamId};
use crate::stream::{StreamConfig, StreamOrder, TokenizerId};
use crate::tgb::{Digest, ObjectPart, TgbRecord};

/// Slices of a batch.
pub const SLICES: u32 = 4;
/// Tokens of a slice: one row.
pub const SEQ_LEN: u32 = 8;

/// A stream of such batches; its id is made of `id`.
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
    }
}

/// The TGB that lies at place `index` in the object `key`: one part of `bytes`, all slices of one size.
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
    }
}
