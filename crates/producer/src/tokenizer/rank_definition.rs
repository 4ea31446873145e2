//! A rank file with its settings as one `tokenizer.json`: what the stream keeps, so that every reader decodes it as
//! any other file, and whose hash is the fingerprint. It has all that decides about tokens: ranks, the merges that
//! follow from them, the pattern, the special tokens and, as the end of its template, the end token.
//!
//! The bytes are part of the stored format: another order of fields would be another fingerprint.

use std::collections::{BTreeMap, HashMap};

use serde_json::to_string;

use super::json_parts::{AddedToken, end_template};
use super::ranks::Ranks;

/// Returns the special tokens in the order of their ids, as JSON with commas between them.
fn added_tokens(special: &BTreeMap<String, u32>) -> Result<String, serde_json::Error> {
    let mut by_id: Vec<(&String, &u32)> = special.iter().collect();
    by_id.sort_by_key(|(_, id)| **id);
    let added = |(content, id): (&'_ String, &u32)| to_string(&AddedToken::special(*id, content));
    let added: Vec<String> = by_id.into_iter().map(added).collect::<Result<_, _>>()?;
    Ok(added.join(","))
}

/// Returns the definition. `end` is the text of the end token, which `special` has, and `end_id` its id.
pub(super) fn tokenizer_json(
    ranks: &Ranks,
    pattern: &str,
    special: &BTreeMap<String, u32>,
    end: &str,
    end_id: u32,
) -> Result<String, serde_json::Error> {
    let characters = byte_characters();
    let spelt = |bytes: &[u8]| -> String {
        let character = |byte: &u8| characters.get(usize::from(*byte));
        bytes.iter().filter_map(character).collect()
    };
    let vocab: BTreeMap<String, u32> = (ranks.iter())
        .map(|(rank, token)| (spelt(token), *rank))
        .collect();
    let by_token: HashMap<&[u8], u32> = (ranks.iter())
        .map(|(rank, token)| (token.as_slice(), *rank))
        .collect();
    let merges: Vec<String> = (ranks.values())
        .filter_map(|token| parents(token, &by_token))
        .map(|(left, right)| format!("{} {}", spelt(left), spelt(right)))
        .collect();
    let added = added_tokens(special)?;
    let template = end_template(end, end_id)?;
    let pattern = to_string(pattern)?;
    let vocab = to_string(&vocab)?;
    let merges = to_string(&merges)?;
    let byte_level =
        r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}"#;
    Ok(format!(
        r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{added}],"normalizer":null,
"pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{{"Regex":{pattern}}},"behavior":"Isolated","invert":false}},{byte_level}]}},
"post_processor":{template},
"decoder":{byte_level},
"model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":true,"vocab":{vocab},"merges":{merges}}}}}"#
    ))
}

/// Returns the characters that stand for bytes in a byte-level tokenizer.json.
fn byte_characters() -> Vec<char> {
    let mut next = 0xff;
    (0_u8..=u8::MAX)
        .filter_map(|byte| {
            if matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
                return Some(char::from(byte));
            }
            next += 1;
            char::from_u32(next)
        })
        .collect()
}

/// Returns the two parts that a token is merged from: the rest after all merges of lower ranks. `None` for a byte,
/// and for a token that only a whole piece of the text becomes.
fn parents<'a>(token: &'a [u8], ranks: &HashMap<&[u8], u32>) -> Option<(&'a [u8], &'a [u8])> {
    let own = ranks.get(token)?;
    let mut borders: Vec<usize> = (0..=token.len()).collect();
    while borders.len() > 3 {
        let rank = |at: &usize| {
            let whole = token.get(*borders.get(*at)?..*borders.get(at + 2)?)?;
            ranks.get(whole).filter(|rank| *rank < own)
        };
        let pairs = 0..borders.len() - 2;
        let first = pairs.filter(|at| rank(at).is_some()).min_by_key(rank)?;
        borders.remove(first + 1);
    }
    (borders.len() == 3).then(|| token.split_at_checked(*borders.get(1)?))?
}
