//! Snapshots and index segments, written beside the log by whoever crosses a boundary; nobody waits
//! for them. Segments first, then the snapshot: a snapshot implies its segments.

use std::sync::Arc;

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::{
    SNAPSHOT_GROWTH, SNAPSHOT_RECORD_BYTES, SNAPSHOT_VERSIONS_MAX, SNAPSHOTS_KEPT,
};
use batchweave_core::manifest::record::SnapshotHint;
use batchweave_core::manifest::{Folded, Segment};
use batchweave_store::{Create, Store, StoreError};
use bytes::Bytes;
use tracing::{debug, warn};

use crate::Log;
use crate::open::list_snapshots;

/// Segments kept in memory by a log that writes no snapshots: those that others are still writing.
const UNSTORED_MAX: usize = 64;

impl Log {
    /// Counts what was folded towards the next snapshot.
    pub(crate) fn note_folded(&mut self, record_bytes: u64, folded: &Folded) {
        self.snapshots.record_bytes += record_bytes;
        for segment in &folded.segments {
            self.snapshots.unstored.push_back(Arc::new(segment.clone()));
        }
        if !self.snapshots.write {
            while self.snapshots.unstored.len() > UNSTORED_MAX {
                self.snapshots.unstored.pop_front();
            }
        }
    }

    /// Begins to write a snapshot if one is due at the last folded version. `ours`: our record is
    /// the one that crossed the boundary, so nobody else is asked first.
    pub(crate) async fn snapshot_if_due(&mut self, ours: bool) {
        self.take_written().await;
        let s = &self.snapshots;
        let next = self.manifest.next_version();
        let by_size = s.record_bytes >= SNAPSHOT_RECORD_BYTES.max(SNAPSHOT_GROWTH * s.newest_bytes);
        let due = next.is_multiple_of(SNAPSHOT_VERSIONS_MAX) || (ours && by_size);
        if !s.write || !due || s.writing.is_some() {
            return;
        }
        let Some((version, bytes)) = self.manifest.snapshot() else {
            return;
        };
        let job = WriteJob {
            store: Arc::clone(&self.store),
            version,
            bytes: Bytes::from(bytes),
            segments: self.snapshots.unstored.iter().cloned().collect(),
            ours,
        };
        self.snapshots.record_bytes = 0;
        self.snapshots.writing = Some(tokio::spawn(job.run()));
    }

    /// Waits for a snapshot that is being written; for an orderly end.
    pub async fn settle_snapshots(&mut self) {
        if let Some(task) = self.snapshots.writing.take() {
            let written = task.await.ok().flatten();
            self.note_written(written);
        }
    }

    async fn take_written(&mut self) {
        if self
            .snapshots
            .writing
            .as_ref()
            .is_some_and(tokio::task::JoinHandle::is_finished)
        {
            self.settle_snapshots().await;
        }
    }

    fn note_written(&mut self, written: Option<(SnapshotHint, u64)>) {
        let Some((hint, bytes)) = written else { return };
        self.snapshots.newest = Some(hint);
        self.snapshots.newest_bytes = bytes;
        // Its segments are stored: all but those that became full after it.
        let boundary = self.manifest.next_step() / batchweave_core::limits::SEGMENT_STEPS;
        let stored = self.snapshots.unstored.len().min(boundary as usize);
        for _ in 0..stored {
            if let Some(segment) = self.snapshots.unstored.front()
                && segment
                    .steps
                    .last()
                    .is_some_and(|s| s.version <= hint.version)
            {
                self.snapshots.unstored.pop_front();
            }
        }
    }
}

struct WriteJob {
    store: Arc<dyn Store>,
    version: Version,
    bytes: Bytes,
    segments: Vec<Arc<Segment>>,
    ours: bool,
}

impl WriteJob {
    async fn run(self) -> Option<(SnapshotHint, u64)> {
        let hint = SnapshotHint {
            version: self.version,
            hash: Hash::of(&self.bytes),
        };
        let size = self.bytes.len() as u64;
        match self.write().await {
            Ok(()) => Some((hint, size)),
            Err(e) => {
                warn!(version = hint.version, error = %e, "a snapshot was not written; the log goes on without");
                None
            }
        }
    }

    async fn write(self) -> Result<(), StoreError> {
        let key = keys::snapshot(self.version);
        if !self.ours && self.store.head(&key).await.is_ok() {
            return Ok(());
        }
        for segment in &self.segments {
            store(
                self.store.as_ref(),
                &keys::segment(segment.segment),
                segment.to_json(),
            )
            .await?;
        }
        store(self.store.as_ref(), &key, self.bytes.into()).await?;
        debug!(key, segments = self.segments.len(), "snapshot written");
        prune(self.store.as_ref()).await
    }
}

/// Deterministic bytes: somebody else's object is as good as ours.
async fn store(store: &dyn Store, key: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
    match store.create(key, bytes.into()).await? {
        Create::Created | Create::Exists => Ok(()),
    }
}

/// Keeps the newest few snapshots. Older ones are hints that nobody needs; a reader that loses one
/// while opening lists again.
async fn prune(store: &dyn Store) -> Result<(), StoreError> {
    let mut versions = list_snapshots(store).await?;
    versions.sort_unstable();
    let old = versions.len().saturating_sub(SNAPSHOTS_KEPT);
    for version in &versions[..old] {
        store.delete(&keys::snapshot(*version)).await?;
    }
    Ok(())
}
