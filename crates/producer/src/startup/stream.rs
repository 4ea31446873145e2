//! The stream that this producer writes to: found with the same parameters, or created.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::{IdError, ProducerName, StreamId};
use batchweave_core::keys;
use batchweave_core::stream::{SliceForm, StreamConfig};
use batchweave_daemon::timestamp;
use batchweave_log::{Creation, LogError, create};
use batchweave_store::Store;

use super::forms;
use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::sources::InputFinder;
use crate::transform::DocumentTransform;

/// Checks that the stream has the configured parameters; creates it if it is absent and `stream.create` is set.
pub(super) async fn open(
    store: &Arc<dyn Store>,
    config: &ProducerConfig,
    transform: &DocumentTransform,
    finder: &InputFinder,
) -> Result<(), RunError> {
    match store.head(keys::STREAM).await {
        Ok(_) => {}
        // A mistyped path must not leave a stream behind, because a stream's parameters are permanent.
        Err(e) if e.is_not_found() && config.stream.create => {
            forms::check(config, &finder.find(BTreeSet::new()).await?)?;
        }
        Err(e) if e.is_not_found() => {
            return Err(LogError::NoStream {
                root: store.root().to_owned(),
            }
            .into());
        }
        Err(e) => return Err(e.into()),
    }
    match create(store, &wanted(config, transform)?).await? {
        Creation::Created(stream) => {
            tracing::info!(id = %stream.stream_id, root = store.root(), "created the stream");
        }
        Creation::Existed(stream) => tracing::debug!(id = %stream.stream_id, "found the stream"),
    }
    Ok(())
}

/// Returns the parameters of the configured stream, with a new id.
pub(super) fn wanted(
    config: &ProducerConfig,
    transform: &DocumentTransform,
) -> Result<StreamConfig, IdError> {
    let producers: Result<Vec<ProducerName>, IdError> =
        config.stream.producers.iter().map(|p| p.parse()).collect();
    let shape = config.shape();
    let form = config.is_balanced().then_some(SliceForm::Balanced);
    Ok(StreamConfig {
        format: StreamConfig::format_of(form),
        stream_id: StreamId::from_random(rand::random()),
        slices: config.stream.slices,
        order: config.stream.order,
        producers: producers?,
        tokenizer: transform.identity(),
        seq_len: shape.seq_len,
        rows_per_slice: shape.rows_per_slice,
        form,
        parent: None,
        created: timestamp::now(),
    })
}
