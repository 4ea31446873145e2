//! `stage`: the shape of the batches that follow, where it is another one than that of the batch before.

use serde::{Deserialize, Serialize};

use crate::WireError;
use crate::bytes::Builder;
use crate::hello::BALANCED;

/// The word in a hello's `forms` of a client that knows stages.
pub const STAGES: &str = "stages";

/// The body of a `stage` message, as JSON. A reader passes over keys that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Its number; 0 is the shape of stream.json.
    pub id: u64,
    /// Its name; empty for the shape of stream.json.
    pub name: String,
    pub rows_per_slice: u32,
    pub seq_len: u32,
    /// How slices differ from plain rows, as in the name of the stream's tokenizer.
    pub form: String,
}

impl Stage {
    /// Returns whether its slices have bins instead of rows, as their form says first.
    pub fn is_balanced(&self) -> bool {
        self.form.split(", ").next() == Some(BALANCED)
    }

    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        let json = serde_json::to_vec(self).map_err(|e| WireError::body("stage", e.to_string()))?;
        Builder::new("stage", kind).raw(&json).finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(body).map_err(|e| WireError::body("stage", e.to_string()))
    }
}
