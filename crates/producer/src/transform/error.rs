//! Reasons why the configured transform of documents cannot be set up.

use batchweave_core::balance::CostError;
use batchweave_core::tgb::LayoutError;
use batchweave_daemon::Exit;

use super::chat::TemplateError;
use super::function::FunctionError;
use crate::tokenizer::TokenizerError;

/// The reason why the tokenizer, the chat template or the arrays of the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransformError {
    /// The tokenizer cannot be loaded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The function of the user cannot be used.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The pad token is not in the vocabulary.
    #[error(
        "packing.pad_token: {token} is not below {bound}, the size of the vocabulary; name one of its tokens"
    )]
    PadToken {
        /// The token in packing.pad_token.
        token: u32,
        /// All tokens of the vocabulary are below this.
        bound: u32,
    },
    /// The cost of documents cannot be computed.
    #[error("packing.balanced.cost: {0}")]
    Cost(#[from] CostError),
    /// Slices of this shape cannot be stored.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl TransformError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Tokenizer(TokenizerError::Embedded { .. }) => Exit::Failure,
            Self::Function(why) => why.exit(),
            _ => Exit::Config,
        }
    }
}
