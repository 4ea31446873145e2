//! `producer.limit` and `[split]`: the part of the input that a run takes.

use std::fmt;
use std::str::FromStr;

use batchweave_core::order::{FileSplit, Limit, Split};
use batchweave_daemon::config::Problem;
use serde::{Deserialize, Serialize};

use super::ProducerConfig;
use crate::sources::{InputList, Place};

/// The end of a run over all producers, as "2T tokens", "5M documents" or "1000 batches"; empty for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RunLimit {
    #[default]
    None,
    Tokens(u64),
    Documents(u64),
    Batches(u64),
}

const FORM: &str =
    "must be a number and a unit, as in \"2T tokens\", \"5M documents\" or \"1000 batches\"";

impl FromStr for RunLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (number, unit) = match (words.next(), words.next(), words.next()) {
            (None, ..) => return Ok(Self::None),
            (Some(number), Some(unit), None) => (number, unit),
            _ => return Err(FORM.to_owned()),
        };
        let number = amount(number).ok_or(FORM)?;
        match unit {
            "tokens" => Ok(Self::Tokens(number)),
            "documents" => Ok(Self::Documents(number)),
            "batches" => Ok(Self::Batches(number)),
            _ => Err(FORM.to_owned()),
        }
    }
}

/// Returns the number that `text` says with a factor of 1,000 (K), a million (M), a billion (B or G) or a trillion (T).
fn amount(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (whole, rest) = text.split_at(split);
    let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &rest[digits.len()..] {
        "" => 0,
        "K" | "k" => 3,
        "M" => 6,
        "B" | "G" => 9,
        "T" => 12,
        _ => return None,
    };
    let decimals = match digits {
        "" => "",
        digits => digits.strip_prefix('.')?,
    };
    let missing = u32::try_from(decimals.len()).ok()?;
    let number: u64 = format!("{whole}{decimals}").parse().ok()?;
    let factor = 10_u64.pow(u32::checked_sub(scale, missing)?);
    number.checked_mul(factor).filter(|number| *number > 0)
}

impl TryFrom<String> for RunLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for RunLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Tokens(n) => write!(f, "{n} tokens"),
            Self::Documents(n) => write!(f, "{n} documents"),
            Self::Batches(n) => write!(f, "{n} batches"),
        }
    }
}

impl From<RunLimit> for String {
    fn from(limit: RunLimit) -> Self {
        limit.to_string()
    }
}

impl RunLimit {
    /// Returns the limit of the sampler of producer `index` of `of`.
    pub(crate) fn of_sampler(self, index: u32, of: u32) -> Option<Limit> {
        match self {
            Self::Tokens(n) => Some(Limit::Tokens(share(n, index, of))),
            Self::Documents(n) => Some(Limit::Documents(share(n, index, of))),
            Self::None | Self::Batches(_) => None,
        }
    }

    /// Returns the number of batches of producer `index` of `of`.
    pub(crate) fn batches(self, index: u32, of: u32) -> Option<u64> {
        match self {
            Self::Batches(n) => Some(share(n, index, of)),
            _ => None,
        }
    }
}

/// Returns the share of producer `index` of `of`: the first ones have one more.
fn share(all: u64, index: u32, of: u32) -> u64 {
    let index = u64::from(index);
    let of = u64::from(of.max(1));
    all / of + u64::from(index < all % of)
}

impl ProducerConfig {
    pub(super) fn check_part(&self, problems: &mut Vec<Problem>) {
        let counted = matches!(
            self.producer.limit,
            RunLimit::Tokens(_) | RunLimit::Documents(_)
        );
        if counted && self.sources.is_empty() && self.source.shuffle.is_none() {
            let message = "in tokens or documents needs [[sources]]: make source.paths one of them, or limit the batches";
            problems.push(Problem::new("producer.limit", message));
        }
        if self.split.every == 1 {
            let message =
                "must be 0 for no split, or at least 2: 1 would leave nothing to train on";
            problems.push(Problem::new("split.every", message));
        }
    }
}

/// A side of the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// All documents that are not held out.
    #[default]
    Train,
    /// The documents that are held out.
    Valid,
}

/// The table `[split]`: a part of the input that is held out for evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SplitConfig {
    /// One of this number of documents is held out; 0 holds none out.
    pub every: u64,
    pub side: Side,
}

impl SplitConfig {
    /// Returns the selection of this side; `None` without a split.
    pub(crate) fn selection(self) -> Option<Selection> {
        Some(Selection {
            split: Split::new(self.every)?,
            side: self.side,
            file: None,
        })
    }
}

/// Selects the documents of one side.
#[derive(Debug, Clone)]
pub struct Selection {
    split: Split,
    side: Side,
    /// The split of the file that was asked for last.
    file: Option<(u32, FileSplit)>,
}

impl Selection {
    /// Returns whether the document at `place`, with the byte at which its line begins or the number of its row, is on
    /// this side.
    pub(crate) fn takes(&mut self, list: &InputList, place: Place) -> bool {
        let file = match self.file {
            Some((number, file)) if number == place.file => file,
            _ => {
                let file = list.files.get(place.file as usize);
                let split = self.split.file(file.map_or("", |file| &file.pin.name));
                self.file = Some((place.file, split));
                split
            }
        };
        // Only lines have a byte, and the first one has both numbers 0.
        let at = if place.offset > 0 {
            place.offset
        } else {
            place.unit
        };
        file.holds_out(at) == (self.side == Side::Valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        for (text, limit) in [
            ("", RunLimit::None),
            ("2T tokens", RunLimit::Tokens(2_000_000_000_000)),
            ("1.5B tokens", RunLimit::Tokens(1_500_000_000)),
            ("12_000 documents", RunLimit::Documents(12_000)),
            (" 3k  batches ", RunLimit::Batches(3000)),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text}");
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        for bad in [
            "2T",
            "tokens",
            "0 tokens",
            "-1 tokens",
            "1.5 tokens",
            "2X tokens",
            "2T words",
            "1 000 tokens",
            "99999999T tokens",
            "1..5M tokens",
            "1.M.2 tokens",
        ] {
            assert_eq!(bad.parse::<RunLimit>(), Err(FORM.to_owned()), "{bad}");
        }
    }

    #[test]
    fn producers_divide_a_limit_without_a_rest() {
        let shares = (0..3).map(|index| RunLimit::Batches(11).batches(index, 3));
        assert_eq!(shares.collect::<Vec<_>>(), [Some(4), Some(4), Some(3)]);
        assert_eq!(
            RunLimit::Tokens(11).of_sampler(2, 3),
            Some(Limit::Tokens(3))
        );
    }
}
