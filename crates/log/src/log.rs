//! An open log: its folded state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{CommitId, Hash, Nonce, RequestId, Version};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::bundle::AdoptedRecords;
use batchweave_store::Store;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::clock::{Clock, TokioClock};
use crate::copies::bundle_state::Bundles;
use crate::copies::state::Snapshots;
use crate::read::shared_fold::SharedFold;

/// How to open a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Seed of commit ids, nonces and jitter. Draw it from the system's generator: two writers with the same
    /// seed could take each other's records for their own.
    pub seed: [u8; 32],
    /// Whether to write snapshots and index segments when they are due, which needs permission to put.
    pub write_snapshots: bool,
    /// The clock by which the log waits.
    pub clock: Arc<dyn Clock>,
    /// Folds records in place of the manifest; for simulations.
    pub shared_fold: Option<Arc<dyn SharedFold>>,
}

impl LogOptions {
    /// Returns options that write snapshots, by the runtime's clock.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            write_snapshots: true,
            clock: TokioClock::shared(),
            shared_fold: None,
        }
    }
}

/// A record whose put may have happened, or may still happen.
#[derive(Debug, Clone)]
pub(crate) struct OpenPut {
    pub(crate) version: Version,
    pub(crate) bytes: Bytes,
}

/// A record at which both this fold and a second one stopped, or that the log does not hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    pub(crate) version: Version,
    pub(crate) hash: Hash,
    pub(crate) until: Duration,
}

/// The log of one stream, folded up to some version.
#[derive(Debug)]
pub struct Log {
    /// The store, with failed reads retried.
    pub(crate) store: Arc<dyn Store>,
    /// The same store, without retries.
    pub(crate) raw: Arc<dyn Store>,
    pub(crate) manifest: Manifest,
    pub(crate) rng: StdRng,
    pub(crate) snapshots: Snapshots,
    pub(crate) bundles: Bundles,
    /// Records that were taken from bundles.
    pub(crate) adopted: AdoptedRecords,
    /// One of them that the log did not hold when it was compared, and when to fold the log again for it.
    pub(crate) contradicted: Option<Stopped>,
    pub(crate) window: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shared_fold: Option<Arc<dyn SharedFold>>,
    /// Consecutive polls that found no new record.
    pub(crate) idle_polls: u32,
    /// Our last put, while its outcome is unknown.
    pub(crate) open_put: Option<OpenPut>,
    /// The snapshot with which this fold began; `None` when it began at version 0.
    pub(crate) base: Option<Version>,
    /// The snapshot of which a step was compared with its record.
    pub(crate) compared_base: Option<Version>,
    /// Whether this fold is checked by a second one when it may be wrong; a second fold is not.
    pub(crate) self_checks: bool,
    /// The record at which a second fold stopped too.
    pub(crate) stopped: Option<Stopped>,
    pub(crate) reopened: u64,
    pub(crate) repairs_due: Duration,
    /// Repairs that existed when the log was last folded again for one of them.
    pub(crate) known_repairs: BTreeSet<Version>,
}

impl Log {
    pub(crate) fn new(store: Arc<dyn Store>, manifest: Manifest, options: &LogOptions) -> Self {
        let mut log = Self {
            raw: Arc::clone(&store),
            store,
            manifest,
            rng: StdRng::from_seed(options.seed),
            snapshots: Snapshots::new(options.write_snapshots),
            bundles: Bundles::default(),
            adopted: AdoptedRecords::default(),
            contradicted: None,
            window: 1,
            clock: Arc::clone(&options.clock),
            shared_fold: options.shared_fold.clone(),
            idle_polls: 0,
            open_put: None,
            base: None,
            compared_base: None,
            self_checks: true,
            stopped: None,
            reopened: 0,
            repairs_due: Duration::ZERO,
            known_repairs: BTreeSet::new(),
        };
        log.draw_repairs_due();
        log
    }

    /// Returns another log in the same state, for a second reader.
    #[must_use]
    pub fn fork(&self, options: &LogOptions) -> Self {
        let mut log = Self::new(Arc::clone(&self.store), self.manifest.clone(), options);
        log.raw = Arc::clone(&self.raw);
        log.base = self.base;
        log
    }

    /// Returns the state folded from the records so far.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The store of the log, without retries.
    #[allow(clippy::misnamed_getters)] // The retrying one is private.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.raw
    }

    /// Draws a request id for an administrative entry.
    pub fn new_request(&mut self) -> RequestId {
        RequestId(self.rng.random())
    }

    /// Draws a random number, for the names of data objects.
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
