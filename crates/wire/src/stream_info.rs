//! `stream_info`: the answer to `describe`: the stream's shape and its tokenizer.

use serde::{Deserialize, Serialize};

use crate::bytes::Builder;
use crate::{Stage, WireError};

/// The body of a `stream_info` message, as JSON. A reader passes over keys that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// The stream's id, as UUID.
    pub stream: String,
    pub slices: u32,
    pub seq_len: u32,
    pub rows_per_slice: u32,
    pub tokenizer: Tokenizer,
    /// The id of the daemon's run, 32 hexadecimal digits, where its sessions take reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<String>,
    /// The stages that the log has, those to come included. Omitted when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
}

/// The tokenizer that made the stream's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokenizer {
    /// The name in `stream.json`, with the form of the slices.
    pub name: String,
    /// The fingerprint in `stream.json`, 64 hexadecimal digits.
    pub fingerprint: String,
    /// The vocabulary that needs no file: `bytes`, `gpt2`, `cl100k_base`, `o200k_base`.
    pub builtin: Option<String>,
    /// The bound of all ids, where it is known.
    pub vocabulary: Option<u32>,
    /// Size of the `tokenizer.json` file whose descriptor the message carries.
    pub file_bytes: Option<u64>,
    /// The reason for people, when the file is missing.
    pub missing: Option<String>,
}

impl StreamInfo {
    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        let json =
            serde_json::to_vec(self).map_err(|e| WireError::body("stream_info", e.to_string()))?;
        Builder::new("stream_info", kind).raw(&json).finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(body).map_err(|e| WireError::body("stream_info", e.to_string()))
    }
}
