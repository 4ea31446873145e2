//! One try to append a record at the next version.
//!
//! The record is kept until its put has a certain outcome. A future that is dropped meanwhile leaves
//! it there (pitfall P8), and whoever appends next puts the same bytes again before anything else.

use std::sync::Arc;

use batchweave_core::guards;
use batchweave_core::ids::Version;
use batchweave_core::manifest::{Entry, Folded, Hints, Record, Writer};
use bytes::Bytes;
use tracing::{debug, warn};

use crate::commit::resolve::{self, Failed, Resolved};
use crate::log::OpenPut;
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
        for verdict in self.manifest.validate_all(&entries) {
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
        if Box::pin(self.heed_repairs()).await? {
            let version = self.manifest.next_version().saturating_sub(1);
            let folded = Folded::default();
            return Ok(Append::Lost { version, folded });
        }
        if let Some(folded) = self.resolve_open().await? {
            // What the caller has judged was judged before this one.
            let version = self.manifest.next_version() - 1;
            return Ok(Append::Lost { version, folded });
        }
        let version = self.manifest.next_version();
        let mistaken = guards::trusts_412() || guards::retries_without_folding();
        let again = mistaken.then(|| entries.clone());
        let bytes = self.record(version, writer, hints.clone(), entries);
        match self.put_open(version, bytes.clone(), false).await? {
            Resolved::Ours => {
                let folded = self.fold_put(&bytes).await?.unwrap_or_default();
                self.snapshot_if_due(true).await;
                Ok(Append::Won { version, folded })
            }
            Resolved::Theirs(theirs) => {
                debug!(version, "lost the race for a version");
                let folded = self.fold_put(&theirs).await?.unwrap_or_default();
                self.snapshot_if_due(false).await;
                if let Some(entries) = again
                    && (theirs == bytes) == guards::trusts_412()
                {
                    return Box::pin(self.put_record(writer, hints, entries)).await;
                }
                Ok(Append::Lost { version, folded })
            }
        }
    }

    fn record(
        &mut self,
        version: Version,
        writer: &Writer,
        hints: Hints,
        entries: Vec<Entry>,
    ) -> Bytes {
        let record = Record {
            format: 1,
            stream: self.manifest.stream_id(),
            version,
            prev: self.manifest.prev(),
            view: self.manifest.view(),
            commit: self.new_commit(),
            writer: writer.clone(),
            hints: Hints {
                snapshot: self.snapshots.newest,
                ..hints
            },
            entries,
        };
        Bytes::from(record.to_json())
    }

    /// Puts a record and finds out who has its version. `in_doubt`: it was put before.
    async fn put_open(
        &mut self,
        version: Version,
        bytes: Bytes,
        in_doubt: bool,
    ) -> Result<Resolved, LogError> {
        self.open_put = Some(OpenPut {
            version,
            bytes: bytes.clone(),
        });
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let key = batchweave_core::keys::log(version);
        let put = resolve::put_again(store.as_ref(), clock.as_ref(), &key, bytes, in_doubt);
        put.await.map_err(|Failed { error, in_doubt }| {
            if !in_doubt {
                self.open_put = None;
            }
            error.into()
        })
    }

    /// Folds what is at the version of the open put, which is closed by that.
    async fn fold_put(&mut self, bytes: &Bytes) -> Result<Option<Folded>, LogError> {
        let folded = self.fold(bytes).await?;
        self.open_put = None;
        Ok(folded)
    }

    /// What became of a put whose future was dropped, or that ended in doubt: the same bytes are put
    /// again until that is certain, and what is there is folded. `None` when there is no such put, or
    /// its version was read meanwhile.
    pub(crate) async fn resolve_open(&mut self) -> Result<Option<Folded>, LogError> {
        let next = self.manifest.next_version();
        let Some(open) = self.open_put.clone().filter(|open| open.version == next) else {
            self.open_put = None;
            return Ok(None);
        };
        warn!(version = next, "a put was left in the middle: resolving it");
        let found = match self.put_open(next, open.bytes.clone(), true).await? {
            Resolved::Ours => open.bytes,
            Resolved::Theirs(theirs) => theirs,
        };
        let folded = self.fold_put(&found).await?;
        Ok(Some(folded.unwrap_or_default()))
    }
}
