//! Input that grows (`source.follow`): new files join the list at its end, in name order, when they have
//! settled. The grown list is stored before a batch of the new files can be committed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{Epoch, Nonce, ProducerName};
use batchweave_core::inputs::{Chain, LinkId};
use batchweave_log::Committer;
use batchweave_store::Store;
use prometheus::IntGauge;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::RunError;
use crate::sources::inbox::{Inboxes, SharedGauge};
use crate::sources::{
    InputFinder, InputList, Inputs, NamedPaths, SourceError, SourcePlan, store_list,
};

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
        inputs: Arc<Inputs>,
        chain: Chain,
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

/// Polls for input files of a source that are not in the list yet.
pub struct NewFilePoller {
    finder: InputFinder,
    paths: NamedPaths,
    plan: Arc<SourcePlan>,
    interval: Duration,
    list: Arc<StoredInputs>,
    /// Its inboxes with the files that were read, once they are open.
    inboxes: Mutex<Option<Inboxes>>,
    /// The number of their folders that are left out.
    bad_folders: std::sync::Mutex<SharedGauge>,
    /// The writers of inboxes after whose end there are no more files; empty for none.
    writers: Vec<String>,
    runtime: Handle,
}

/// The result of waiting for more files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The list of this name has more files.
    Grown(LinkId),
    /// There will be no more.
    Ended,
    /// A stop was requested.
    Stopped,
}

impl std::fmt::Debug for NewFilePoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewFilePoller({:?})", self.paths.paths)
    }
}

impl NewFilePoller {
    /// Returns a poller that extends `list` at this interval. Must be called inside a runtime.
    pub(crate) fn new(
        finder: InputFinder,
        paths: NamedPaths,
        plan: Arc<SourcePlan>,
        interval: Duration,
        writers: Vec<String>,
        list: Arc<StoredInputs>,
        bad_folders: &IntGauge,
    ) -> Self {
        Self {
            finder,
            paths,
            plan,
            interval,
            list,
            inboxes: Mutex::new(None),
            bad_folders: std::sync::Mutex::new(SharedGauge::new(bad_folders.clone())),
            writers,
            runtime: Handle::current(),
        }
    }

    /// Blocks the thread until there are more files, or there will be no more, or `stop` was cancelled. Fails when an
    /// inbox cannot be what it was.
    pub fn wait(&self, stop: &CancellationToken) -> Result<Waited, SourceError> {
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(Waited::Stopped),
                    () = tokio::time::sleep(self.interval) => {}
                }
                match self.poll().await {
                    Ok(None) => {}
                    Ok(Some(waited)) => return Ok(waited),
                    Err(RunError::Source(why @ SourceError::Inbox { .. })) => return Err(why),
                    // Over months some listing fails; the next poll finds the same files.
                    Err(error) => tracing::warn!(%error, "cannot list new input files; retrying"),
                }
            }
        })
    }

    async fn poll(&self) -> Result<Option<Waited>, RunError> {
        let mut inboxes = self.inboxes.lock().await;
        if self.paths.inbox && inboxes.is_none() {
            let list = self.list.inputs.now();
            *inboxes = Some(self.finder.inboxes(&self.paths, &list).await?);
        }
        let mut new = match inboxes.as_mut() {
            Some(inboxes) => self.poll_inboxes(inboxes).await?,
            None => self.find().await?,
        };
        if new.files.is_empty() {
            let ended = inboxes.as_ref().is_some_and(|own| own.ended(&self.writers));
            return Ok(ended.then_some(Waited::Ended));
        }
        let joined = new.files.clone();
        let head = self.extend(&mut new).await?;
        if let Some(inboxes) = inboxes.as_mut() {
            inboxes.joined(&joined);
        }
        Ok(Some(Waited::Grown(head)))
    }

    /// Finds the files of inboxes that are not in the list. Fails when no folder can be read, and more is to come.
    async fn poll_inboxes(&self, inboxes: &mut Inboxes) -> Result<InputList, SourceError> {
        let files = inboxes.poll().await?;
        if files.is_empty() && !inboxes.ended(&self.writers) {
            inboxes.check()?;
        }
        let bad = inboxes.report();
        let mut gauge = self.bad_folders.lock();
        if let Ok(gauge) = &mut gauge {
            gauge.set(bad);
        }
        Ok(InputList::of(files))
    }

    /// Finds the files that are not in the list.
    async fn find(&self) -> Result<InputList, SourceError> {
        let all = self.list.inputs.now();
        let known: BTreeSet<String> = all.files.iter().map(|f| f.pin.name.clone()).collect();
        self.finder.find_source(&self.paths, known).await
    }

    /// Stores the list with the files of `new` at its end.
    async fn extend(&self, new: &mut InputList) -> Result<LinkId, RunError> {
        // Held to the end: another source may grow, too.
        let mut chain = self.list.chain.lock().await;
        let mut all = InputList::clone(&self.list.inputs.now());
        let source = self.paths.pin_name();
        tracing::info!(files = new.files.len(), source, "new input files");
        let before = all.files.len();
        for file in &mut new.files {
            file.pin.source.clone_from(&source);
        }
        all.files.append(&mut new.files);
        let order = self.plan.plan_growth(&mut all, before).await?;
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
        if let Some(order) = order {
            self.plan.grow(order);
        }
        Ok(head)
    }
}
