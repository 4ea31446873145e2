//! Names and numbers that identify things. Randomness comes from the caller. Names are checked where they
//! are parsed, so that a key built from them is always valid.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::limits::NAME_BYTES_MAX;

/// Index of a global batch in the stream: 0, 1, 2, ... without gaps.
pub type Step = u64;
/// Number of a TGB within its producer; continues across terms.
pub type Seq = u64;
/// Number of openings of a producer name, called its term in messages and pages; the first is 1.
pub type Epoch = u64;
/// Number of a commit in the log; the first is 0.
pub type Version = u64;
/// Number of an attempt within its job's incarnation; the first is 0.
pub type AttemptNo = u64;

/// The error of a text that is not an id or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not the hexadecimal text that this kind of id has.
    #[error("{text:?} is not a {kind}: expected {expected}")]
    Malformed {
        kind: &'static str,
        expected: &'static str,
        text: String,
    },
    /// A name with characters or a length that keys do not allow.
    #[error(
        "{text:?} is not a valid name: 1 to {NAME_BYTES_MAX} of a-z, 0-9, '.', '_' and '-', \
         beginning with a letter or digit"
    )]
    Name { text: String },
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    let text: String = bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(*b)])
        .collect();
    f.write_str(&text)
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let value = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(out)
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $kind:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// Returns an id from bytes that the caller drew at random or computed.
            pub fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                unhex(text).map(Self).ok_or_else(|| IdError::Malformed {
                    kind: $kind,
                    expected: $expected,
                    text: text.chars().take(80).collect(),
                })
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
    };
}

hex_id!(/// Random id of one commit; tells our record from another's after an unknown outcome.
    CommitId, 16, "commit id", "32 hexadecimal digits");
hex_id!(/// Random id of one opening of a producer; part of its data keys.
    Nonce, 8, "nonce", "16 hexadecimal digits");
hex_id!(/// Random id of an administrative request, so that a repeat is a no-op.
    RequestId, 16, "request id", "32 hexadecimal digits");
hex_id!(/// Random id of a training attempt, drawn by the client of global rank 0.
    AttemptId, 16, "attempt id", "32 hexadecimal digits");
hex_id!(/// SHA-256 of an object's bytes.
    Hash, 32, "SHA-256 hash", "64 hexadecimal digits");

impl Hash {
    /// Returns the SHA-256 of `bytes`: the same as `sha256sum` prints, so that a person can check a chain.
    pub fn sha256(bytes: &[u8]) -> Self {
        use sha2::Digest;
        Self(sha2::Sha256::digest(bytes).into())
    }
}

/// Random id of a stream; written as a version 4 UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct StreamId(pub [u8; 16]);

impl StreamId {
    /// Returns an id from 16 random bytes (version and variant bits are set here).
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
            if i > 0 {
                f.write_str("-")?;
            }
            hex(&self.0[part], f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for StreamId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let dashes =
            text.len() == 36 && [8, 13, 18, 23].iter().all(|&i| text.as_bytes()[i] == b'-');
        let bytes = if dashes {
            unhex(&text.replace('-', ""))
        } else {
            None
        };
        bytes.map(Self).ok_or_else(|| IdError::Malformed {
            kind: "stream id",
            expected: "a UUID in lower case",
            text: text.chars().take(80).collect(),
        })
    }
}

impl From<StreamId> for String {
    fn from(id: StreamId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for StreamId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

// Shared text: every step, entry and map key holds a name, and a copy costs one reference count.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                check_name(text).map(|()| Self(text.into()))
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                check_name(&text).map(|()| Self(text.into()))
            }
        }
    };
}

name!(/// Name of a producer (and of its lane under `lanes`).
    ProducerName);
name!(/// Name of a training job.
    JobName);
name!(/// Name of a stage, as producers configure it.
    StageName);

fn check_name(text: &str) -> Result<(), IdError> {
    let inside = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let bytes = text.as_bytes();
    let good = (1..=NAME_BYTES_MAX).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|&c| inside(c));
    if good {
        return Ok(());
    }
    Err(IdError::Name {
        text: text.chars().take(80).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "0", "p-1", "tok.v2_x", &"a".repeat(NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<ProducerName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in [
            "", "A", "-a", ".", "..", "a/b", "a b", "é", "a\0", "a@1", &long,
        ] {
            assert!(bad.parse::<JobName>().is_err(), "{bad:?}");
            let json = serde_json::to_string(bad).unwrap();
            assert!(
                serde_json::from_str::<ProducerName>(&json).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn ids_round_trip_and_refuse_the_rest() {
        let id = StreamId::from_random([0xff; 16]);
        assert_eq!(id.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id.to_string().parse::<StreamId>().unwrap(), id);
        for bad in [
            "",
            "ffffffffffff4fffbfffffffffffffff",
            "FFFFFFFF-ffff-4fff-bfff-ffffffffffff",
        ] {
            assert!(bad.parse::<StreamId>().is_err(), "{bad:?}");
        }
        let nonce = Nonce([1, 2, 3, 4, 5, 6, 7, 0xab]);
        assert_eq!(nonce.to_string(), "01020304050607ab");
        assert_eq!("01020304050607ab".parse::<Nonce>().unwrap(), nonce);
        assert!("0102030405060".parse::<Nonce>().is_err());
        assert!("01020304050607aé".parse::<Nonce>().is_err());
        assert_eq!(
            Hash::sha256(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
