//! From a unit to the content of a document: arrays, the tokens of a conversation or pair, token ids, or the tokens of a
//! text.

use super::arrays::sample;
use super::chat::{Chat, PairFields};
use super::text::decode;
use super::{DocumentTransform, Kind, again, ids};
use crate::config::SourceContent;
use crate::packing::Content;
use crate::sources::{Reason, Unit, UnitKind};
use crate::tokenizer::Tokenizer;

impl DocumentTransform {
    /// Returns the content and its size in bytes.
    pub(super) fn content(
        &self,
        field: &str,
        unit: Unit,
        bytes: u64,
        mask: Option<Vec<bool>>,
    ) -> Result<Option<(Content, u64)>, Reason> {
        match &self.kind {
            Kind::Arrays(specs) => {
                sample(specs, unit).map(|s| s.map(|s| (Content::Sample(s), bytes)))
            }
            Kind::Chat { chat, pairs, .. } => {
                let made = conversation(chat, pairs.as_deref(), unit)?;
                Ok(made.map(|made| (made, bytes)))
            }
            Kind::Text {
                tokenizer,
                begin,
                content: SourceContent::Ids,
                ..
            } => {
                let identity = tokenizer.identity();
                let vocabulary = ids::Vocabulary {
                    id_bound: identity.id_bound,
                    begin_token: *begin,
                    end_token: identity.end_token,
                };
                let ids = ids::content(field, vocabulary, unit, mask)?;
                Ok(ids.map(|ids| (ids, bytes)))
            }
            Kind::Text {
                tokenizer, begin, ..
            } => text(tokenizer.as_ref(), *begin, field, unit),
        }
    }
}

/// Returns the tokens of a conversation, or of a pair where its fields are given.
fn conversation(
    chat: &Chat,
    pairs: Option<&PairFields>,
    unit: Unit,
) -> Result<Option<Content>, Reason> {
    match (unit.kind, unit.raw) {
        (UnitKind::Json | UnitKind::Row, Ok(raw)) => {
            let raw = again::without_mark_of_utf8(unit.place.unit == 0, raw);
            match pairs {
                Some(fields) => chat.pair(&raw, fields),
                None => chat.turns(&raw),
            }
        }
        (_, Ok(_)) => Err(Reason::NotConversations),
        (_, Err(reason)) => Err(reason),
    }
}

/// Returns the tokens of a text, and its size in bytes.
fn text(
    tokenizer: &dyn Tokenizer,
    begin: Option<u32>,
    field: &str,
    unit: Unit,
) -> Result<Option<(Content, u64)>, Reason> {
    let first = unit.place.unit == 0;
    let encode = |text: &str| (tokenizer.encode(text), text.len() as u64);
    let Some((encoded, bytes)) = decode(unit.kind, field, first, &unit.raw?, encode)? else {
        return Ok(None);
    };
    let mut tokens = encoded.map_err(Reason::tokenizer)?;
    if let Some(begin) = begin {
        tokens.insert(0, begin);
    }
    Ok(Some((Content::Tokens(tokens), bytes)))
}
