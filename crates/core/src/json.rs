//! JSON objects as they are stored: bounded, with a `format` number in front and a digest at the end.
//!
//! Invariant: every stored JSON object ends in the SHA-256 of all bytes before its digest, so one wrong,
//! missing or added byte is found before any of the content is used.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::ids::Hash;

#[derive(Deserialize)]
struct Head {
    format: u64,
}

/// A whole object, with or without a digest.
#[derive(Deserialize)]
struct Digested {
    digest: Option<serde::de::IgnoredAny>,
}

/// The text between an object's last field and its digest, and after the digest.
struct Ends {
    before: &'static [u8],
    after: &'static [u8],
}

/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;
const COMPACT: Ends = Ends {
    before: b",\"digest\":\"",
    after: b"\"}\n",
};
const PRETTY: Ends = Ends {
    before: b",\n  \"digest\": \"",
    after: b"\"\n}\n",
};

impl Ends {
    /// Returns the bytes that the digest covers, if the object ends in this way, and whether they match.
    fn split<'b>(&self, bytes: &'b [u8]) -> Option<(&'b [u8], bool)> {
        let tail = self.before.len() + DIGITS + self.after.len();
        let (body, tail) = bytes.split_at_checked(bytes.len().checked_sub(tail)?)?;
        let digest = tail.strip_prefix(self.before)?.strip_suffix(self.after)?;
        Some((body, Hash::sha256(body).to_string().as_bytes() == digest))
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], bool)> {
    COMPACT.split(bytes).or_else(|| PRETTY.split(bytes))
}

/// Returns whether the last value may be a digest, whatever its name: one wrong byte can change the name.
fn ends_in_hash(bytes: &[u8]) -> bool {
    let is_end = |b: &u8| b.is_ascii_whitespace() || b"}\"".contains(b);
    let end = bytes
        .iter()
        .rposition(|b| !is_end(b))
        .map_or(0, |at| at + 1);
    let last = &bytes[end.saturating_sub(DIGITS)..end];
    last.len() == DIGITS && last.iter().all(u8::is_ascii_hexdigit)
}

/// Returns whether an object ends in the digest of its own bytes. If not, the bytes were damaged in the
/// store or in transit; a second read shows which.
pub fn is_intact(bytes: &[u8]) -> bool {
    split(bytes).is_some_and(|(_, matches)| matches)
}

/// Parses an object of format 1. The format number is checked before anything else, so that a newer object
/// causes "upgrade", not "unknown field".
pub fn parse<T: DeserializeOwned>(bytes: &[u8], key: &str, limit: usize) -> Result<T, FormatError> {
    parse_up_to(bytes, key, limit, 1)
}

/// Like [`parse`], for an object of a format from 1 to `newest`.
pub fn parse_up_to<T: DeserializeOwned>(
    bytes: &[u8],
    key: &str,
    limit: usize,
    newest: u64,
) -> Result<T, FormatError> {
    bounded(bytes, key, limit)?;
    let (body, matches) = split(bytes).unwrap_or((&[], false));
    if !matches {
        // A newer format may compute its digest in another way.
        let head: Head = serde_json::from_slice(bytes).map_err(|e| malformed(&e, key))?;
        refuse_unknown(&head, key, newest)?;
        let key = key.to_owned();
        let whole: Option<Digested> = serde_json::from_slice(bytes).ok();
        return Err(match whole {
            Some(Digested { digest: None }) if !ends_in_hash(bytes) => {
                FormatError::NoDigest { key }
            }
            _ => FormatError::Damaged { key },
        });
    }
    parse_body(&[body, b"}"].concat(), key, newest)
}

/// Parses an object without a digest: its name holds the hash of its bytes, which the caller has compared.
pub fn parse_named<T: DeserializeOwned>(
    bytes: &[u8],
    key: &str,
    limit: usize,
) -> Result<T, FormatError> {
    bounded(bytes, key, limit)?;
    parse_body(bytes, key, 1)
}

