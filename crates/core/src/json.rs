//! JSON objects as they are stored: bounded, with a `format` number that is read first.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::FormatError;

#[derive(Deserialize)]
struct Head {
    format: u64,
}

/// Parses an object of format 1. The format number is judged before anything else, so that a newer
/// object gets "upgrade", not "unknown field".
pub fn parse<T: DeserializeOwned>(bytes: &[u8], key: &str, limit: usize) -> Result<T, FormatError> {
    if bytes.len() > limit {
        return Err(FormatError::TooLarge {
            key: key.to_owned(),
            bytes: bytes.len(),
            limit,
        });
    }
    let malformed = |e: serde_json::Error| FormatError::Malformed {
        key: key.to_owned(),
        detail: e.to_string(),
    };
    let head: Head = serde_json::from_slice(bytes).map_err(malformed)?;
    if head.format != 1 {
        return Err(FormatError::UnknownFormat {
            key: key.to_owned(),
            found: head.format,
        });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

/// Indented JSON with a final newline, for small objects that people read.
pub fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Compact JSON with a final newline.
pub fn compact<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
