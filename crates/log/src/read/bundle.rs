//! Reads the newest records from a bundle.
//!
//! Invariant (checked in the model `bundles`): a bundle gives records only to a fold that they continue without a gap,
//! and one that does not fit changes nothing. The log decides.

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::manifest::{Bundle, FoldError, Folded, Manifest};
use batchweave_store::found;
use bytes::Bytes;
use futures::future::BoxFuture;
use tracing::warn;

use crate::error::LogError;
use crate::log::Log;

/// The outcome of a read of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bundled {
    /// Records up to its last one.
    Folded,
    /// It does not exist: its records may not exist yet.
    Absent,
    /// It begins after what is folded.
    Beyond,
    /// It does not continue the log. The reason is logged.
    Unusable,
}

/// A record of a bundle, with its effects.
struct Taken {
    version: Version,
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
                    return Ok(Bundled::Unusable);
                }
            };
            let Some(records) = bundle.records_from(self.manifest.next_version()) else {
                return Ok(Bundled::Beyond);
            };
            match self.take(records) {
                Ok((manifest, taken)) => {
                    self.adopt_bundle(manifest, taken);
                    self.snapshot_after_window(false).await;
                    Ok(Bundled::Folded)
                }
                Err(why) => {
                    warn!(key, %why, "ignoring a bundle of records that do not continue the log");
                    Ok(Bundled::Unusable)
                }
            }
        })
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
            self.note_folded(record.version, record.bytes.len() as u64, &record.folded);
        }
    }
}
