//! The saved position: one constant key with one JSON string, equal on all ranks.
//!
//! Checkpoint libraries flatten, shard and merge nested values by rank; a single string under a constant
//! key is restored unchanged, on any number of ranks.

use std::collections::BTreeMap;

use batchweave_wire::Parent;
use serde::{Deserialize, Serialize};

use crate::ClientError;

const KEY: &str = "batchweave";
const FORMAT: u64 = 1;

/// A position in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    format: u64,
    /// The stream, as UUID.
    pub stream_id: String,
    /// First step not yet trained.
    pub next_step: u64,
    /// The attempt that trained so far.
    pub attempt: Option<String>,
    /// The attempt's number within the job.
    #[serde(default)]
    pub attempt_number: Option<u64>,
    /// Number of data-parallel ranks; informational only.
    pub world: Option<u64>,
}

#[derive(Deserialize)]
struct Head {
    format: u64,
}

impl State {
    /// Returns a state of the current format.
    pub fn new(
        stream_id: String,
        next_step: u64,
        attempt: Option<String>,
        attempt_number: Option<u64>,
        world: Option<u64>,
    ) -> Self {
        Self {
            format: FORMAT,
            stream_id,
            next_step,
            attempt,
            attempt_number,
            world,
        }
    }

    /// Returns the attempt that made this state, for a hello.
    pub(crate) fn parent(&self) -> Option<Parent> {
        let (id, attempt) = self.attempt.clone().zip(self.attempt_number)?;
        let step = self.next_step;
        Some(Parent { attempt, id, step })
    }

    /// Returns the inner text, which a checkpoint mark carries.
    pub fn inner(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns `{"batchweave": "<inner>"}`, to be saved with the model's checkpoint.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&BTreeMap::from([(KEY, self.inner())])).unwrap_or_default()
    }

    /// Parses the text of `to_json`.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let bad = |reason: String| ClientError::BadState { reason };
        let outer: BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|e| bad(format!("is not a JSON object with one string ({e})")))?;
        let inner = outer
            .get(KEY)
            .ok_or_else(|| bad(format!("has no key {KEY:?}")))?;
        let head: Head =
            serde_json::from_str(inner).map_err(|e| bad(format!("is not readable ({e})")))?;
        if head.format != FORMAT {
            return Err(bad(format!(
                "has format {}; this build reads {FORMAT}",
                head.format
            )));
        }
        serde_json::from_str(inner).map_err(|e| bad(format!("is not readable ({e})")))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Formats a stream's id as UUID.
pub(crate) fn uuid(bytes: &[u8; 16]) -> String {
    let parts = [
        &bytes[..4],
        &bytes[4..6],
        &bytes[6..8],
        &bytes[8..10],
        &bytes[10..],
    ];
    parts.map(hex).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_a_round_trip_and_others_are_refused() {
        let state = State::new("id".into(), 7, Some("ab".into()), Some(3), Some(4));
        let text = state.to_json();
        assert_eq!(
            text,
            r#"{"batchweave":"{\"format\":1,\"stream_id\":\"id\",\"next_step\":7,\"attempt\":\"ab\",\"attempt_number\":3,\"world\":4}"}"#
        );
        assert_eq!(State::parse(&text).unwrap(), state);
        let older = text.replace(r#"\"attempt_number\":3,"#, "");
        assert_ne!(older, text);
        assert_eq!(State::parse(&older).unwrap().attempt_number, None);
        for (bad, says) in [
            ("", "not a JSON object"),
            ("{}", "no key"),
            (r#"{"batchweave": 7}"#, "one string"),
            (r#"{"batchweave": "7"}"#, "not readable"),
            (r#"{"batchweave": "{\"format\":2}"}"#, "format 2"),
            (
                r#"{"batchweave": "{\"format\":1,\"stream_id\":\"x\",\"next_step\":-1}"}"#,
                "not readable",
            ),
        ] {
            let error = State::parse(bad).unwrap_err();
            assert_eq!(error.name(), "bad_state");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
