//! The tokenizer of a transform: loading by the configuration, the padding token, and the check that it still gives
//! the same tokens.

use std::sync::Arc;

use super::TransformError;
use crate::config::{DocumentKind, ProducerConfig, TokenizerKind};
use crate::tokenizer::{self, Choice, RankSettings, Tokenizer};

/// Texts to check the tokenizer with; the second one takes the exact path of o200k.
const CANARY: [&str; 2] = ["A good document, \n  no. 1234.", "It'\u{17f} another."];

pub(super) fn tokens_of(tokenizer: &dyn Tokenizer) -> Vec<Option<Vec<u32>>> {
    CANARY.map(|text| tokenizer.encode(text).ok()).into()
}

pub(super) fn load_tokenizer(
    config: &ProducerConfig,
) -> Result<Arc<dyn Tokenizer>, TransformError> {
    let table = &config.tokenizer;
    let choice = match table.kind {
        TokenizerKind::Embedded => Choice::Embedded(table.name),
        TokenizerKind::Bytes => Choice::Bytes,
        TokenizerKind::None => Choice::None {
            vocab_size: table.vocab_size,
            end_token: table.end_token_id.unwrap_or_default(),
        },
        TokenizerKind::File => Choice::File {
            path: table.path.as_ref(),
            settings: RankSettings {
                pattern: &table.pattern,
                special_tokens: &table.special_tokens,
            },
            end_token: &table.end_token,
        },
    };
    Ok(tokenizer::load(&choice)?)
}

/// Returns the token before each document. Logs a warning where the tokenizer would add one to a text by itself, and
/// the configuration says nothing.
pub(super) fn begin_token(
    config: &ProducerConfig,
    tokenizer: &dyn Tokenizer,
) -> Result<Option<u32>, TransformError> {
    let table = &config.tokenizer;
    if table.begin_token_id.is_some() {
        return Ok(table.begin_token_id);
    }
    if let Some(text) = &table.begin_token {
        return Ok(tokenizer::begin_token(text, tokenizer)?);
    }
    if let Some(warning) = missing_begin_token(config) {
        tracing::warn!("{warning}");
    }
    Ok(None)
}

/// Returns a warning where the tokenizer's own files put a token before each text, and `tokenizer.begin_token` does not
/// say whether documents begin with it. Ids that are ready made may have it.
pub(crate) fn missing_begin_token(config: &ProducerConfig) -> Option<String> {
    let table = &config.tokenizer;
    let asks = table.kind == TokenizerKind::File
        && table.begin_token.is_none()
        && config.documents() == DocumentKind::Text;
    let (token, file) = asks.then(|| tokenizer::own_begin_token(table.path.as_ref()))??;
    Some(format!(
        "tokenizer.begin_token: is not given, and {file} puts {token:?} before each text, which these documents lack; \
         write tokenizer.begin_token = {token:?}, or \"\" if the model is to see none"
    ))
}

pub(super) fn pad_token(
    config: &ProducerConfig,
    tokenizer: &dyn Tokenizer,
) -> Result<u32, TransformError> {
    let identity = tokenizer.identity();
    let (token, bound) = (
        config.packing.pad_token.unwrap_or(identity.end_token),
        identity.id_bound,
    );
    if token < bound {
        Ok(token)
    } else {
        Err(TransformError::PadToken { token, bound })
    }
}
