//! The documents that files hold: by `packing.mode`, or by `source.content` where the mode takes several kinds.

use super::{PackingMode, ProducerConfig, SourceContent};

/// The kinds of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentKind {
    Text,
    Ids,
    Conversation,
    /// A preferred and a rejected conversation.
    Pair,
    /// A set of named arrays.
    Sample,
}

impl DocumentKind {
    /// Returns whether the model's template makes the tokens.
    pub fn has_template(self) -> bool {
        matches!(self, Self::Conversation | Self::Pair)
    }
}

impl ProducerConfig {
    /// Returns the documents that files hold.
    pub fn documents(&self) -> DocumentKind {
        match (self.packing.mode, self.source.content) {
            (PackingMode::Opaque, _) => DocumentKind::Sample,
            (PackingMode::Chat, _) | (PackingMode::Balanced, SourceContent::Conversations) => {
                DocumentKind::Conversation
            }
            (PackingMode::Pairs, _) | (PackingMode::Balanced, SourceContent::Pairs) => {
                DocumentKind::Pair
            }
            (_, SourceContent::Ids) => DocumentKind::Ids,
            _ => DocumentKind::Text,
        }
    }
}
