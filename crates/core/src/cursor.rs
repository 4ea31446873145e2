//! Where a producer stands in its input: JSON that only its producer understands.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::Hash;
use crate::limits::CURSOR_BYTES_MAX;

/// A cursor. `Null` is the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub Value);

impl Cursor {
    /// The canonical bytes: compact, keys sorted (serde_json's map is ordered).
    pub fn bytes(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    /// SHA-256 of the canonical bytes; entries name the cursor before them by it.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.bytes())
    }

    /// Whether it fits in an entry.
    pub fn fits(&self) -> bool {
        self.bytes().len() <= CURSOR_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_does_not_depend_on_key_order() {
        let a: Cursor = serde_json::from_str(r#"{"b": 1, "a": [2, null]}"#).unwrap();
        let b: Cursor = serde_json::from_str(r#"{"a":[2,null],"b":1}"#).unwrap();
        assert_eq!(a.hash(), b.hash());
        assert_ne!(a.hash(), Cursor::default().hash());
        assert_eq!(Cursor::default().bytes(), b"null");
    }
}
