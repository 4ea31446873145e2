//! SentencePiece models (`tokenizer.model`, `spiece.model`), encoded as the `sentencepiece` library 0.2.3 does, token
//! for token. Its algorithms and the format of its files were taken from its sources at
//! <https://github.com/google/sentencepiece>; `python/tests/test_sentencepiece.py` compares.
//!
//! - `wire` reads protobuf fields, `model` the content of a file, `definition` makes the tokenizer.json that stands
//!   for it;
//! - `encoder` puts together: `normalizer` with its rules in `charsmap`; the division into pieces by `unigram`, or by
//!   `bpe` with `neighbours`; `output` makes tokens of pieces;
//! - `trie` finds pieces.

mod bpe;
mod charsmap;
mod definition;
mod encoder;
mod model;
mod neighbours;
mod normalizer;
mod output;
mod trie;
mod unigram;
mod wire;

use std::path::Path;

use batchweave_core::ids::Hash;
use bytes::Bytes;

use super::huggingface::{find_end_token, short_name};
use super::{Identity, Tokenizer, TokenizerError, identity};
use encoder::{Encoder, TEXT_MAX};
use model::{Model, Use};

/// Control pieces that an error lists.
const LISTED: usize = 8;

/// Returns whether the bytes are a SentencePiece model, whole or cut short: it begins with this tag, and the bytes of its
/// scores make it invalid as UTF-8, which JSON never is.
pub(super) fn is_model(file: &[u8]) -> bool {
    file.first() == Some(&b'\n') && std::str::from_utf8(file).is_err()
}

pub(super) struct SentencePiece {
    identity: Identity,
    specials: Vec<(String, u32)>,
    /// The definition that the stream keeps.
    definition: Bytes,
    encoder: Encoder,
    /// Decodes as readers of the stream do.
    decoder: tokenizers::Tokenizer,
}

impl SentencePiece {
    /// Makes the tokenizer of the file's content.
    pub(super) fn new(path: &Path, file: &[u8], end_token: &str) -> Result<Self, TokenizerError> {
        let unusable = |detail| TokenizerError::SentencePiece {
            path: path.display().to_string(),
            detail,
        };
        let model = Model::parse(file).map_err(unusable)?;
        let encoder = Encoder::new(model).map_err(unusable)?;
        let model = encoder.model();
        let pieces = (0_u32..).zip(&model.pieces);
        let controls = pieces.filter(|(_, piece)| piece.usage == Use::Control);
        let specials: Vec<(String, u32)> = controls.map(|(id, p)| (p.text.clone(), id)).collect();
        let end = end_token_of(model, &specials, end_token)?;
        let definition = definition::tokenizer_json(model, file, &end.0, end.1)
            .map_err(|e| unusable(e.to_string()))?;
        let decoder = tokenizers::Tokenizer::from_bytes(&definition);
        Ok(Self {
            identity: identity(
                &short_name(path),
                Hash::sha256(definition.as_bytes()),
                model.pieces.len() as u32,
                end.1,
            ),
            specials,
            decoder: decoder.map_err(|e| unusable(e.to_string()))?,
            definition: definition.into(),
            encoder,
        })
    }
}

/// Returns the end token: a control piece, because all others can be made from text, so that a document could end
/// itself. Without a configured one it is the model's own.
fn end_token_of(
    model: &Model,
    controls: &[(String, u32)],
    configured: &str,
) -> Result<(String, u32), TokenizerError> {
    let known = |text: &str| controls.iter().find(|(control, _)| control == text);
    let id = |text: &str| known(text).map(|(_, id)| *id);
    let wanted = match configured {
        "" if known(&model.end).is_some() => &model.end,
        configured => configured,
    };
    let end = find_end_token(wanted, id).ok();
    let found = end.and_then(|end| controls.iter().find(|(_, id)| *id == end));
    found.cloned().ok_or_else(|| {
        let names = controls.iter().take(LISTED);
        let names: Vec<String> = names.map(|(text, _)| format!("{text:?}")).collect();
        let (wanted, names) = match configured {
            "" => ("control piece of a usual end token".to_owned(), names),
            other => (format!("control piece {other:?}"), names),
        };
        let remedy = if names.is_empty() {
            "it has no control piece at all: train it with one, as --eos_id does".to_owned()
        } else {
            format!("write one of its {}: {}", controls.len(), names.join(", "))
        };
        let detail = format!("the SentencePiece model has no {wanted}; {remedy}");
        TokenizerError::EndToken { detail }
    })
}

impl Tokenizer for SentencePiece {
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
        self.encoder
            .encode(text)
            .ok_or_else(|| TokenizerError::Encode {
                bytes: text.len(),
                detail: format!("its normalized text has more than {TEXT_MAX} bytes"),
            })
    }

    fn decode(&self, tokens: &[u32]) -> String {
        self.decoder.decode(tokens, false).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
