//! Following the log by GET of the next versions: one at the head, up to a window at a time when
//! behind. The log is never listed.

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::CATCH_UP_WINDOW;
use batchweave_core::manifest::repair::Repair;
use batchweave_core::manifest::void::RecordVoid;
use batchweave_core::manifest::{FoldError, Folded};
use bytes::Bytes;
use futures::StreamExt;
use tracing::warn;

use crate::open::get_record;
use crate::{Log, LogError};

/// GETs under way at once while catching up.
const CATCH_UP_CONCURRENCY: usize = 32;

impl Log {
    /// Folds all records up to the head; returns what they did, in order. Costs one GET (a 404)
    /// when there is nothing new.
    pub async fn catch_up(&mut self) -> Result<Vec<Folded>, LogError> {
        let mut all = Vec::new();
        loop {
            let (folded, at_head) = self.catch_up_window().await?;
            all.extend(folded);
            if at_head {
                return Ok(all);
            }
        }
    }

    /// Folds one window of records; the flag says whether the head was reached. For those who must
    /// do something between windows.
    pub async fn catch_up_window(&mut self) -> Result<(Vec<Folded>, bool), LogError> {
        let first = self.manifest.next_version();
        let window = self.window.clamp(1, CATCH_UP_WINDOW);
        let found = self.fetch(first, window).await?;
        let full = found.len() as u64 == window;
        self.window = if full {
            (window * 4).min(CATCH_UP_WINDOW)
        } else {
            1
        };
        let mut folded = Vec::with_capacity(found.len());
        for bytes in found {
            folded.push(self.fold(&bytes).await?);
        }
        Ok((folded, !full))
    }

    /// The records from `first` on, as far as they are there without a gap.
    async fn fetch(&self, first: Version, window: u64) -> Result<Vec<Bytes>, LogError> {
        let store = &self.store;
        let gets = (first..first + window).map(|v| get_record(store.as_ref(), v));
        let records: Vec<_> = futures::stream::iter(gets)
            .buffered(CATCH_UP_CONCURRENCY)
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let mut found = Vec::new();
        let mut missing = None;
        for (version, record) in (first..).zip(records) {
            match (record, missing) {
                (Some(bytes), None) => found.push(bytes),
                (None, None) => missing = Some(version),
                (Some(_), Some(hole)) => {
                    // Written while the window was read? Then it is there now.
                    match get_record(store.as_ref(), hole).await? {
                        Some(_) => break,
                        None => return Err(self.gap(hole, version)),
                    }
                }
                (None, Some(_)) => {}
            }
        }
        Ok(found)
    }

    fn gap(&self, hole: Version, later: Version) -> LogError {
        LogError::Gap {
            root: self.store.root().to_owned(),
            key: keys::log(hole),
            later,
        }
    }

    /// Folds the bytes of the next version, with a look at `repairs/` when they can't be read.
    pub(crate) async fn fold(&mut self, bytes: &Bytes) -> Result<Folded, LogError> {
        let version = self.manifest.next_version();
        let manifest = &mut self.manifest;
        let result = match &self.folder {
            Some(folder) => folder.fold(manifest, bytes),
            None => manifest.fold(bytes),
        };
        let folded = match result {
            Ok(folded) => folded,
            Err(unreadable @ FoldError::Unreadable { .. }) => {
                if !self.repaired(version, bytes).await? {
                    return Err(unreadable.into());
                }
                warn!(version, reason = %unreadable, "an unreadable record was repaired: it is void");
                self.manifest.fold_repaired(bytes)
            }
            Err(e) => return Err(e.into()),
        };
        report(version, &folded);
        self.note_folded(bytes.len() as u64, &folded);
        Ok(folded)
    }

    async fn repaired(&self, version: Version, bytes: &[u8]) -> Result<bool, LogError> {
        match self.store.get(&keys::repair(version)).await {
            Ok(stored) => {
                let repair = Repair::from_json(&stored, self.manifest.stream_id(), version)?;
                Ok(repair.bad == Hash::of(bytes))
            }
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

/// Void entries are a writer's fault: everybody who folds one says so.
fn report(version: Version, folded: &Folded) {
    match &folded.void {
        Some(RecordVoid::Repaired) | None => {}
        Some(reason) => warn!(version, %reason, "a whole record is void"),
    }
    for (index, verdict) in folded.entries.iter().enumerate() {
        if let Err(reason) = verdict {
            warn!(version, index, %reason, "an entry is void");
        }
    }
}
