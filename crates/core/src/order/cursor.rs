//! The sampler's place: four numbers and the given amount of each source, the number of the mixture, and the changes of
//! the mixture and the numbers of passes that hold within the documents that were taken already.

use serde::{Deserialize, Serialize};

use crate::limits::NUMBER_MAX;

/// A position in the documents of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Position {
    /// Passes that are complete.
    pub pass: u64,
    /// Groups of this pass that are complete.
    pub group: u64,
    /// Windows of the group that are complete.
    pub window: u64,
    /// Documents of the window that are given.
    pub number: u64,
}

impl Position {
    /// Returns the beginning of `pass`.
    pub fn pass(pass: u64) -> Self {
        Self {
            pass,
            ..Self::default()
        }
    }

    /// Returns whether this is the place of a source that has ended: before its first document, or behind some passes.
    pub(super) fn begins_pass(self) -> bool {
        self == Self::pass(self.pass)
    }

    /// Returns the position after the document at this one.
    #[must_use]
    pub fn after(self) -> Self {
        Self {
            number: self.number + 1,
            ..self
        }
    }
}

/// The state of one source; stored as a list of five numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "[u64; 5]", try_from = "[u64; 5]")]
pub struct SourceState {
    /// The position of its next document.
    pub position: Position,
    /// Tokens or documents that it has given under the mixture in force.
    pub given: u64,
}

impl From<SourceState> for [u64; 5] {
    fn from(state: SourceState) -> Self {
        let at = state.position;
        [at.pass, at.group, at.window, at.number, state.given]
    }
}

impl TryFrom<[u64; 5]> for SourceState {
    type Error = String;

    fn try_from(numbers: [u64; 5]) -> Result<Self, String> {
        if let Some(large) = numbers.iter().find(|n| **n >= NUMBER_MAX) {
            return Err(format!(
                "{large} in the state of a source is not below 2^53"
            ));
        }
        let [pass, group, window, number, given] = numbers;
        let position = Position {
            pass,
            group,
            window,
            number,
        };
        Ok(Self { position, given })
    }
}

/// The state of a sampler between two documents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerState {
    /// The sources, in the order of the configuration.
    pub at: Vec<SourceState>,
    /// Number of the mixture in force; 0 is that of the configuration.
    pub mix: u64,
    /// Documents and tokens that all sources have given since the start.
    pub total: [u64; 2],
    /// Documents after this place that were taken already when the batch of the stored state was complete.
    pub ahead: u64,
    /// Changes of the mixture among those: the number of each, and the total of documents at which it takes effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<(u64, u64)>,
    /// The passes of each source by which those documents were taken: each list holds until that total of documents.
    /// Empty where batches have none of those documents, so that their order may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<(u64, Vec<u64>)>,
}

impl SamplerState {
    /// Returns the state at the start of `sources` sources.
    pub fn start(sources: usize) -> Self {
        Self {
            at: vec![SourceState::default(); sources],
            ..Self::default()
        }
    }

    /// Returns the stored form.
    pub fn to_json(&self) -> serde_json::Value {
        // Lists of numbers always have a JSON form.
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::Cursor;
    use crate::limits::{CURSOR_BYTES_MAX, SOURCES_MAX};

    fn state(numbers: [u64; 5], sources: usize, total: [u64; 2]) -> SamplerState {
        SamplerState {
            at: vec![numbers.try_into().unwrap(); sources],
            mix: 12,
            total,
            ahead: 41,
            next: Vec::new(),
            passes: Vec::new(),
        }
    }

    /// Ten trillion tokens of a source of a petabyte, in blocks of 512 KiB and windows of 128 MiB.
    #[test]
    fn a_state_is_small() {
        let large = state(
            [12, 8_388_608, 127, 1_310_720, 10_000_000_000_000],
            3,
            [10_000_000_000, 30_000_000_000_000],
        );
        let bytes = Cursor(large.to_json()).bytes();
        assert!(bytes.len() <= 64 + 48 * 3, "{}", bytes.len());
        let back: SamplerState = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(back, large);
    }

    #[test]
    fn the_largest_state_fits_in_a_cursor_beside_settings() {
        let largest = state([NUMBER_MAX - 1; 5], SOURCES_MAX, [NUMBER_MAX - 1; 2]);
        let bytes = Cursor(largest.to_json()).bytes();
        assert!(bytes.len() < CURSOR_BYTES_MAX / 2, "{}", bytes.len());
    }

    #[test]
    fn only_states_are_read() {
        let read = |text: &str| serde_json::from_str::<SamplerState>(text);
        let good = r#"{"ahead":1,"at":[[0,1,2,3,4]],"mix":0,"total":[5,6]}"#;
        assert_eq!(read(good).unwrap().at[0].given, 4);
        for (from, to) in [
            ("3,4]", "3]"),
            ("4]", "9007199254740992]"),
            ("\"mix\":0", "\"mix\":-1"),
            ("\"mix\"", "\"mixture\""),
            ("[5,6]", "[5]"),
        ] {
            read(&good.replace(from, to)).unwrap_err();
        }
    }
}
