//! The content of a built-in vocabulary. Its SHA-256 is the vocabulary's fingerprint, so that a receiver can check it
//! as it checks a `tokenizer.json` file.

use super::Builtin;

/// GPT-2's pattern without possessive quantifiers, which matches the same texts.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const CL100K: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

impl Builtin {
    /// Returns the pattern that splits texts before their parts become tokens; empty for `bytes`.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Bytes => "",
            Self::Gpt2 => GPT2,
            Self::Cl100k => CL100K,
            Self::O200k => O200K,
        }
    }

    /// Returns the number of tokens that stand for bytes, with ids from 0 on; above them are the special tokens.
    pub fn ranks(self) -> u32 {
        match self {
            Self::Bytes => 256,
            Self::Gpt2 => 50_256,
            Self::Cl100k => 100_256,
            Self::O200k => 199_998,
        }
    }
}

/// Returns the content of a vocabulary: the pattern, then the bytes of each token by ascending id, each followed by
/// their number in 4 bytes.
pub fn content<'a>(pattern: &str, tokens: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut all = pattern.as_bytes().to_vec();
    for bytes in tokens {
        all.extend_from_slice(bytes);
        all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    }
    all
}
