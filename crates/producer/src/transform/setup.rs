//! Parts of the transform, as configured.

use std::sync::Arc;

use super::chat::{Chat, LossRules, Mapping, PairFields, TemplateError, TemplateFile};
use super::error::TransformError;
use super::{Columns, Kind};
use crate::config::{DocumentKind, LongDocuments, ProducerConfig};
use crate::packing::{ArraySpec, Balancing, Beside, Extra, Shape};
use crate::tokenizer::Tokenizer;

/// Returns the arrays beside the tokens.
pub(super) fn beside(config: &ProducerConfig) -> Beside {
    let packing = &config.packing;
    let mut extras = packing.fields.clone();
    if config.documents().has_template() || !config.source.mask.is_empty() {
        extras.push(Extra::LossMask);
    }
    extras.sort_unstable();
    extras.dedup();
    Beside {
        extras,
        columns: packing.extra.clone(),
        arrays: packing.arrays_beside().to_vec(),
    }
}

/// Returns the settings that decide bins, and what becomes of long documents; `None` in other modes.
pub(super) fn balancing(
    config: &ProducerConfig,
    kind: &Kind,
) -> Result<Option<(Balancing, LongDocuments)>, TransformError> {
    let (Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. }) = kind else {
        return Ok(None);
    };
    if !config.is_balanced() {
        return Ok(None);
    }
    let long = config.packing.balanced.long;
    let cost = config.cost_model()?;
    let arrays = config.packing.arrays_beside().iter();
    let balancing = Balancing {
        settings: config.balance_settings(cost.counts_arrays()),
        cost,
        item_bytes: arrays.map(ArraySpec::item_bytes).collect(),
        split: long == LongDocuments::Split,
        end: tokenizer.identity().end_token,
    };
    Ok(Some((balancing, long)))
}

/// Returns the transform of conversations that `config` names.
pub(super) fn chat(
    config: &ProducerConfig,
    tokenizer: Arc<dyn Tokenizer>,
) -> Result<Chat, TemplateError> {
    let most = config.source.max_document_bytes.bytes();
    let template = TemplateFile::read(config.chat.template.as_ref(), most)?;
    let dated = template.with_date(&config.chat.date);
    let program = config.chat.renderer.as_deref();
    Chat::new(dated, tokenizer, mapping(config), program)
}

/// Returns the fields beside the messages that the configuration names.
fn named_fields(config: &ProducerConfig) -> Vec<String> {
    let chat = &config.chat;
    let columns = Columns::from_config(config).names();
    let own = [
        &chat.messages,
        &chat.tools,
        &chat.prompt,
        &chat.chosen,
        &chat.rejected,
    ];
    columns
        .into_iter()
        .chain(own.into_iter().cloned())
        .collect()
}

fn mapping(config: &ProducerConfig) -> Mapping {
    let table = &config.chat;
    Mapping {
        messages: table.messages.clone(),
        tools: table.tools.clone(),
        role_key: table.role_key.clone(),
        content_key: table.content_key.clone(),
        roles: table.roles.clone(),
        loss: LossRules {
            learn: table.learn.clone(),
            keys: table.loss_keys.clone(),
            ignore: table.ignore.clone(),
            named: named_fields(config),
        },
    }
}

/// Returns the fields of preference pairs; `None` for other modes.
pub(super) fn pair_fields(config: &ProducerConfig, shape: Shape) -> Option<Box<PairFields>> {
    let table = &config.chat;
    let (row_tokens, row_key, row) = if config.is_balanced() {
        (shape.seq_len as usize, "packing.balanced.tokens", "a bin")
    } else {
        (shape.width(), "stream.seq_len", "a row of a pair")
    };
    let fields = || PairFields {
        prompt: table.prompt.clone(),
        chosen: table.chosen.clone(),
        rejected: table.rejected.clone(),
        mapping: mapping(config),
        row_tokens,
        row_key,
        row,
    };
    (config.documents() == DocumentKind::Pair).then(|| Box::new(fields()))
}
