//! Marks and progress on which a deletion rests are read first: a name only claims what its object holds, and
//! the permission to create names in `jobs/` must not be enough to delete data.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::{AttemptId, StreamId};
use batchweave_core::keys;
use batchweave_core::retention::{Mark, Progress};
use batchweave_store::{ErrorKind, Store, StoreError};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tracing::warn;

use super::job_objects::{Listed, ObjectsByJob};
use crate::error::LogError;
use crate::log::Log;
use crate::read::fitting::get_fitting;

/// Reads that run at the same time.
const READS_AT_ONCE: usize = 32;

/// Objects that were read in earlier passes; they never change.
#[derive(Debug, Default)]
pub(super) struct VerifiedObjects {
    genuine: BTreeSet<String>,
    /// Forged objects; each is logged once.
    forged: BTreeSet<String>,
}

impl VerifiedObjects {
    /// Returns the objects of `listed` without forged ones on which a deletion would rest, and the number of
    /// objects read for it.
    pub(super) async fn verify(
        &mut self,
        log: &Log,
        listed: &mut Listed,
    ) -> Result<(ObjectsByJob, u64), LogError> {
        let m = log.manifest();
        let mut reads = 0;
        self.genuine.retain(|key| listed.has(key));
        self.forged.retain(|key| listed.has(key));
        loop {
            let objects = listed.objects(m);
            let unread = listed.deciding(m, &objects, &self.genuine);
            if unread.is_empty() {
                return Ok((objects, reads));
            }
            reads += unread.len() as u64;
            let reads: Vec<_> = unread
                .into_iter()
                .map(|(key, attempt)| {
                    let store = Arc::clone(&log.store);
                    read(store, key, m.stream_id(), attempt.id, attempt.dp_size)
                })
                .collect();
            let read: Vec<_> = stream::iter(reads)
                .buffered(READS_AT_ONCE)
                .try_collect()
                .await?;
            for (key, why) in read {
                let Some(why) = why else {
                    self.genuine.insert(key);
                    continue;
                };
                listed.forget(&key);
                if self.forged.insert(key.clone()) {
                    warn!(key, %why, "ignoring an object that is not the mark or progress that its name claims");
                }
            }
        }
    }
}

/// Reads an object; returns its key, and why it is not what its name claims, if so. An object that is gone
/// counts as forged.
async fn read(
    store: Arc<dyn Store>,
    key: String,
    stream: StreamId,
    id: AttemptId,
    dp_size: u32,
) -> Result<(String, Option<String>), StoreError> {
    let fits = |bytes: &Bytes| {
        let found = if keys::parse_mark(&key).is_some() {
            Mark::from_json(bytes, &key, stream).map(|mark| (mark.id, mark.dp_size))
        } else {
            Progress::from_json(bytes, &key, stream).map(|progress| (progress.id, dp_size))
        };
        match found {
            Err(why) => Err(why.to_string()),
            Ok(other) if other != (id, dp_size) => Err(format!(
                "it belongs to attempt {} with dp_size {}",
                other.0, other.1
            )),
            Ok(_) => Ok(()),
        }
    };
    let read = match get_fitting(store.as_ref(), &key, fits).await {
        Ok(read) => read,
        Err(e) if matches!(e.kind, ErrorKind::NotFound | ErrorKind::TooLarge) => {
            return Ok((key, Some(e.to_string())));
        }
        Err(e) => return Err(e),
    };
    Ok((key, read.err()))
}
