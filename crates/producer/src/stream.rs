//! The stream that this producer writes to: found with the same parameters, or made.

use std::sync::Arc;

use batchweave_core::ids::{IdError, ProducerName, StreamId};
use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_daemon::timestamp;
use batchweave_log::{Creation, LogError, create};
use batchweave_store::Store;

use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::forming::Forming;
use crate::prepare::list_inputs;

/// Makes sure that the stream is there and as configured.
pub(crate) async fn open(
    store: &Arc<dyn Store>,
    config: &ProducerConfig,
    forming: &Forming,
) -> Result<(), RunError> {
    match store.head(keys::STREAM).await {
        Ok(_) => {}
        // A mistyped path must not leave a stream behind: its parameters are for ever.
        Err(e) if e.is_not_found() && config.stream.create => drop(list_inputs(config).await?),
        Err(e) if e.is_not_found() => {
            return Err(LogError::NoStream {
                root: store.root().to_owned(),
            }
            .into());
        }
        Err(e) => return Err(e.into()),
    }
    let producers: Result<Vec<ProducerName>, IdError> =
        config.stream.producers.iter().map(|p| p.parse()).collect();
    let wanted = StreamConfig {
        format: 1,
        stream_id: StreamId::from_random(rand::random()),
        slices: config.stream.slices,
        order: config.stream.order,
        producers: producers?,
        tokenizer: forming.identity(),
        seq_len: config.stream.seq_len,
        rows_per_slice: config.stream.rows_per_slice,
        created: timestamp::now(),
    };
    match create(store, &wanted).await? {
        Creation::Created(stream) => {
            tracing::info!(id = %stream.stream_id, root = store.root(), "created the stream");
        }
        Creation::Existed(stream) => tracing::debug!(id = %stream.stream_id, "found the stream"),
    }
    Ok(())
}
