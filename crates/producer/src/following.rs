//! Input that grows (`source.follow`): files join the list at its end, in name order, when they have
//! settled; and the list that has them is stored before a batch of theirs can be committed.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, ProducerName};
use batchweave_core::keys;
use batchweave_store::Store;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::config::ProducerConfig;
use crate::cursor::State;
use crate::error::RunError;
use crate::prepare::list_new;
use crate::resume::pin;
use crate::sources::{InputList, Inputs, SourceError};

/// Looks for files that the list lacks.
pub struct Follower {
    config: ProducerConfig,
    store: Arc<dyn Store>,
    producer: ProducerName,
    inputs: Arc<Inputs>,
    runtime: Handle,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({:?})", self.config.source.paths)
    }
}

impl Follower {
    /// For the list `inputs`, which it lets grow; made inside a runtime.
    pub(crate) fn new(
        config: &ProducerConfig,
        store: Arc<dyn Store>,
        producer: ProducerName,
        inputs: Arc<Inputs>,
    ) -> Self {
        Self {
            config: config.clone(),
            store,
            producer,
            inputs,
            runtime: Handle::current(),
        }
    }

    /// Waits until there are more files, in a blocking thread; the hash of the list that has them, or
    /// none when `stop` was cancelled.
    pub fn wait(&self, stop: &CancellationToken) -> Option<Hash> {
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    () = tokio::time::sleep(self.config.source.follow_every.0) => {}
                }
                match self.look().await {
                    Ok(None) => {}
                    Ok(found) => return found,
                    // Whoever runs for months sees a listing fail: nothing is lost by the next look.
                    Err(error) => tracing::warn!(%error, "looking for new input files again"),
                }
            }
        })
    }

    async fn look(&self) -> Result<Option<Hash>, RunError> {
        let mut all = InputList::clone(&self.inputs.now());
        let known: BTreeSet<String> = all.files.iter().map(|f| f.pin.name.clone()).collect();
        let new = list_new(&self.config, known).await?;
        if new.files.is_empty() {
            return Ok(None);
        }
        tracing::info!(files = new.files.len(), "new input files");
        all.files.extend(new.files);
        let hash = pin(&self.store, &self.producer, &all).await?;
        self.inputs.replace(all);
        Ok(Some(hash))
    }
}

/// The list that `cursor` counts in, gone on with what `listed` has beyond it; and that list's hash.
pub(crate) async fn resumed(
    store: &Arc<dyn Store>,
    producer: &ProducerName,
    cursor: &Cursor,
    listed: InputList,
) -> Result<(InputList, Option<Hash>), RunError> {
    let Some(state) = State::from_cursor(cursor, producer.as_str())? else {
        return Ok((listed, None));
    };
    let key = keys::inputs(producer, state.inputs);
    let stored = store.get(&key, keys::bytes_max(&key)).await?;
    let pins = InputList::pins_from_json(&stored).map_err(|why| {
        let differences = vec![format!(
            "{key}, the stored list of them, can't be read: {why}"
        )];
        SourceError::Changed { differences }
    })?;
    let list = listed.resumed(pins, state.at.file)?;
    Ok((list, Some(state.inputs)))
}
