//! What the configuration asks for, made ready: the tokenizer, the input list, the settings that a
//! cursor keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::crc::crc32c;
use batchweave_store::OpenOptions;
use futures::FutureExt;
use serde_json::{Map, Value, json};

use crate::config::{PackingConfig, PackingMode, ProducerConfig, TokenizerKind};
use crate::error::RunError;
use crate::forming::Forming;
use crate::run::given;
use crate::sources::{InputList, Looking, Settled, look};
use crate::tokenizer::{self, Choice, Tokenizer};

pub(crate) fn load_tokenizer(config: &ProducerConfig) -> Result<Arc<dyn Tokenizer>, RunError> {
    let table = &config.tokenizer;
    let choice = match table.kind {
        TokenizerKind::Embedded => Choice::Embedded(table.name),
        TokenizerKind::Bytes => Choice::Bytes,
        TokenizerKind::File => Choice::File {
            path: table.path.as_ref(),
            end_token: &table.end_token,
        },
    };
    Ok(tokenizer::load(&choice)?)
}

pub(crate) fn pad_token(
    config: &ProducerConfig,
    tokenizer: &dyn Tokenizer,
) -> Result<u32, RunError> {
    let identity = tokenizer.identity();
    let token = config.packing.pad_token.unwrap_or(identity.end_token);
    if token >= identity.id_bound {
        return Err(RunError::PadToken {
            token,
            bound: identity.id_bound,
        });
    }
    Ok(token)
}

/// Whatever decides the bytes and is not pinned by stream.json, by configuration key. Not
/// `on_bad_document`: no byte before the cursor depends on it, and its errors advise to change it.
pub(crate) fn settings(config: &ProducerConfig, forming: &Forming) -> Map<String, Value> {
    let source = &config.source;
    let pairs = [
        ("producer.index", json!(config.producer.index)),
        ("producer.of", json!(config.producer.of)),
        ("source.format", json!(source.format)),
        ("source.field", json!(source.field)),
        ("source.column", json!(source.column)),
        (
            "source.max_document_bytes",
            json!(source.max_document_bytes),
        ),
        ("tokenizer.end_token", json!(forming.end_token())),
        ("packing.last_batch", json!(config.packing.last_batch)),
        ("packing.pad_token", json!(config.packing.pad_token)),
    ];
    let packing = &config.packing;
    let plain = PackingConfig::default();
    // The cursors of plain rows stay as they are.
    let more = [
        (
            packing.mode != plain.mode,
            "packing.mode",
            json!(packing.mode),
        ),
        (
            packing.look_ahead != plain.look_ahead,
            "packing.look_ahead",
            json!(packing.look_ahead),
        ),
    ];
    let follow = config.source.follow;
    let chat = packing.mode == PackingMode::Chat;
    let names = [
        (follow, "source.follow", json!(true)),
        (chat, "chat.messages", json!(config.chat.messages)),
        (chat, "chat.tools", json!(config.chat.tools)),
    ];
    let more = more
        .into_iter()
        .chain(names)
        .filter(|(differs, _, _)| *differs);
    pairs
        .into_iter()
        .chain(more.map(|(_, key, value)| (key, value)))
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// All input files; of input that grows, those that have settled.
pub(crate) async fn list_inputs(config: &ProducerConfig) -> Result<InputList, RunError> {
    list_new(config, BTreeSet::new()).await
}

/// The same, without those that are `known`.
pub(crate) async fn list_new(
    config: &ProducerConfig,
    known: BTreeSet<String>,
) -> Result<InputList, RunError> {
    let source = &config.source;
    let settled = source.follow.then(|| Settled {
        marker: source.settled_marker.clone(),
        age: source.settled_age.0,
    });
    let own = &config.source.endpoint;
    let endpoint = given(if own.is_empty() {
        &config.store.endpoint
    } else {
        own
    });
    let region = given(&config.store.region);
    let open = move |url: String| {
        let options = OpenOptions {
            endpoint: endpoint.clone(),
            region: region.clone(),
            ..OpenOptions::default()
        };
        async move { batchweave_store::open(&url, &options).await }.boxed()
    };
    let mut list = look(&source.paths, &open, &Looking { known, settled }).await?;
    if source.follow {
        // Producers see files come in another order each: whose a file is goes by its name.
        let who = &config.producer;
        let owner = |name: &str| crc32c(name.as_bytes()) % who.of.max(1);
        list.files.retain(|file| owner(&file.pin.name) == who.index);
    }
    Ok(list)
}
