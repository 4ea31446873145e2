//! Stores the tokenizer's file beside the stream, so that anybody who reads the stream can decode it.

use std::sync::Arc;

use batchweave_core::limits::TOKENIZER_BYTES_MAX;
use batchweave_log::store_tokenizer;
use batchweave_store::Store;
use bytes::Bytes;

use crate::config::{ProducerConfig, TokenizerKind};
use crate::transform::DocumentTransform;

/// Stores the file once per stream. A failure is a warning: training does not need the file.
pub(super) async fn store(
    store: &Arc<dyn Store>,
    config: &ProducerConfig,
    transform: &DocumentTransform,
) {
    let path = &config.tokenizer.path;
    if config.tokenizer.kind != TokenizerKind::File || transform.end_token().is_none() {
        return;
    }
    let file = match transform.tokenizer_definition() {
        Some(definition) => Ok(definition),
        None => read(path).await,
    };
    let stored = match file {
        Ok(file) => {
            let stored = store_tokenizer(store, &transform.identity(), file).await;
            stored.map_err(|why| why.to_string())
        }
        Err(why) => Err(why),
    };
    match stored {
        Ok(true) => tracing::info!(file = path, "stored the tokenizer's file beside the stream"),
        Ok(false) => tracing::debug!(file = path, "the tokenizer's file is stored already"),
        Err(why) => tracing::warn!(
            file = path,
            %why,
            "cannot store the tokenizer's file beside the stream: decoding needs `batchweave show STEP --decode \
             --tokenizer FILE` until a start can"
        ),
    }
}

/// Reads the file that was loaded; `store_tokenizer` notices when it has changed since.
async fn read(path: &str) -> Result<Bytes, String> {
    let bytes = tokio::fs::metadata(path)
        .await
        .map_err(|why| why.to_string())?
        .len();
    if bytes > TOKENIZER_BYTES_MAX as u64 {
        return Err(format!(
            "it has {bytes} bytes, more than the {TOKENIZER_BYTES_MAX} that a stream keeps"
        ));
    }
    let read = tokio::fs::read(path).await;
    read.map(Bytes::from).map_err(|why| why.to_string())
}
