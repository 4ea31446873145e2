//! Opening in rounds of parallel requests: {stream.json, LIST snapshots/}, {newest snapshot, its
//! tail}, further windows. An unusable snapshot is skipped with a warning: the log is the truth.

use std::sync::Arc;

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::record::SnapshotHint;
use batchweave_core::stream::StreamConfig;
use batchweave_store::{Store, StoreError};
use bytes::Bytes;
use tracing::warn;

use crate::{Log, LogError, LogOptions};

impl Log {
    /// Opens the stream at the store's root and folds to its head.
    pub async fn open(store: Arc<dyn Store>, options: &LogOptions) -> Result<Self, LogError> {
        let (stream, listed) =
            futures::future::join(store.get(keys::STREAM), list_snapshots(store.as_ref())).await;
        let stream_json = match stream {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => {
                return Err(LogError::NoStream {
                    root: store.root().to_owned(),
                });
            }
            Err(e) => return Err(e.into()),
        };
        let stream = StreamConfig::from_json(&stream_json, keys::STREAM)?;
        let mut log = Self::from_snapshots(store, stream, &stream_json, listed?, options).await?;
        log.window = batchweave_core::limits::CATCH_UP_WINDOW / 8;
        log.catch_up().await?;
        Ok(log)
    }

    async fn from_snapshots(
        store: Arc<dyn Store>,
        stream: StreamConfig,
        stream_json: &[u8],
        mut versions: Vec<Version>,
        options: &LogOptions,
    ) -> Result<Self, LogError> {
        let shared = Arc::new(stream.clone());
        versions.sort_unstable();
        while let Some(version) = versions.pop() {
            let bytes = match store.get(&keys::snapshot(version)).await {
                Ok(bytes) => bytes,
                Err(e) if e.is_not_found() => continue,
                Err(e) => return Err(e.into()),
            };
            match Manifest::from_snapshot(Arc::clone(&shared), &bytes, version) {
                Ok(manifest) if matches_log(store.as_ref(), &manifest, version).await? => {
                    let hint = SnapshotHint {
                        version,
                        hash: Hash::of(&bytes),
                    };
                    let mut log = Self::new(store, manifest, options);
                    log.snapshots.newest = Some(hint);
                    log.snapshots.newest_bytes = bytes.len() as u64;
                    return Ok(log);
                }
                Ok(_) => warn!(version, "a snapshot does not match the log: ignored"),
                Err(e) => warn!(version, error = %e, "an unusable snapshot is ignored"),
            }
        }
        Ok(Self::new(
            store,
            Manifest::new(stream, stream_json),
            options,
        ))
    }
}

/// A snapshot names the hash of the record that it was taken after; one read proves that it belongs
/// to this log and is not ahead of it.
async fn matches_log(
    store: &dyn Store,
    manifest: &Manifest,
    version: Version,
) -> Result<bool, StoreError> {
    match store.get(&keys::log(version)).await {
        Ok(record) => Ok(Hash::of(&record) == manifest.prev()),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e),
    }
}

pub(crate) async fn list_snapshots(store: &dyn Store) -> Result<Vec<Version>, StoreError> {
    let (mut versions, mut page) = (Vec::new(), None);
    loop {
        let listed = store.list(keys::SNAPSHOTS, page).await?;
        versions.extend(
            listed
                .objects
                .iter()
                .filter_map(|o| keys::snapshot_version(&o.key)),
        );
        page = listed.next;
        if page.is_none() {
            return Ok(versions);
        }
    }
}

/// Reads a record, `None` when it is not there.
pub(crate) async fn get_record(
    store: &dyn Store,
    version: Version,
) -> Result<Option<Bytes>, StoreError> {
    match store.get(&keys::log(version)).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}
