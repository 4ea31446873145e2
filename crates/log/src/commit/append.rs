//! One try to append a record at the next version.
//!
//! The record is kept until its put has a definite outcome. A future that is dropped meanwhile leaves it
//! there (pitfall P8), and the next append first puts the same bytes again.

use std::sync::Arc;

use batchweave_core::guards;
use batchweave_core::ids::Version;
use batchweave_core::manifest::{Entry, Folded, Hints, Record, Writer};
use bytes::Bytes;
use futures::future::BoxFuture;
use tracing::{debug, warn};

use crate::commit::resolve::{self, Failed, Resolved};
use crate::error::LogError;
use crate::log::{Log, OpenPut};

/// The outcome of a try. A lost race is a value, not an error.
#[derive(Debug)]
#[must_use]
pub enum Append {
    /// Our record is at this version and folded.
    Won { version: Version, folded: Folded },
    /// Another record is at this version and folded: every check must be repeated.
    Lost { version: Version, folded: Folded },
}

impl Log {
    /// Puts one record with `entries` at the next version and folds the record that is there afterwards.
    /// Void entries are refused: a correct writer never writes them.
    pub fn append<'a>(
        &'a mut self,
        writer: &'a Writer,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<Append, LogError>> {
        Box::pin(async move {
            for validity in self.manifest.validate_all(&entries) {
                validity.map_err(LogError::Void)?;
            }
            self.put_record(writer, Hints::default(), entries).await
        })
    }

    /// Appends entries that were validated together by the current manifest.
    pub(crate) async fn put_record(
        &mut self,
        writer: &Writer,
        hints: Hints,
        entries: Vec<Entry>,
    ) -> Result<Append, LogError> {
        if Box::pin(self.check_repairs()).await? {
            let version = self.manifest.next_version().saturating_sub(1);
            let folded = Folded::default();
            return Ok(Append::Lost { version, folded });
        }
        if let Some(folded) = self.resolve_open().await? {
            // The caller validated its entries before this record.
            let version = self.manifest.next_version() - 1;
            return Ok(Append::Lost { version, folded });
        }
        let version = self.manifest.next_version();
        let buggy = guards::trusts_412() || guards::retries_without_folding();
        let again = buggy.then(|| entries.clone());
        let bytes = self.record(version, writer, hints.clone(), entries);
        match self.put_open(version, bytes.clone(), false).await? {
            Resolved::Ours => {
                let folded = self.fold_put(&bytes).await?.unwrap_or_default();
                self.snapshot_if_due(true).await;
                self.write_bundle().await;
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
            format: Record::format_of(&entries),
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

    /// Puts a record and finds out which record is at its version. `in_doubt`: it was put before.
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

    /// Folds the record at the version of the open put, which closes the put.
    async fn fold_put(&mut self, bytes: &Bytes) -> Result<Option<Folded>, LogError> {
        let folded = self.fold(bytes).await?;
        self.open_put = None;
        Ok(folded)
    }

    /// Resolves a put whose future was dropped or whose outcome is unknown: puts the same bytes again until
    /// the outcome is definite, and folds the record at its version. `None` without such a put, or when its
    /// version was read meanwhile.
    pub(crate) async fn resolve_open(&mut self) -> Result<Option<Folded>, LogError> {
        let next = self.manifest.next_version();
        let Some(open) = self.open_put.clone().filter(|open| open.version == next) else {
            self.open_put = None;
            return Ok(None);
        };
        warn!(
            version = next,
            "the outcome of an earlier put is unknown: resolving it"
        );
        let found = match self.put_open(next, open.bytes.clone(), true).await? {
            Resolved::Ours => open.bytes,
            Resolved::Theirs(theirs) => theirs,
        };
        let folded = self.fold_put(&found).await?;
        Ok(Some(folded.unwrap_or_default()))
    }
}
