//! tiktoken rank files, encoded by tiktoken's own code. A rank file has neither the pattern that splits texts nor
//! the special tokens, so the configuration names both.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use batchweave_core::ids::Hash;
use bytes::Bytes;
use tiktoken_rs::CoreBPE;

use super::huggingface::{find_end_token, short_name};
use super::{Identity, RankSettings, Tokenizer, TokenizerError, identity};
use super::{rank_definition, ranks};

/// The patterns that have names, as tiktoken spells them.
const PATTERNS: [(&str, &str); 3] = [
    (
        "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    ),
    (
        "cl100k_base",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    ),
    (
        "o200k_base",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// A text that a pattern must split without leaving out any of it: tiktoken drops what no match covers.
const SAMPLE: &str = "A good document's no. 1234,\n\n  ½ été \u{e9} e\u{301} 数据 اليوم ไทย \u{1f600}\u{200d}\t\r\n\
                      <|x|> _a_ #$%&*()[]{}/\\\u{0}\u{a0}\u{2028}\u{3000} end  ";

pub(super) struct RankFile {
    identity: Identity,
    specials: Vec<(String, u32)>,
    /// The definition that the stream keeps.
    definition: Bytes,
    inner: CoreBPE,
}

impl RankFile {
    /// Makes the tokenizer of the file's content.
    pub(super) fn new(
        path: &Path,
        file: &[u8],
        settings: RankSettings<'_>,
        end_token: &str,
    ) -> Result<Self, TokenizerError> {
        if settings.pattern.is_empty() {
            let name = path.display();
            return Err(bad_pattern(format!(
                "must be given for {name}, a rank file of tiktoken: \"cl100k_base\", \"o200k_base\", \"gpt2\", or \
                 the regular expression of the model"
            )));
        }
        let special = settings.special_tokens;
        let ranks = ranks::parse(file, special).map_err(|e| damaged(path, e))?;
        check_special_tokens(special, &ranks)?;
        let end = find_end_token(end_token, |token| special.get(token).copied())
            .map_err(|_| no_end_token(end_token, ranks.len()))?;
        let inner = encoder(path, &ranks, special, settings.pattern)?;
        let pattern = regular_expression(settings.pattern);
        let specials: Vec<(String, u32)> = special.clone().into_iter().collect();
        let end_text =
            (specials.iter().find(|(_, id)| *id == end)).map_or("", |(text, _)| text.as_str());
        let definition = rank_definition::tokenizer_json(&ranks, pattern, special, end_text, end)
            .map_err(|e| damaged(path, e.to_string()))?;
        let largest = ranks.keys().chain(special.values()).max();
        let bound = largest.map_or(0, |id| id.saturating_add(1));
        Ok(Self {
            identity: identity(
                &short_name(path),
                Hash::sha256(definition.as_bytes()),
                bound,
                end,
            ),
            specials,
            definition: definition.into(),
            inner,
        })
    }
}

fn damaged(path: &Path, detail: String) -> TokenizerError {
    TokenizerError::RankFile {
        path: path.display().to_string(),
        detail,
    }
}

fn bad_pattern(detail: String) -> TokenizerError {
    TokenizerError::Pattern { detail }
}

/// Returns the regular expression of a pattern that is configured by its name, or as it is.
fn regular_expression(pattern: &str) -> &str {
    let named = PATTERNS.iter().find(|(name, _)| *name == pattern);
    named.map_or(pattern, |(_, expression)| expression)
}

/// Makes tiktoken's encoder. Fails where the configured pattern leaves out a part of texts.
fn encoder(
    path: &Path,
    ranks: &ranks::Ranks,
    special: &BTreeMap<String, u32>,
    pattern: &str,
) -> Result<CoreBPE, TokenizerError> {
    let ranks = ranks.iter().map(|(rank, token)| (token.clone(), *rank));
    let specials = special.clone().into_iter().collect();
    let made =
        CoreBPE::new(ranks.collect(), specials, regular_expression(pattern)).map_err(|e| {
            bad_pattern(format!(
                "{pattern:?} is neither a name nor a regular expression: {e}; write \
             \"cl100k_base\", \"o200k_base\", \"gpt2\" or the one of the model"
            ))
        })?;
    let covered = made.decode_bytes(&made.encode_ordinary(SAMPLE));
    if covered.map_err(|e| damaged(path, e.to_string()))? != SAMPLE.as_bytes() {
        return Err(bad_pattern(format!(
            "{pattern:?} leaves out characters of texts, which would be lost; write one that matches all, as that of \
             the model does"
        )));
    }
    Ok(made)
}

/// Returns the error for special tokens without `end_token`, where the first free id is `free`.
fn no_end_token(end_token: &str, free: usize) -> TokenizerError {
    let wanted = if end_token.is_empty() {
        "tokenizer.special_tokens has none of the usual end tokens".to_owned()
    } else {
        format!("tokenizer.special_tokens has no {end_token:?}")
    };
    TokenizerError::EndToken {
        detail: format!(
            "{wanted}; a rank file has no special tokens, so write the one that ends a document there, for \
             example {{ \"<|endoftext|>\" = {free} }}"
        ),
    }
}

fn check_special_tokens(
    special: &BTreeMap<String, u32>,
    ranks: &ranks::Ranks,
) -> Result<(), TokenizerError> {
    let mut ids = HashSet::new();
    for (text, id) in special {
        let why = if text.is_empty() {
            "has an empty text"
        } else if ranks.contains_key(id) {
            "has an id that is a rank of the file"
        } else if !ids.insert(id) {
            "has the id of another one"
        } else if *id == u32::MAX {
            "has an id without one above it"
        } else {
            continue;
        };
        let detail = format!(
            "{text:?} = {id} {why}; write the texts and ids of the model, which are above the {} ranks of its file",
            ranks.len()
        );
        return Err(TokenizerError::SpecialTokens { detail });
    }
    Ok(())
}

impl Tokenizer for RankFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn specials(&self) -> &[(String, u32)] {
        &self.specials
    }

    fn definition(&self) -> Option<Bytes> {
        Some(self.definition.clone())
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.inner.encode_ordinary(text))
    }

    fn decode(&self, tokens: &[u32]) -> String {
        let bytes = self.inner.decode_bytes(tokens).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests;
