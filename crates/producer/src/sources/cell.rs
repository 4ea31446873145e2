//! One field of a row or a sample.

use bytes::Bytes;

/// The value of one field.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text or bytes, as they are stored.
    Bytes(Bytes),
    /// The bytes of the file that the value names.
    File(Bytes),
    /// One whole number, or a list of them; booleans are 0 and 1.
    Ints(Vec<i64>),
    /// The same of a type of 64 bits without sign; narrower ones are `Ints`.
    Unsigned(Vec<u64>),
    /// One number with a fraction, or a list of them.
    Floats(Vec<f64>),
}

impl Cell {
    /// Returns the bytes of its values.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::File(bytes) => bytes.len() as u64,
            Self::Ints(numbers) => 8 * numbers.len() as u64,
            Self::Unsigned(numbers) => 8 * numbers.len() as u64,
            Self::Floats(numbers) => 8 * numbers.len() as u64,
        }
    }
}
