//! An open log: the folded state and how far it reaches.

use std::collections::VecDeque;
use std::sync::Arc;

use batchweave_core::ids::{CommitId, Nonce, RequestId};
use batchweave_core::manifest::record::SnapshotHint;
use batchweave_core::manifest::{Manifest, Segment};
use batchweave_store::Store;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::clock::{Clock, TokioClock};

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
}

impl LogOptions {
    /// Writes snapshots, by the runtime's clock.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            write_snapshots: true,
            clock: TokioClock::shared(),
        }
    }
}

/// The log of one stream, folded up to some version.
#[derive(Debug)]
pub struct Log {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) manifest: Manifest,
    pub(crate) rng: StdRng,
    pub(crate) snapshots: Snapshots,
    pub(crate) window: u64,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What is known of snapshots and of the segments that they imply.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub(crate) write: bool,
    /// Newest snapshot read or written.
    pub(crate) newest: Option<SnapshotHint>,
    pub(crate) newest_bytes: u64,
    /// Bytes of records since.
    pub(crate) record_bytes: u64,
    /// Segments that became full since, not known to be stored.
    pub(crate) unstored: VecDeque<Arc<Segment>>,
    /// Segments that were read lately.
    pub(crate) cache: VecDeque<Arc<Segment>>,
    /// The write under way.
    pub(crate) writing: Option<tokio::task::JoinHandle<Option<(SnapshotHint, u64)>>>,
}

impl Log {
    pub(crate) fn new(store: Arc<dyn Store>, manifest: Manifest, options: &LogOptions) -> Self {
        Self {
            store,
            manifest,
            rng: StdRng::from_seed(options.seed),
            snapshots: Snapshots {
                write: options.write_snapshots,
                ..Snapshots::default()
            },
            window: 1,
            clock: Arc::clone(&options.clock),
        }
    }

    /// The folded state.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
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
