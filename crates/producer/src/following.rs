//! Input that grows (`source.follow`): files join the list at its end, in name order, when they have
//! settled; and the list that has them is stored before a batch of theirs can be committed.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::{Epoch, Nonce, ProducerName};
use batchweave_core::inputs::{Chain, LinkId};
use batchweave_log::Committer;
use batchweave_store::Store;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::prepare::list_new;
use crate::resume::store_list;
use crate::sources::{InputList, Inputs};

/// Looks for files that the list lacks.
pub struct Follower {
    config: ProducerConfig,
    store: Arc<dyn Store>,
    producer: ProducerName,
    opening: (Epoch, Nonce),
    inputs: Arc<Inputs>,
    /// The list as it is stored.
    chain: Mutex<Chain>,
    runtime: Handle,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({:?})", self.config.source.paths)
    }
}

impl Follower {
    /// For the list `inputs`, stored as `chain`, which it lets grow; made inside a runtime.
    pub(crate) fn new(
        config: &ProducerConfig,
        store: Arc<dyn Store>,
        producer: &Committer,
        (inputs, chain): (Arc<Inputs>, Chain),
    ) -> Self {
        Self {
            config: config.clone(),
            store,
            producer: producer.name().clone(),
            opening: (producer.epoch(), producer.nonce()),
            inputs,
            chain: Mutex::new(chain),
            runtime: Handle::current(),
        }
    }

    /// Waits until there are more files, in a blocking thread; the name of the list that has them, or
    /// none when `stop` was cancelled.
    pub fn wait(&self, stop: &CancellationToken) -> Option<LinkId> {
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

    async fn look(&self) -> Result<Option<LinkId>, RunError> {
        let mut all = InputList::clone(&self.inputs.now());
        let known: BTreeSet<String> = all.files.iter().map(|f| f.pin.name.clone()).collect();
        let new = list_new(&self.config, known).await?;
        if new.files.is_empty() {
            return Ok(None);
        }
        tracing::info!(files = new.files.len(), "new input files");
        all.files.extend(new.files);
        // A growth that fails is tried again with what there is then.
        let mut chain = self.chain.lock().await;
        let stored = store_list(&self.store, &self.producer, self.opening, &mut chain, &all);
        let head = stored.await?;
        self.inputs.replace(all);
        Ok(Some(head))
    }
}
