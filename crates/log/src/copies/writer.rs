//! Writes one snapshot and the segments before it, on a task of its own.

use std::sync::Arc;

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::{SEGMENT_STEPS, SNAPSHOTS_KEPT};
use batchweave_core::manifest::record::SnapshotHint;
use batchweave_core::manifest::{Manifest, Segment};
use batchweave_store::{Store, StoreError};
use bytes::Bytes;
use tracing::{debug, warn};

use crate::copies::put::put_copy;
use crate::copies::state::Written;
use crate::error::LogError;
use crate::read::refold::Refold;
use crate::read::root_check;
use crate::read::snapshot_search::list_snapshots;

/// One write of a snapshot.
pub(crate) struct CopyWriter {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) manifest: Manifest,
    /// The second fold, which confirms the snapshot and keeps the segments to be stored first.
    pub(crate) refold: Refold,
    /// Objects under `snapshots/` that do not belong to this log.
    pub(crate) unusable: Vec<Version>,
    /// Another instance should have written the snapshot, and may just have done so: nothing is to be done
    /// when one exists from this version on.
    pub(crate) unless_from: Option<Version>,
}

impl CopyWriter {
    pub(crate) async fn run(self) -> Option<Written> {
        let version = self.manifest.next_version().checked_sub(1)?;
        // The snapshot must not get into another stream; writes are rare enough for this check.
        let root = root_check::check_root(self.store.as_ref(), self.manifest.stream_id()).await;
        if let Err(lost @ LogError::OtherRoot { .. }) = root {
            return Some(Written {
                lost: Some(lost),
                ..Written::default()
            });
        }
        let outcome = match self.newest_of_others(version).await {
            Ok(None) => self.publish(version).await,
            Ok(Some(known)) => Ok(Written {
                known,
                ..Written::default()
            }),
            Err(e) => Err(e.into()),
        };
        if let Err(e) = &outcome {
            warn!(version, error = %e, "cannot write a snapshot; continuing without");
        }
        outcome.ok()
    }

    /// Returns the newest snapshot of others that makes ours unnecessary.
    async fn newest_of_others(&self, ours: Version) -> Result<Option<Version>, StoreError> {
        let Some(from) = self.unless_from else {
            return Ok(None);
        };
        let versions = list_snapshots(self.store.as_ref()).await?;
        let good = |v: &Version| (from..=ours).contains(v) && !self.unusable.contains(v);
        Ok(versions.into_iter().filter(good).max())
    }

    /// Folds again, and writes the snapshot when both folds agree.
    async fn publish(&self, version: Version) -> Result<Written, LogError> {
        match self.refold.confirm(&self.manifest).await {
            Ok(again) => Ok(self.write(version, &again.segments).await?),
            Err(
                lost @ (LogError::Unconfirmed { .. }
                | LogError::WrongSnapshot { .. }
                | LogError::LostSnapshot { .. }
                | LogError::Fold(_)),
            ) => Ok(Written {
                lost: Some(lost),
                ..Written::default()
            }),
            Err(e) => Err(e),
        }
    }

    async fn write(&self, version: Version, filled: &[Segment]) -> Result<Written, StoreError> {
        let store = self.store.as_ref();
        let key = keys::snapshot(version);
        let bytes: Bytes = self.manifest.snapshot().unwrap_or_default().1.into();
        let written = Written {
            known: version,
            hint: Some(SnapshotHint {
                version,
                hash: Hash::sha256(&bytes),
            }),
            bytes: bytes.len() as u64,
            segments: self.manifest.next_step() / SEGMENT_STEPS,
            removed: self.unusable.clone(),
            lost: None,
        };
        // Segments from before the second fold's start are stored: its first snapshot implies them.
        for segment in filled {
            let key = keys::segment(segment.segment);
            put_copy(store, &key, segment.to_json().into()).await?;
        }
        put_copy(store, &key, bytes).await?;
        debug!(key, segments = filled.len(), "snapshot written");
        self.prune(version).await?;
        Ok(written)
    }

    /// Deletes all but the newest few snapshots of this log. A reader that loses one while opening lists
    /// again.
    async fn prune(&self, ours: Version) -> Result<(), StoreError> {
        let mut versions = list_snapshots(self.store.as_ref()).await?;
        versions.retain(|v| *v <= ours && !self.unusable.contains(v));
        versions.sort_unstable();
        let old = versions.len().saturating_sub(SNAPSHOTS_KEPT);
        let unusable = self.unusable.iter().filter(|v| **v != ours);
        for version in versions[..old].iter().chain(unusable) {
            self.store.delete(&keys::snapshot(*version)).await?;
        }
        Ok(())
    }
}
