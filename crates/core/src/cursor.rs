//! The position of a producer in its input: JSON that only this producer understands.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::Hash;
use crate::limits::CURSOR_BYTES_MAX;

/// A cursor; `Null` is the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub Value);

impl Cursor {
    /// Returns the canonical bytes: compact JSON, the keys of every object sorted by their bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = String::new();
        write(&self.0, &mut out);
        out.into_bytes()
    }

    /// SHA-256 of the canonical bytes; entries name the cursor before them by it.
    pub fn hash(&self) -> Hash {
        Hash::sha256(&self.bytes())
    }

    /// Whether it fits in an entry.
    pub fn fits(&self) -> bool {
        self.bytes().len() <= CURSOR_BYTES_MAX
    }
}

/// Returns the levels of nested lists and objects in a value; 0 for a number or a text.
pub(crate) fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or_default(),
        _ => 0,
    }
}

// Written out here because serde_json's own order of keys depends on a feature that any crate of a build
// may enable. The depth is bounded: serde_json refuses to parse beyond 128 levels.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, item)) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(item, out);
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_does_not_depend_on_key_order() {
        let a: Cursor = serde_json::from_str(r#"{"b": 1, "a": [2, null, "x\n"]}"#).unwrap();
        let b: Cursor = serde_json::from_str(r#"{"a":[2,null,"x\u000a"],"b":1}"#).unwrap();
        assert_eq!(a.hash(), b.hash());
        assert_eq!(a.bytes(), br#"{"a":[2,null,"x\n"],"b":1}"#);
        assert_ne!(a.hash(), Cursor::default().hash());
        assert_eq!(Cursor::default().bytes(), b"null");
    }
}
