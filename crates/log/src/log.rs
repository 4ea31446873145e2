//! An open log: the folded state and how far it reaches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{CommitId, Hash, Nonce, RequestId, Version};
use batchweave_core::manifest::Manifest;
use batchweave_store::Store;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::clock::{Clock, TokioClock};
use crate::copies::state::Snapshots;
use crate::read::shared_fold::SharedFold;

/// How to open a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Feeds commit ids, nonces and jitter. Draw it from the system's generator; two writers with
    /// one seed could take each other's records for their own.
    pub seed: [u8; 32],
    /// Whether to write snapshots and index segments when they are due. Needs put permission.
    pub write_snapshots: bool,
    /// What everything that waits asks for the time.
    pub clock: Arc<dyn Clock>,
    /// Folds in place of the manifest itself; for simulations.
    pub shared_fold: Option<Arc<dyn SharedFold>>,
}

impl LogOptions {
    /// Writes snapshots, by the runtime's clock.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            write_snapshots: true,
            clock: TokioClock::shared(),
            shared_fold: None,
        }
    }
}

/// A record whose put may have happened, or may yet.
#[derive(Debug, Clone)]
pub(crate) struct OpenPut {
    pub(crate) version: Version,
    pub(crate) bytes: Bytes,
}

/// A record at which this fold stopped though it was made again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    pub(crate) version: Version,
    pub(crate) hash: Hash,
    pub(crate) until: Duration,
}

/// The log of one stream, folded up to some version.
#[derive(Debug)]
pub struct Log {
    /// Tries reads again.
    pub(crate) store: Arc<dyn Store>,
    /// Does not.
    pub(crate) raw: Arc<dyn Store>,
    pub(crate) manifest: Manifest,
    pub(crate) rng: StdRng,
    pub(crate) snapshots: Snapshots,
    pub(crate) window: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shared_fold: Option<Arc<dyn SharedFold>>,
    /// Looks in a row at a next version that was not there.
    pub(crate) idle_looks: u32,
    /// Our last put, while its outcome is open.
    pub(crate) open_put: Option<OpenPut>,
    /// The snapshot with which this fold began; none when it began at version 0.
    pub(crate) base: Option<Version>,
    /// Whether it folds again when it may be wrong; a second fold does not.
    pub(crate) doubts: bool,
    /// The record at which a second fold stopped, too.
    pub(crate) stopped: Option<Stopped>,
    pub(crate) reopened: u64,
    pub(crate) repairs_due: Duration,
    /// Repairs that were there when the log was folded again for one of them.
    pub(crate) heeded: BTreeSet<Version>,
}

impl Log {
    pub(crate) fn new(store: Arc<dyn Store>, manifest: Manifest, options: &LogOptions) -> Self {
        let mut log = Self {
            raw: Arc::clone(&store),
            store,
            manifest,
            rng: StdRng::from_seed(options.seed),
            snapshots: Snapshots::new(options.write_snapshots),
            window: 1,
            clock: Arc::clone(&options.clock),
            shared_fold: options.shared_fold.clone(),
            idle_looks: 0,
            open_put: None,
            base: None,
            doubts: true,
            stopped: None,
            reopened: 0,
            repairs_due: Duration::ZERO,
            heeded: BTreeSet::new(),
        };
        log.draw_repairs_due();
        log
    }

    /// Another log that stands where this one does, for whoever reads beside it.
    #[must_use]
    pub fn fork(&self, options: &LogOptions) -> Self {
        let mut log = Self::new(Arc::clone(&self.store), self.manifest.clone(), options);
        log.raw = Arc::clone(&self.raw);
        log.base = self.base;
        log
    }

    /// The folded state.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The store below.
    #[allow(clippy::misnamed_getters)] // The one that tries again is ours alone.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.raw
    }

    /// A new request id for an administrative entry.
    pub fn new_request(&mut self) -> RequestId {
        RequestId(self.rng.random())
    }

    /// A random number, for the names of data objects.
    pub fn random(&mut self) -> u64 {
        self.rng.random()
    }

    pub(crate) fn new_commit(&mut self) -> CommitId {
        CommitId(self.rng.random())
    }

    pub(crate) fn new_nonce(&mut self) -> Nonce {
        Nonce(self.rng.random())
    }
}
