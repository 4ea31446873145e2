//! The content of a tiktoken rank file: a line per token with its bytes in base64 and its rank, as in
//! `cl100k_base.tiktoken`, Qwen's `qwen.tiktoken` and Llama 3's `tokenizer.model`.
//!
//! Invariant: every byte is a token, no token or rank is there twice, and ids have no hole but those that special
//! tokens fill. The library would panic, or encode differently, otherwise.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The tokens of a rank file, by rank.
pub(super) type Ranks = BTreeMap<u32, Vec<u8>>;

/// Bytes from the beginning that recognize a rank file.
const RECOGNIZED_BY: usize = 4096;

/// Returns whether the first line of the bytes is one of a rank file.
pub(super) fn are_ranks(file: &[u8]) -> bool {
    let head = file.get(..RECOGNIZED_BY).unwrap_or(file);
    let first = head.split(|byte| *byte == b'\n').find(|l| !l.is_empty());
    first
        .and_then(|line| std::str::from_utf8(line).ok())
        .is_some_and(|line| fields(line).is_some())
}

/// Reads a rank file. `special` has the ids that fill holes between ranks. The error names the line.
pub(super) fn parse(file: &[u8], special: &BTreeMap<String, u32>) -> Result<Ranks, String> {
    let text = std::str::from_utf8(file).map_err(|e| format!("it is not text: {e}"))?;
    let mut ranks = Ranks::new();
    let mut lines: HashMap<Vec<u8>, usize> = HashMap::new();
    for (line, content) in (1..).zip(text.lines()) {
        if content.is_empty() {
            continue;
        }
        let (token, rank) = fields(content).ok_or_else(|| {
            format!("line {line} is not a token in base64, a space and its rank; the file is cut or damaged")
        })?;
        if let Some(first) = lines.insert(token.clone(), line) {
            return Err(format!("line {line} has the token of line {first}"));
        }
        if ranks.insert(rank, token).is_some() {
            return Err(format!(
                "line {line} has the rank {rank}, which an earlier line has"
            ));
        }
    }
    for byte in 0..=u8::MAX {
        if !lines.contains_key([byte].as_slice()) {
            return Err(format!(
                "no line has the byte {byte:#04x} alone, so not every text has tokens; the file is cut or damaged"
            ));
        }
    }
    let special: BTreeSet<u32> = special.values().copied().collect();
    let mut expected = 0;
    for rank in ranks.keys().copied() {
        if let Some(hole) = (expected..rank).find(|id| !special.contains(id)) {
            return Err(format!(
                "no line has the rank {hole}, but a later one is there; the file is cut or damaged, or \
                 tokenizer.special_tokens lacks a token of that id"
            ));
        }
        expected = rank.saturating_add(1);
    }
    Ok(ranks)
}

/// Returns the token and the rank of a line.
fn fields(line: &str) -> Option<(Vec<u8>, u32)> {
    let (base64, decimal) = line.trim_end().split_once(' ')?;
    let token = STANDARD.decode(base64).ok()?;
    let rank = decimal.parse().ok()?;
    // The last value would leave no bound above all ids.
    (!token.is_empty() && rank < u32::MAX).then_some((token, rank))
}
