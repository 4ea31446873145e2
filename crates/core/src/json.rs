//! JSON objects as they are stored: bounded, with a `format` number that is read first.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::ids::Hash;

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
    // What we write ourselves begins so; a second `format` behind it would be refused below.
    if !bytes.starts_with(b"{\"format\":1,") {
        let head: Head = serde_json::from_slice(bytes).map_err(malformed)?;
        refuse_unknown(&head, key)?;
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

fn refuse_unknown(head: &Head, key: &str) -> Result<(), FormatError> {
    if head.format == 1 {
        return Ok(());
    }
    Err(FormatError::UnknownFormat {
        key: key.to_owned(),
        found: head.format,
    })
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

const DIGEST: &[u8] = b",\"digest\":\"";
const DIGEST_END: &[u8] = b"\"}\n";

/// Compact JSON of an object, with the SHA-256 of all bytes before it as its last field: for copies
/// of what the log says, where a flipped digit would otherwise be believed.
pub fn with_digest<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.pop();
    let digest = Hash::of(&bytes).to_string();
    for part in [DIGEST, digest.as_bytes(), DIGEST_END] {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Whether an object ends as `with_digest` ends one; only then did `parse_with_digest` compare.
pub fn has_digest(bytes: &[u8]) -> bool {
    let tail = bytes
        .len()
        .checked_sub(DIGEST.len() + 64 + DIGEST_END.len());
    tail.is_some_and(|at| bytes[at..].starts_with(DIGEST) && bytes.ends_with(DIGEST_END))
}

/// Parses what `with_digest` wrote. Objects of older builds have no digest: they are read without.
pub fn parse_with_digest<T: DeserializeOwned>(
    bytes: &[u8],
    key: &str,
    limit: usize,
) -> Result<T, FormatError> {
    let split = bytes
        .len()
        .checked_sub(DIGEST.len() + 64 + DIGEST_END.len());
    let (body, tail) = bytes.split_at(split.unwrap_or(0));
    let digest = tail.strip_prefix(DIGEST);
    let Some(digest) = digest.and_then(|rest| rest.strip_suffix(DIGEST_END)) else {
        return parse(bytes, key, limit);
    };
    if Hash::of(body).to_string().as_bytes() != digest {
        // A newer format may be digested otherwise.
        if let Ok(head) = serde_json::from_slice(bytes) {
            refuse_unknown(&head, key)?;
        }
        let reason = "its digest is not that of its bytes: the object was damaged";
        return Err(FormatError::rule(key, reason));
    }
    parse(&[body, b"}"].concat(), key, limit)
}
