//! Parts of the transform, as configured.

use std::sync::Arc;

use super::Columns;
use super::chat::{Chat, LossRules, Mapping, PairFields, TemplateError, TemplateFile};
use crate::config::{PackingMode, ProducerConfig};
use crate::packing::{Beside, Extra, Shape};
use crate::tokenizer::Tokenizer;

/// Returns the arrays beside the tokens.
pub(super) fn beside(config: &ProducerConfig) -> Beside {
    let packing = &config.packing;
    let mut extras = packing.fields.clone();
    if packing.mode.has_template() || !config.source.mask.is_empty() {
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
    let fields = || PairFields {
        prompt: table.prompt.clone(),
        chosen: table.chosen.clone(),
        rejected: table.rejected.clone(),
        mapping: mapping(config),
        row_tokens: shape.width(),
    };
    (config.packing.mode == PackingMode::Pairs).then(|| Box::new(fields()))
}