fn parse_body<T: DeserializeOwned>(bytes: &[u8], key: &str, newest: u64) -> Result<T, FormatError> {
    // Objects of this build begin like this; a second `format` after it is refused below.
    if !bytes.starts_with(b"{\"format\":1,") {
        let head: Head = serde_json::from_slice(bytes).map_err(|e| malformed(&e, key))?;
        refuse_unknown(&head, key, newest)?;
    }
    serde_json::from_slice(bytes).map_err(|e| malformed(&e, key))
}

fn bounded(bytes: &[u8], key: &str, limit: usize) -> Result<(), FormatError> {
    if bytes.len() <= limit {
        return Ok(());
    }
    Err(FormatError::TooLarge {
        key: key.to_owned(),
        bytes: bytes.len(),
        limit,
    })
}

fn malformed(error: &serde_json::Error, key: &str) -> FormatError {
    FormatError::Malformed {
        key: key.to_owned(),
        detail: error.to_string(),
    }
}

fn refuse_unknown(head: &Head, key: &str, newest: u64) -> Result<(), FormatError> {
    if (1..=newest).contains(&head.format) {
        return Ok(());
    }
    Err(FormatError::UnknownFormat {
        key: key.to_owned(),
        found: head.format,
        newest,
    })
}

/// Returns indented JSON, for small objects that people read.
pub fn pretty<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.truncate(bytes.len().saturating_sub(b"\n}".len()));
    close(bytes, &PRETTY)
}

/// Returns the compact JSON of an object.
pub fn compact<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.pop();
    close(bytes, &COMPACT)
}

fn close(mut bytes: Vec<u8>, ends: &Ends) -> Vec<u8> {
    let digest = Hash::sha256(&bytes).to_string();
    for part in [ends.before, digest.as_bytes(), ends.after] {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Returns the object with the right digest of its bytes, for tests that break one rule of a format at a
/// time.
pub fn sign_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let (ends, body) = [COMPACT, PRETTY]
        .into_iter()
        .find_map(|ends| ends.split(bytes).map(|(body, _)| (ends, body.to_vec())))?;
    Some(close(body, &ends))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn both() -> [Vec<u8>; 2] {
        let value = json!({"format": 1, "name": "x", "list": [1, 2]});
        [compact(&value), pretty(&value)]
    }

    #[test]
    fn no_flip_no_cut_and_no_addition_is_believed() {
        for bytes in both() {
            assert!(is_intact(&bytes));
            let refused = |bytes: &[u8]| {
                assert!(!is_intact(bytes));
                parse::<Value>(bytes, "k", 1000).unwrap_err()
            };
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut flipped = bytes.clone();
                    flipped[at] ^= 1 << bit;
                    refused(&flipped);
                }
                refused(&bytes[..at]);
                refused(&[&bytes[..at], &bytes[at + 1..]].concat());
                refused(&[&bytes[..at], b" ", &bytes[at..]].concat());
            }
            let found = refused(bytes.strip_suffix(b"\n").unwrap());
            assert!(matches!(found, FormatError::Damaged { .. }), "{found}");
        }
    }

    #[test]
    fn an_object_of_an_early_program_is_called_old_and_not_damaged() {
        for early in [
            &b"{\"format\":1,\"name\":\"x\"}\n"[..],
            b"{\n  \"format\": 1\n}\n",
        ] {
            let why = parse::<Value>(early, "k", 1000).unwrap_err();
            assert!(matches!(why, FormatError::NoDigest { .. }), "{why}");
        }
        // The name of the digest is wrong.
        let text = String::from_utf8(compact(&json!({"format": 1}))).unwrap();
        let wrong = text.replace("digest", "digesu");
        let why = parse::<Value>(wrong.as_bytes(), "k", 1000).unwrap_err();
        assert!(matches!(why, FormatError::Damaged { .. }), "{why}");
    }

    #[test]
    fn an_object_that_is_signed_again_is_read_by_its_content() {
        for bytes in both() {
            let text = String::from_utf8(bytes).unwrap();
            let longer = text.replace('x', "longer");
            assert!(parse::<Value>(longer.as_bytes(), "k", 1000).is_err());
            let signed = sign_again(longer.as_bytes()).unwrap();
            let read: Value = parse(&signed, "k", 1000).unwrap();
            assert_eq!(read["name"], "longer");
            assert_eq!(read.get("digest"), None);
        }
    }
}
