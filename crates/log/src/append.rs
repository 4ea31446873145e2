//! One try to append a record at the next version.

use std::sync::Arc;

use batchweave_core::ids::Version;
use batchweave_core::manifest::{Entry, Folded, Hints, Record, Writer};
use batchweave_core::mutation::{self, Mutation};
use bytes::Bytes;
use tracing::debug;

use crate::resolve::{self, Resolved};
use crate::{Log, LogError};

/// What became of a try. A lost race is a value, not an error.
#[derive(Debug)]
#[must_use]
pub enum Append {
    /// Our record is at this version, and folded.
    Won {
        /// The version.
        version: Version,
        /// What it did.
        folded: Folded,
    },
    /// Another record is there; it is folded, and every check must be made again.
    Lost {
        /// The version.
        version: Version,
        /// What it did.
        folded: Folded,
    },
}

impl Log {
    /// Puts one record with `entries` at the next version and folds whatever is there afterwards.
    /// The caller has judged the entries by the current manifest; void ones are refused here
    /// again, since a correct writer never writes them.
    pub async fn append(
        &mut self,
        writer: &Writer,
        entries: Vec<Entry>,
    ) -> Result<Append, LogError> {
        for verdict in self.manifest.judge_all(&entries) {
            verdict.map_err(LogError::Void)?;
        }
        self.put_record(writer, Hints::default(), entries).await
    }

    /// The same for entries that were judged together by the current manifest.
    pub(crate) async fn put_record(
        &mut self,
        writer: &Writer,
        hints: Hints,
        entries: Vec<Entry>,
    ) -> Result<Append, LogError> {
        let version = self.manifest.next_version();
        let mistaken = mutation::is(Mutation::Trust412) || mutation::is(Mutation::Unfolded);
        let again = mistaken.then(|| entries.clone());
        let record = Record {
            format: 1,
            stream: self.manifest.stream_id(),
            version,
            prev: self.manifest.prev(),
            commit: self.new_commit(),
            writer: writer.clone(),
            hints: Hints {
                snapshot: self.snapshots.newest,
                ..hints
            },
            entries,
        };
        let bytes = Bytes::from(record.to_json());
        let key = batchweave_core::keys::log(version);
        let store = Arc::clone(&self.store);
        let clock = Arc::clone(&self.clock);
        match resolve::put(store.as_ref(), clock.as_ref(), &key, bytes.clone()).await? {
            Resolved::Ours => {
                let folded = self.fold(&bytes).await?;
                self.snapshot_if_due(true).await;
                Ok(Append::Won { version, folded })
            }
            Resolved::Theirs(theirs) => {
                debug!(version, "lost the race for a version");
                let folded = self.fold(&theirs).await?;
                self.snapshot_if_due(false).await;
                if let Some(entries) = again
                    && (theirs == bytes) == mutation::is(Mutation::Trust412)
                {
                    return Box::pin(self.put_record(writer, hints, entries)).await;
                }
                Ok(Append::Lost { version, folded })
            }
        }
    }
}
