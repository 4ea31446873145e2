//! Writes a bundle of the newest records after each record of ours while a crowd follows the log. A bundle overlaps
//! those before it, so one that is missing costs its readers little: none is waited for or written again. Nobody else
//! writes it, so another one under its key is of a former log or forged, and would keep ours from its readers.

use std::sync::Arc;

use batchweave_core::keys;
use batchweave_core::limits::BUNDLES_KEPT;
use batchweave_core::manifest::Folded;
use batchweave_core::manifest::bundle::has_crowd;
use batchweave_store::{ErrorKind, Store, StoreError};
use bytes::Bytes;
use tracing::{debug, warn};

use crate::copies::put::put_copy;
use crate::log::Log;

impl Log {
    /// Keeps a folded record for the next bundle. A void one is in none: its readers must decide by the log.
    pub(crate) fn note_for_bundle(&mut self, bytes: &Bytes, folded: &Folded) {
        let wanted = self.snapshots.write && !self.bundles.off && has_crowd(&self.manifest);
        if wanted && folded.void.is_none() {
            let version = self.manifest.next_version() - 1;
            self.bundles.recent.push(version, bytes.clone());
        } else {
            self.bundles.forget();
        }
    }

    /// Starts to write the bundle up to our record, which is the newest. While another is being written there is none.
    pub(crate) async fn write_bundle(&mut self) {
        let bundles = &mut self.bundles;
        if let Some(writing) = bundles.writing.take_if(|writing| writing.is_finished()) {
            bundles.off |= writing.await.unwrap_or_default();
        }
        let next = self.manifest.next_version();
        if bundles.off || bundles.writing.is_some() {
            return;
        }
        let Some(bundle) = bundles.recent.bundle(self.manifest.stream_id(), next) else {
            return;
        };
        let store = Arc::clone(&self.store);
        let write = async move {
            let outcome = put(store.as_ref(), next - 1, bundle.to_json().into()).await;
            outcome.is_err_and(|why| refused(&why))
        };
        bundles.writing = Some(tokio::spawn(write));
    }
}

/// Creates a bundle and deletes the one that no follower reads any more.
async fn put(store: &dyn Store, last: u64, bytes: Bytes) -> Result<(), StoreError> {
    put_copy(store, &keys::bundle(last), bytes).await?;
    if let Some(old) = last.checked_sub(BUNDLES_KEPT) {
        store.delete(&keys::bundle(old)).await?;
    }
    Ok(())
}

/// Whether a failure is a refusal, which is logged once.
fn refused(why: &StoreError) -> bool {
    if why.kind == ErrorKind::Denied {
        warn!(
            error = %why,
            "cannot write bundles of records: each of many consumer daemons reads every record itself. Allow \
             s3:PutObject on index/* and s3:DeleteObject on index/bundles/*, and restart"
        );
        return true;
    }
    debug!(error = %why, "cannot write a bundle of records; continuing without");
    false
}
