//! Reads the newest records from a bundle.
//!
//! Invariant (checked in the model `bundles`): a bundle gives records only to a fold that they continue without a gap,
//! and only while the log holds the last of them; one that does not fit changes nothing. The log decides.

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::manifest::{Bundle, FoldError, Folded, Manifest};
use batchweave_store::found;
use bytes::Bytes;
use futures::future::BoxFuture;
use tracing::warn;

use crate::error::LogError;
use crate::log::Log;
use crate::read::anchor;

/// The outcome of a read of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bundled {
    /// Records up to its last one.
    Folded,
    /// It does not exist: its records may not exist yet.
    Absent,
    /// It begins after what is folded.
    Beyond,
    /// It does not continue this fold, or the log does not hold its last record. The reason is logged.
    Refused,
}

/// A record of a bundle, with its effects.
struct Taken {
    version: Version,
    hash: Hash,
    bytes: Bytes,
    folded: Folded,
}

impl Log {
    /// Folds the records of the bundle whose newest has version `last`.
    pub(crate) fn catch_up_by_bundle(
        &mut self,
        last: Version,
    ) -> BoxFuture<'_, Result<Bundled, LogError>> {
        Box::pin(async move {
            Box::pin(self.check_repairs()).await?;
            let key = keys::bundle(last);
            let Some(bytes) = found(self.store.get(&key, keys::bytes_max(&key)).await)? else {
                return Ok(Bundled::Absent);
            };
            let bundle = match Bundle::from_json(&bytes, self.manifest.stream_id(), last) {
                Ok(bundle) => bundle,
                Err(why) => {
                    warn!(%why, "ignoring a bundle of records; the log has them");
                    return Ok(Bundled::Refused);
                }
            };
            let Some(records) = bundle.records_from(self.manifest.next_version()) else {
                return Ok(Bundled::Beyond);
            };
            let (manifest, taken) = match self.take(records) {
                Ok(taken) => taken,
                Err(why) => {
                    warn!(key, %why, "ignoring a bundle of records that do not continue the log");
                    return Ok(Bundled::Refused);
                }
            };
            // After the bundle was read: the log may have been set back since.
            if !self.holds_last(&key, taken.last()).await? {
                return Ok(Bundled::Refused);
            }
            self.adopt_bundle(manifest, taken);
            self.snapshot_after_window(false).await;
            Ok(Bundled::Folded)
        })
    }

    /// Whether the log holds the last record of a bundle, byte for byte. It pins those before.
    async fn holds_last(&self, key: &str, last: Option<&Taken>) -> Result<bool, LogError> {
        let Some(last) = last else {
            return Ok(false);
        };
        let same = |bytes: &Bytes| *bytes == last.bytes;
        let compared = anchor::compare(self.store.as_ref(), last.version, same).await?;
        if let Some(instead) = compared {
            let (record, found) = (keys::log(last.version), instead.text());
            warn!(
                key,
                record, found, "refusing a bundle of records that the log does not hold"
            );
        }
        Ok(compared.is_none())
    }

    /// Folds records beside this log's own fold. Fails at the first that the fold does not take as it is.
    fn take(&self, records: impl Iterator<Item = Bytes>) -> Result<(Manifest, Vec<Taken>), String> {
        let (mut manifest, mut taken) = (self.manifest.clone(), Vec::new());
        for bytes in records {
            let version = manifest.next_version();
            let result: Result<_, FoldError> = match &self.shared_fold {
                Some(folder) => folder.fold(&mut manifest, &bytes),
                None => manifest.fold(&bytes),
            };
            let folded = result.map_err(|why| why.to_string())?;
            if let Some(void) = &folded.void {
                return Err(format!("the record of version {version} is void: {void}"));
            }
            taken.push(Taken {
                version,
                hash: manifest.prev(),
                bytes,
                folded,
            });
        }
        Ok((manifest, taken))
    }

    fn adopt_bundle(&mut self, manifest: Manifest, taken: Vec<Taken>) {
        self.manifest = manifest;
        (self.idle_polls, self.window) = (0, 1);
        for record in taken {
            self.adopted.push(record.version, record.hash);
            self.note_folded(record.version, record.bytes.len() as u64, &record.folded);
        }
    }
}
