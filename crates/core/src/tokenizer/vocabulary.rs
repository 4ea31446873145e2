//! The bound of the ids in a `tokenizer.json` file, read without holding the vocabulary in memory.

use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Returns one more than the largest id in the bytes of a `tokenizer.json` file: a count would be wrong, because ids
/// may have gaps. `None` for other bytes, or without any id.
pub fn id_bound(file: &[u8]) -> Option<u32> {
    let file: File = serde_json::from_slice(file).ok()?;
    let added = file.added_tokens.iter().flatten().map(|token| token.id);
    let model = file.model.and_then(|model| model.vocab);
    let largest = model.and_then(|vocab| vocab.largest);
    largest.into_iter().chain(added).max()?.checked_add(1)
}

#[derive(Deserialize)]
struct File {
    added_tokens: Option<Vec<AddedToken>>,
    model: Option<Model>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
}

#[derive(Deserialize)]
struct Model {
    vocab: Option<Vocab>,
}

/// The largest id of a vocabulary: a map from token to id, or a list.
struct Vocab {
    largest: Option<u32>,
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Ids)
    }
}

struct Ids;

impl<'de> Visitor<'de> for Ids {
    type Value = Vocab;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from token to id, or a list of tokens")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
        let mut largest = None;
        while let Some((IgnoredAny, id)) = map.next_entry::<IgnoredAny, u32>()? {
            largest = largest.max(Some(id));
        }
        Ok(Vocab { largest })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab, A::Error> {
        let mut count = 0_u32;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count = count.saturating_add(1);
        }
        let largest = count.checked_sub(1);
        Ok(Vocab { largest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_id_counts_wherever_it_is() {
        for (file, bound) in [
            (
                r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}}"#,
                Some(8),
            ),
            (
                r#"{"added_tokens": [{"id": 40, "content": "<s>"}], "model": {"vocab": {"a": 0}}}"#,
                Some(41),
            ),
            (
                r#"{"added_tokens": [], "model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2]]}}"#,
                Some(2),
            ),
            (r#"{"added_tokens": [{"id": 4294967295}]}"#, None),
            (r#"{"model": {"vocab": {}}}"#, None),
            ("{}", None),
            ("[", None),
        ] {
            assert_eq!(id_bound(file.as_bytes()), bound, "{file}");
        }
    }
}
