//! Values with a unit (`"64MiB"`, `"250ms"`) and an address that may be `"off"`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes, written as `"64MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct ByteSize(pub u64);

/// A duration, written as `"250ms"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Period(pub Duration);

/// An address to listen on, `"127.0.0.1:9464"`, or `"off"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Listen(pub Option<SocketAddr>);

const BYTE_UNITS: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

const TIME_UNITS: &[(&str, u64)] = &[
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// A value in the file where a unit is required. A bare number is parsed only to be refused with a
/// better message than serde's.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Integer(i64),
    Float(f64),
}

impl ByteSize {
    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns a size of `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl Period {
    /// Returns a period of `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
}

/// Splits `"12 MiB"` and multiplies; `None` for anything else, and on overflow.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim();
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*scale)
}

/// Returns the shortest exact form.
fn unscaled(value: u64, units: &[(&str, u64)]) -> String {
    let whole = units
        .iter()
        .find(|(_, scale)| value > 0 && value.is_multiple_of(*scale));
    let (unit, scale) = whole.or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{unit}", value / scale)
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, BYTE_UNITS).map(Self).ok_or_else(|| {
            format!("invalid size \"{text}\": expected a whole number and B, KiB, MiB, GiB or TiB, for example \"64MiB\"")
        })
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let micros = scaled(text, TIME_UNITS).ok_or_else(|| {
            format!("invalid duration \"{text}\": expected a whole number and us, ms, s, min or h, for example \"250ms\"")
        })?;
        Ok(Self(Duration::from_micros(micros)))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        text.parse().map(|address| Self(Some(address))).map_err(|_| {
            format!("invalid address \"{text}\": expected IP:PORT, for example \"127.0.0.1:9464\" or \"[::1]:9464\", or \"off\"")
        })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&unscaled(self.0, BYTE_UNITS))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&unscaled(self.0.as_micros() as u64, TIME_UNITS))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("off"),
        }
    }
}

macro_rules! written {
    ($type:ty, $example:literal) => {
        impl TryFrom<Written> for $type {
            type Error = String;

            fn try_from(written: Written) -> Result<Self, String> {
                let bare = |n: &dyn fmt::Display| {
                    Err(format!(
                        concat!("{} has no unit: write a string, as \"", $example, "\""),
                        n
                    ))
                };
                match written {
                    Written::Text(text) => text.parse(),
                    Written::Integer(n) => bare(&n),
                    Written::Float(n) => bare(&n),
                }
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}

written!(ByteSize, "64MiB");
written!(Period, "250ms");
written!(Listen, "127.0.0.1:9464");
