//! The state of packing between two batches: a point in the input, and the pieces that are placed already.

use batchweave_core::balance::{BalanceSettings, CARRIED_MAX};
use batchweave_core::limits::NUMBER_MAX;
use serde::{Deserialize, Serialize};

use super::{HandOver, RowWindow};
use crate::sources::Place;

/// A position in the sequence of a producer's documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Passes over the input that are complete.
    pub pass: u64,
    /// Index of the file in the input list.
    pub file: u32,
    /// Line or row in the file.
    pub unit: u64,
    /// Offset of that line in the decompressed file.
    pub offset: u64,
    /// Number of tokens of that document to leave out; 1 leaves out a sample.
    pub skip: u64,
}

impl Point {
    /// Returns the beginning of the document at `place`.
    pub fn at(pass: u64, place: Place) -> Self {
        Self {
            pass,
            file: place.file,
            unit: place.unit,
            offset: place.offset,
            skip: 0,
        }
    }

    /// Returns the beginning of pass `pass`.
    pub fn pass(pass: u64) -> Self {
        Self {
            pass,
            ..Self::default()
        }
    }

    /// Returns the point behind all documents of several sources.
    pub(crate) fn end() -> Self {
        Self {
            pass: NUMBER_MAX - 1,
            ..Self::default()
        }
    }

    /// Returns the place of the document.
    pub fn place(self) -> Place {
        Place {
            file: self.file,
            unit: self.unit,
            offset: self.offset,
        }
    }

    /// Returns whether both points are in the same document.
    pub(crate) fn is_document(self, other: Self) -> bool {
        (self.pass, self.place()) == (other.pass, other.place())
    }
}

/// The state from which packing continues after a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restart {
    /// The point to read from.
    pub at: Point,
    /// The pieces from that point on that earlier batches hold.
    pub placed: Placed,
    /// Of bins: the pieces from that point on that wait, among those that earlier batches hold.
    pub carried: Carried,
    /// The window of batches that begins there, of which earlier batches are some.
    pub window: Option<RowWindow>,
    /// The hand-over of an earlier packer, whose point it then is; of `placed` the numbers are counted from the pieces that
    /// it says were given.
    pub left: Option<Box<HandOver>>,
}

impl From<Point> for Restart {
    fn from(at: Point) -> Self {
        Self {
            at,
            placed: Placed::default(),
            carried: Carried::default(),
            window: None,
            left: None,
        }
    }
}

/// The pieces behind a point up to the last one that was given: before each that waits the number of those that were
/// given, then the number of those behind the last one that waits. Empty when all wait.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Carried(Vec<u64>);

impl Carried {
    /// Returns the pieces from number `first` on, of which `waiting` wait, in order, and of which `border` is behind the last
    /// one that was given.
    pub(super) fn new(first: u64, waiting: impl Iterator<Item = u64>, border: u64) -> Self {
        let mut next = first;
        let mut counts: Vec<u64> = Vec::new();
        for number in waiting.take_while(|number| *number < border) {
            counts.push(number.saturating_sub(next));
            next = number + 1;
        }
        if border > first {
            counts.push(border.saturating_sub(next));
        }
        Self(counts)
    }

    /// Returns the most bytes that a cursor needs for what windows of these settings carry: of pieces that fit nowhere, there
    /// are fewer than bins (`balance`), and each piece takes a token of room.
    pub(crate) fn bytes_max(settings: &BalanceSettings) -> usize {
        let bins = settings.bins().saturating_mul(settings.window as usize);
        let counts = bins.min(CARRIED_MAX) + 1;
        let pieces = bins
            .saturating_mul(settings.tokens as usize)
            .saturating_add(CARRIED_MAX);
        let digits = (pieces / counts).max(1).ilog10() as usize;
        // All counts have one digit more than that, and as many as the rest allows have two.
        let least = 10_usize.saturating_pow(digits as u32);
        let longer = pieces.saturating_sub(counts * least) / (9 * least);
        counts * (digits + 2) + longer.min(counts) + 2
    }

    /// Returns whether no piece was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of pieces up to the last one that was given.
    pub(crate) fn bound(&self) -> u64 {
        let given = self.0.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        given.saturating_add((self.0.len() as u64).saturating_sub(1))
    }

