//! Checks that several targets share.

use std::fmt::{Debug, Display};
use std::sync::LazyLock;

use batchweave_core::error::FormatError;
use batchweave_core::ids::StreamId;
use batchweave_core::manifest::Manifest;
use batchweave_core::stream::StreamConfig;
use serde::Deserialize;

/// `stream.json` of the golden log.
const STREAM: &[u8] = include_bytes!("../../golden/stream-v1.json");
/// The records of the golden log, one per line.
const LOG: &[u8] = include_bytes!("../../golden/log-v1.jsonl");

/// The stream that all seeds belong to: two lanes, `a` and `b`, four slices.
pub(crate) fn stream() -> &'static StreamConfig {
    static STREAM_READ: LazyLock<StreamConfig> = LazyLock::new(|| {
        good(
            StreamConfig::from_json(STREAM, "stream.json"),
            "stream.json",
        )
    });
    &STREAM_READ
}

pub(crate) fn stream_id() -> StreamId {
    stream().stream_id
}

/// The state after the golden log: a job with attempts, a mixture, a waiting TGB, no unfinished producer.
pub(crate) fn manifest() -> &'static Manifest {
    static FOLDED: LazyLock<Manifest> = LazyLock::new(|| folded(usize::MAX));
    &FOLDED
}

/// The state before its last record: two unfinished producers that have committed.
pub(crate) fn producing() -> &'static Manifest {
    static FOLDED: LazyLock<Manifest> = LazyLock::new(|| folded(4));
    &FOLDED
}

fn folded(records: usize) -> Manifest {
    let mut manifest = Manifest::new(stream().clone(), STREAM);
    for record in LOG.split_inclusive(|&byte| byte == b'\n').take(records) {
        good(manifest.fold(record), "the golden log");
    }
    manifest
}

/// Returns the value, or panics with the failed operation.
pub(crate) fn good<T, E: Display>(result: Result<T, E>, what: &str) -> T {
    match result {
        Ok(value) => value,
        Err(why) => panic!("{what}: {why}"),
    }
}

/// Checks that a decoded value is encoded, decoded and encoded again to the same value and the same bytes.
pub(crate) fn stable<T: PartialEq + Debug>(
    value: &T,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
) {
    let bytes = encode(value);
    let again = match decode(&bytes) {
        // Numbers with exponents are longer when they are written out.
        Err(FormatError::TooLarge { .. }) => return,
        again => good(again, "what was read and written again"),
    };
    assert_eq!(*value, again, "written and read again");
    assert_eq!(bytes, encode(&again), "written twice");
}

/// Returns a number of that name in a JSON object, for the place that the object is read from.
pub(crate) fn version_in(bytes: &[u8]) -> u64 {
    #[derive(Deserialize)]
    struct Place {
        version: u64,
    }
    serde_json::from_slice::<Place>(bytes).map_or(0, |place| place.version)
}
