//! Follows the log by GET of the next versions: one at the head, up to a window at a time when behind. The log
//! is never listed.

use std::sync::Arc;

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::CATCH_UP_WINDOW;
use batchweave_core::manifest::repair::Repair;
use batchweave_core::manifest::void::RecordVoid;
use batchweave_core::manifest::{FoldError, Folded, Manifest};
use batchweave_store::found;
use bytes::Bytes;
use futures::future::BoxFuture;
use tracing::{debug, warn};

use crate::error::LogError;
use crate::log::Log;
use crate::read::fitting::{REREADS_MAX, get_fitting, warn_misread};
use crate::read::root_check;
use crate::read::window;
use crate::read::window::Window;

/// Consecutive polls without a new record after which the root itself is checked.
const IDLE_POLLS_MAX: u32 = 128;
/// Windows after which a reader that has not reached the head finds out how far away it is.
const WINDOWS: u32 = 4;
/// A snapshot is looked for when the log is this many windows ahead.
const FAR: u64 = 8;
/// Least records read when the distance to the head is unknown.
const NEAR: u64 = 4;

impl Log {
    /// Folds all records up to the head, by one GET (a 404) when there is nothing new. Stops at a version that
    /// did not exist when it was called, so fast writers cannot starve it.
    pub fn catch_up(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move { self.catch_up_noting(|_| {}).await })
    }

    /// Folds as [`Log::catch_up`] does; passes the result of each record to `note`, in order.
    pub(crate) async fn catch_up_noting(
        &mut self,
        mut note: impl FnMut(&Folded),
    ) -> Result<(), LogError> {
        let (folded, at_head) = self.catch_up_window().await?;
        folded.iter().for_each(&mut note);
        if at_head {
            return Ok(());
        }
        self.narrow(folded.len());
        let (mut enough, mut windows) = (None, 0);
        while enough.is_none_or(|version| self.manifest.next_version() < version) {
            let long = self.window == CATCH_UP_WINDOW || windows == WINDOWS;
            let (folded, at_head) = if enough.is_none() && long {
                let (store, next) = (Arc::clone(&self.store), self.manifest.next_version());
                let absent = window::absent_after(store.as_ref(), next);
                let (absent, window) = futures::join!(absent, self.catch_up_window());
                enough = Some(absent?);
                window?
            } else {
                self.catch_up_window().await?
            };
            folded.iter().for_each(&mut note);
            if at_head {
                break;
            }
            windows += 1;
        }
        Ok(())
    }

    /// Folds one window of records; also returns whether it reached the head.
    pub fn catch_up_window(&mut self) -> BoxFuture<'_, Result<(Vec<Folded>, bool), LogError>> {
        Box::pin(async move {
            Box::pin(self.check_repairs()).await?;
            let first = self.manifest.next_version();
            let window = self.window.clamp(1, CATCH_UP_WINDOW);
            let found = window::read(self.store.as_ref(), first, window).await?;
            self.fold_window(found).await
        })
    }

    /// Folds the records of one window, and returns whether more may follow: a follower uses these before it reads on.
    /// `first`: it was at the head before.
    pub(crate) async fn catch_up_near(&mut self, first: bool) -> Result<bool, LogError> {
        if first {
            self.window = 1;
        }
        let (folded, at_head) = self.catch_up_window().await?;
        if first {
            self.narrow(folded.len());
        }
        Ok(!at_head)
    }

    /// A follower that got one record has mostly read the newest now: thousands would read three missing ones.
    fn narrow(&mut self, folded: usize) {
        if folded == 1 {
            self.window = 1;
        }
    }

    /// Folds the record of the next version, if it exists.
    pub(crate) async fn catch_up_record(&mut self) -> Result<(), LogError> {
        self.catch_up_near(true).await.map(|_| ())
    }

    /// Folds one window for a reader that may be far behind. When it is, the log continues from the newest
    /// snapshot, and the results of the records before that are not returned.
    pub(crate) async fn catch_up_far(
        &mut self,
        window: u64,
    ) -> Result<(Vec<Folded>, bool), LogError> {
        let window = window.max(NEAR);
        let (store, next) = (Arc::clone(&self.store), self.manifest.next_version());
        let probe = |ahead| window::get_record(store.as_ref(), next + ahead);
        self.window = window;
        let (folded, near, far) = futures::join!(
            self.catch_up_window(),
            probe(2 * window),
            probe(FAR * window)
        );
        let (folded, at_head) = folded?;
        let (near, far) = (near?.is_some(), far?.is_some());
        if at_head || (far && self.jump().await?) {
            return Ok((folded, at_head));
        }
        self.window = match (near, far) {
            (_, true) => FAR * window,
            (true, _) => 4 * window,
            _ => window,
        };
        Ok((folded, false))
    }

    /// Folds the records of a window; also returns whether it reached the head.
    pub(crate) async fn fold_window(
        &mut self,
        found: Window,
    ) -> Result<(Vec<Folded>, bool), LogError> {
        let full = found.is_full();
        self.window = if full { found.next() } else { 1 };
        self.check_idle(found.records.is_empty()).await?;
        let mut folded = Vec::with_capacity(found.records.len());
        for bytes in found.records {
            let Some(record) = self.fold(&bytes).await? else {
                // Another fold replaced this one, past some of these records.
                return Ok((folded, false));
            };
            folded.push(record);
        }
        self.snapshot_after_window(full).await;
        Ok((folded, !full))
    }

    /// Checks the root after many polls without a new record: in a root that was removed or created again the
    /// next version may never come.
    async fn check_idle(&mut self, idle: bool) -> Result<(), LogError> {
        self.idle_polls = if idle { self.idle_polls + 1 } else { 0 };
        if self.idle_polls.is_multiple_of(IDLE_POLLS_MAX) && idle {
            root_check::check_root(self.store.as_ref(), self.manifest.stream_id()).await?;
        }
        Ok(())
    }

    /// Folds the record of the next version; checks `repairs/` when this fold cannot take it. `None`: another fold
    /// replaced this one, past this record.
    pub(crate) async fn fold(&mut self, bytes: &Bytes) -> Result<Option<Folded>, LogError> {
        let version = self.manifest.next_version();
        if let Some(lost) = &self.snapshots.lost {
            return Err(lost.clone());
        }
        // Stored only at the end: this future may be dropped at any await.
        let (bytes, mut manifest, result) = self.fold_beside(version, bytes).await?;
        let bytes = &bytes;
        let folded = match result {
            Ok(folded) => folded,
            Err(misfit) if misfit.may_be_repaired() => {
                if !self.repaired(version, bytes).await? {
                    return Box::pin(self.fold_again(misfit, bytes))
                        .await
                        .map(|()| None);
                }
                debug!(version, "a repair makes the record void");
                manifest.fold_repaired(bytes)
            }
            Err(e) => return Err(e.into()),
        };
        log_void(version, &folded);
        if let Some(RecordVoid::OtherStream(_)) = folded.void {
            root_check::check_root(self.store.as_ref(), self.manifest.stream_id()).await?;
        }
        self.manifest = manifest;
        self.note_folded(version, bytes.len() as u64, &folded);
        self.note_for_bundle(bytes, &folded);
        Ok(Some(folded))
    }

    /// Folds a record beside this log's own fold. Bytes that do not continue the log are read again, over new
    /// connections: they may be another record's. Returns the last ones, with their effects.
    async fn fold_beside(
        &self,
        version: Version,
        bytes: &Bytes,
    ) -> Result<(Bytes, Manifest, Result<Folded, FoldError>), LogError> {
        let fold = |bytes: &Bytes| {
            let mut manifest = self.manifest.clone();
            let result = match &self.shared_fold {
                Some(folder) => folder.fold(&mut manifest, bytes),
                None => manifest.fold(bytes),
            };
            (manifest, result)
        };
        let (mut bytes, (mut manifest, mut result)) = (bytes.clone(), fold(bytes));
        let key = keys::log(version);
        for _ in 0..REREADS_MAX {
            if !is_doubtful(&result) {
                break;
            }
            let fresh = self.store.get_fresh(&key, keys::bytes_max(&key)).await;
            let Some(fresh) = found(fresh)?.filter(|fresh| *fresh != bytes) else {
                continue;
            };
            ((manifest, result), bytes) = (fold(&fresh), fresh);
            if !is_doubtful(&result) {
                warn_misread(&key);
            }
        }
        Ok((bytes, manifest, result))
    }

    async fn repaired(&self, version: Version, bytes: &[u8]) -> Result<bool, LogError> {
        let key = keys::repair(version);
        let stream = self.manifest.stream_id();
        let parse = |stored: &Bytes| Repair::from_json(stored, stream, version);
        match found(get_fitting(self.store.as_ref(), &key, parse).await)? {
            Some(repair) => Ok(repair?.bad == Hash::sha256(bytes)),
            None => Ok(false),
        }
    }
}

/// Whether a record does not continue the log, or is of another stream.
fn is_doubtful(result: &Result<Folded, FoldError>) -> bool {
    match result {
        Ok(folded) => matches!(folded.void, Some(RecordVoid::OtherStream(_))),
        Err(misfit) => misfit.may_be_repaired(),
    }
}

/// Logs void entries: they show a bug of their writer.
fn log_void(version: Version, folded: &Folded) {
    match &folded.void {
        Some(RecordVoid::Repaired) | None => {}
        Some(reason) => warn!(version, %reason, "a whole record is void"),
    }
    for (index, validity) in folded.entries.iter().enumerate() {
        if let Err(reason) = validity {
            warn!(version, index, %reason, "an entry is void");
        }
    }
}
