//! The settings by which the files of the input are read.

use crate::config::{DocumentKind, PackingMode, ProducerConfig};
use crate::sources::{ConversationColumns, Portion, ReadContent, ReadOptions, TextField};
use crate::transform::Columns;
use crate::transform::chat::fields_beside;

/// Returns the settings by which all units of the input are read; lists of ids are divided at `end_token`.
pub(crate) fn read_options(config: &ProducerConfig, end_token: Option<u32>) -> ReadOptions {
    let function = !config.transform.function.is_empty();
    ReadOptions {
        format: config.source.format,
        content: read_content(config, end_token),
        column: config.source.column.clone(),
        arrays: packing_arrays(config),
        beside: if function {
            // They are in what the function returns.
            Vec::new()
        } else {
            Columns::from_config(config).names()
        },
        members: if function {
            config.function_fields(true)
        } else {
            shard_members(config)
        },
        max_document_bytes: config.source.max_document_bytes.bytes(),
        decompress_memory: config.source.decompress_memory.bytes(),
        inbox: config.source.inbox,
        sparse: config.split.every > 1,
        share: Portion::ALL,
    }
}

fn read_content(config: &ProducerConfig, end_token: Option<u32>) -> ReadContent {
    if !config.transform.function.is_empty() {
        return ReadContent::Rows(ConversationColumns {
            wanted: config.function_fields(false),
            optional: Vec::new(),
            content_key: String::new(),
            verbatim: true,
            setting: "transform.fields",
        });
    }
    match config.documents() {
        DocumentKind::Conversation => ReadContent::Conversations(ConversationColumns {
            wanted: vec![config.chat.messages.clone()],
            optional: optional_columns(&[&config.chat.tools]),
            content_key: config.chat.content_key.clone(),
            verbatim: false,
            setting: "chat.messages",
        }),
        DocumentKind::Pair => ReadContent::Conversations(ConversationColumns {
            wanted: vec![config.chat.chosen.clone(), config.chat.rejected.clone()],
            optional: optional_columns(&[&config.chat.prompt, &config.chat.tools]),
            content_key: config.chat.content_key.clone(),
            verbatim: false,
            setting: "chat.chosen and chat.rejected",
        }),
        DocumentKind::Ids => ReadContent::Ids {
            end_token: end_token.unwrap_or_default(),
        },
        _ => ReadContent::Documents,
    }
}

/// Returns the columns that are read if a file has them: these, and those that must not be there without a word.
fn optional_columns(known: &[&String]) -> Vec<String> {
    let mut columns: Vec<String> = known.iter().map(|name| (*name).clone()).collect();
    columns.extend(fields_beside().map(str::to_owned));
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Returns the names of the arrays of a sample; none if documents are not samples.
fn packing_arrays(config: &ProducerConfig) -> Vec<String> {
    let opaque = config.packing.mode == PackingMode::Opaque;
    let arrays = config.packing.arrays.iter().filter(|_| opaque);
    arrays.map(|array| array.source().to_owned()).collect()
}

/// Returns the fields of a tar's samples that are read.
fn shard_members(config: &ProducerConfig) -> Vec<String> {
    let content = match config.documents() {
        DocumentKind::Sample => return packing_arrays(config),
        DocumentKind::Conversation | DocumentKind::Pair => "json",
        DocumentKind::Text | DocumentKind::Ids => TextField::new(&config.source.field).member,
    };
    let beside = Columns::from_config(config).names();
    [content.to_owned()].into_iter().chain(beside).collect()
}
