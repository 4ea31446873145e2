//! The tokenizer of a transform: loading by the configuration, the padding token, and the check that it still gives
//! the same tokens.

use std::sync::Arc;

use super::TransformError;
use crate::config::{ProducerConfig, TokenizerKind};
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
