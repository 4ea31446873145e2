//! Input that grows (`source.follow`): new files join the list at its end, in name order, when they have
//! settled. The grown list is stored before a batch of the new files can be committed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{Epoch, Nonce, ProducerName};
use batchweave_core::inputs::{Chain, LinkId};
use batchweave_log::Committer;
use batchweave_store::Store;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::RunError;
use crate::sources::{InputFinder, InputList, Inputs, store_list};

/// Polls for input files that are not in the list yet.
pub struct NewFilePoller {
    finder: InputFinder,
    interval: Duration,
    store: Arc<dyn Store>,
    producer: ProducerName,
    opening: (Epoch, Nonce),
    inputs: Arc<Inputs>,
    /// The list as it is stored.
    chain: Mutex<Chain>,
    runtime: Handle,
}

impl std::fmt::Debug for NewFilePoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewFilePoller({:?})", self.finder.paths)
    }
}

impl NewFilePoller {
    /// Returns a poller that extends `inputs`, which is stored as `chain`, at this interval. Must be called inside
    /// a runtime.
    pub(crate) fn new(
        (finder, interval): (InputFinder, Duration),
        store: Arc<dyn Store>,
        producer: &Committer,
        (inputs, chain): (Arc<Inputs>, Chain),
    ) -> Self {
        Self {
            finder,
            interval,
            store,
            producer: producer.name().clone(),
            opening: (producer.epoch(), producer.nonce()),
            inputs,
            chain: Mutex::new(chain),
            runtime: Handle::current(),
        }
    }

    /// Blocks the thread until there are more files. Returns the name of the grown list, or `None` when `stop` was
    /// cancelled.
    pub fn wait(&self, stop: &CancellationToken) -> Option<LinkId> {
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    () = tokio::time::sleep(self.interval) => {}
                }
                match self.poll().await {
                    Ok(None) => {}
                    Ok(found) => return found,
                    // Over months some listing fails; the next poll finds the same files.
                    Err(error) => tracing::warn!(%error, "cannot list new input files; retrying"),
                }
            }
        })
    }

    async fn poll(&self) -> Result<Option<LinkId>, RunError> {
        let mut all = InputList::clone(&self.inputs.now());
        let known: BTreeSet<String> = all.files.iter().map(|f| f.pin.name.clone()).collect();
        let new = self.finder.find(known).await?;
        if new.files.is_empty() {
            return Ok(None);
        }
        tracing::info!(files = new.files.len(), "new input files");
        all.files.extend(new.files);
        // When storing fails, the next poll repeats it with the files found then.
        let mut chain = self.chain.lock().await;
        let stored = store_list(&self.store, &self.producer, self.opening, &mut chain, &all);
        let head = stored.await?;
        self.inputs.replace(all);
        Ok(Some(head))
    }
}