    /// Returns whether piece `number` was given; `None` behind the last one.
    pub(super) fn holds(&self, number: u64) -> Option<bool> {
        let (last, counts) = self.0.split_last()?;
        let mut next = 0_u64;
        for given in counts {
            let waits = next.saturating_add(*given);
            if number <= waits {
                return Some(number < waits);
            }
            next = waits.saturating_add(1);
        }
        (number < next.saturating_add(*last)).then_some(true)
    }
}

/// A set of small numbers, written as hexadecimal digits: bit n % 8 of byte n / 8 is set when n is in the set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Placed(Vec<u8>);

impl Placed {
    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether no number from `n` on is in the set.
    pub fn ends_before(&self, n: u64) -> bool {
        n / 8 >= self.0.len() as u64
    }

    /// Returns a number beyond which none is in the set.
    pub(crate) fn bound(&self) -> u64 {
        8 * self.0.len() as u64
    }

    /// Returns the number after the largest one in the set; 0 of an empty set.
    pub(super) fn end(&self) -> u64 {
        let before = 8 * (self.0.len() as u64).saturating_sub(1);
        let last = self.0.last().map_or(0, |byte| 8 - byte.leading_zeros());
        before + u64::from(last)
    }

    /// Returns whether `n` is in the set.
    pub fn holds(&self, n: u64) -> bool {
        usize::try_from(n / 8)
            .ok()
            .and_then(|byte| self.0.get(byte))
            .is_some_and(|byte| byte >> (n % 8) & 1 == 1)
    }
}

impl FromIterator<bool> for Placed {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Self {
        let mut bytes = Vec::new();
        for (n, bit) in bits.into_iter().enumerate() {
            if bit {
                bytes.resize(n / 8 + 1, 0);
                bytes[n / 8] |= 1 << (n % 8);
            }
        }
        Self(bytes)
    }
}

impl From<Placed> for String {
    fn from(placed: Placed) -> Self {
        let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or_default();
        let bytes = placed.0.iter();
        bytes.flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
    }
}

impl TryFrom<String> for Placed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.as_bytes();
        let digit = |d: &u8| char::from(*d).to_digit(16).map(|n| n as u8);
        let byte = |pair: &[u8]| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?);
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a row of hexadecimal bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_carried_pieces_take_more_bytes_than_the_bound() {
        for (slices, micro_batches, tokens, window) in [
            (64, 4, 16_384, 8),
            (1, 1, 2, 1),
            (2, 2, 100, 3),
            (8, 4, 8192, 8),
            (64, 4, 4096, 256),
        ] {
            let settings = BalanceSettings {
                slices,
                micro_batches,
                tokens,
                window,
                by_cost: false,
            };
            let bins = settings.bins() * window as usize;
            let counts = bins.min(CARRIED_MAX) + 1;
            let pieces = bins * tokens as usize;
            for digits in 1..9 {
                let (short, long) = (10_usize.pow(digits - 1), 10_usize.pow(digits));
                let Some(rest) = pieces.checked_sub(counts * short) else {
                    break;
                };
                let longer = (rest / (long - short)).min(counts);
                let mut all = vec![long as u64; longer];
                all.resize(counts, short as u64);
                let text = serde_json::to_string(&Carried(all)).unwrap();
                let most = Carried::bytes_max(&settings);
                assert!(text.len() <= most, "{} of {most}", text.len());
            }
        }
        let settings = |window| BalanceSettings {
            slices: 64,
            micro_batches: 4,
            tokens: 16_384,
            window,
            by_cost: false,
        };
        assert_eq!(Carried::bytes_max(&settings(8)), 6_410);
        assert!(Carried::bytes_max(&settings(2)) < 3_500);
    }

    #[test]
    fn a_set_comes_back_from_its_digits() {
        let placed: Placed = (0..20).map(|n| n == 1 || n == 9).collect();
        assert_eq!(String::from(placed.clone()), "0202");
        assert_eq!(Placed::try_from("0202".to_owned()).unwrap(), placed);
        assert!(placed.holds(9) && !placed.holds(8) && !placed.holds(1000));
        assert!(placed.ends_before(16) && !placed.ends_before(15));
        assert_eq!((placed.end(), Placed::default().end()), (10, 0));
        assert!(Placed::default().is_empty() && Placed::default().ends_before(0));
        for wrong in ["0", "zz", "+1"] {
            Placed::try_from(wrong.to_owned()).unwrap_err();
        }
    }
}
