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
use crate::sources::{InputFinder, InputList, Inputs, NamedPaths, SourcePlan, store_list};

/// The input list as it is stored; the sources of a producer share it.
pub struct StoredInputs {
    store: Arc<dyn Store>,
    producer: ProducerName,
    opening: (Epoch, Nonce),
    inputs: Arc<Inputs>,
    /// The links of the list.
    chain: Mutex<Chain>,
}

impl StoredInputs {
    /// Returns `inputs`, which is stored as `chain`.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        producer: &Committer,
        (inputs, chain): (Arc<Inputs>, Chain),
    ) -> Self {
        Self {
            store,
            producer: producer.name().clone(),
            opening: (producer.epoch(), producer.nonce()),
            inputs,
            chain: Mutex::new(chain),
        }
    }
}

/// Polls for input files that are not in the list yet: all of `[source]`, or those of one source.
pub struct NewFilePoller {
    finder: InputFinder,
    /// The source of several.
    source: Option<(NamedPaths, Arc<SourcePlan>)>,
    interval: Duration,
    list: Arc<StoredInputs>,
    runtime: Handle,
}

impl std::fmt::Debug for NewFilePoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewFilePoller({:?})", self.finder.paths)
    }
}

impl NewFilePoller {
    /// Returns a poller that extends `list` at this interval. Must be called inside a runtime.
    pub(crate) fn new(
        finder: InputFinder,
        source: Option<(NamedPaths, Arc<SourcePlan>)>,
        interval: Duration,
        list: Arc<StoredInputs>,
    ) -> Self {
        Self {
            finder,
            source,
            interval,
            list,
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
        // Held to the end: another source may grow, too.
        let mut chain = self.list.chain.lock().await;
        let mut all = InputList::clone(&self.list.inputs.now());
        let known: BTreeSet<String> = all.files.iter().map(|f| f.pin.name.clone()).collect();
        let mut new = match &self.source {
            Some((paths, _)) => self.finder.find_source(paths, known).await?,
            None => self.finder.find(known).await?,
        };
        if new.files.is_empty() {
            return Ok(None);
        }
        let source = self.source.as_ref().map(|(paths, _)| paths.name.as_str());
        tracing::info!(files = new.files.len(), source, "new input files");
        let before = all.files.len();
        let mut order = None;
        if let Some((_, plan)) = &self.source {
            for file in &mut new.files {
                file.pin.growth = plan.growths();
            }
            all.files.extend(new.files);
            order = Some((plan, plan.plan_growth(&mut all, before).await?));
        } else {
            all.files.extend(new.files);
        }
        // When storing fails, the next poll repeats it with the files found then.
        let StoredInputs {
            store,
            producer,
            opening,
            inputs,
            ..
        } = self.list.as_ref();
        let head = store_list(store, producer, *opening, &mut chain, &all).await?;
        inputs.replace(all);
        if let Some((plan, order)) = order {
            plan.grow(order);
        }
        Ok(Some(head))
    }
}
