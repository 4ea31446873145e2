//! Checks of a log's own fold by a second one.
//!
//! Invariants (checked in the model `views`):
//! - a record that does not fit is void only by a repair, and a repair counts only for a fold that cannot take
//!   the record;
//! - a fold that cannot take a record is repeated from an older start before it stops;
//! - a repair below the head is found within about a minute, and the log is folded again;
//! - nothing is published or deleted by a fold that a second one does not confirm.

use std::time::Duration;

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::manifest::{FoldError, Manifest};
use batchweave_store::list_all;
use bytes::Bytes;
use futures::future::BoxFuture;
use rand::RngExt;
use tracing::warn;

use crate::error::LogError;
use crate::log::{Log, Stopped};
use crate::read::refold::{Refold, Refolded};
use crate::read::root_check;

/// Mean time between two listings of repairs; each log draws its own times.
const REPAIRS_EVERY: Duration = Duration::from_mins(1);
/// The least time between two second folds at the same record.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_mins(10);

impl Log {
    /// Draws the time of the next listing of repairs.
    pub(crate) fn draw_repairs_due(&mut self) {
        let millis = REPAIRS_EVERY.as_millis() as u64;
        let pause = self.rng.random_range(millis * 3 / 4..=millis * 5 / 4);
        self.repairs_due = self.clock.now() + Duration::from_millis(pause);
    }

    /// Folds the log again when this fold cannot take the record of the next version, for which there is no
    /// repair. `Ok` when the second fold could take it: it replaces this one, past that record.
    pub(crate) async fn fold_again(
        &mut self,
        error: FoldError,
        bytes: &Bytes,
    ) -> Result<(), LogError> {
        let version = self.manifest.next_version();
        if !self.self_checks || matches!(error, FoldError::Unreadable { .. }) {
            return Err(error.into());
        }
        root_check::check_root(self.store.as_ref(), self.manifest.stream_id()).await?;
        let (hash, now) = (Hash::sha256(bytes), self.clock.now());
        let known = self
            .stopped
            .filter(|s| (s.version, s.hash) == (version, hash));
        if known.is_none_or(|s| now >= s.until) {
            let until = now + AGAIN_AFTER;
            self.stopped = Some(Stopped {
                version,
                hash,
                until,
            });
            warn!(version, %error, "a record does not fit this fold: folding the log again");
            if let Some(again) = self.second_fold(&error, version).await? {
                self.adopt(again);
                return Ok(());
            }
        }
        if matches!(error, FoldError::Unlinked { .. }) {
            root_check::check_previous(self.store.as_ref(), version, self.manifest.prev()).await?;
        }
        Err(error.into())
    }

    /// Returns a second fold, if it shows that the first one was wrong about the same records. Where the chain of
    /// records is broken it ends before the record: a fold of other bytes than the first one read would give
    /// delivered steps another content.
    async fn second_fold(
        &self,
        error: &FoldError,
        version: Version,
    ) -> Result<Option<Refolded>, LogError> {
        let linked = !matches!(error, FoldError::Unlinked { .. });
        let to = if linked { version + 1 } else { version };
        let again = Refold::for_log(self).run(to).await?;
        let same = linked || again.manifest.view() == self.manifest.view();
        let better = again.manifest != self.manifest;
        Ok(Some(again).filter(|again| again.stopped.is_none() && same && better))
    }

    pub(crate) fn adopt(&mut self, again: Refolded) {
        warn!(
            from = self.manifest.next_version(),
            to = again.manifest.next_version(),
            "this process had folded the log wrongly, or without a repair: continuing from a second \
             fold"
        );
        if let Some(base) = self
            .base
            .filter(|b| again.base.is_none_or(|again| again < *b))
            && self.manifest.next_version() == base + 1
        {
            self.snapshots.unusable.push(base);
        }
        self.manifest = again.manifest;
        self.base = again.base;
        self.stopped = None;
        self.snapshots.reopened();
        self.bundles.forget();
        self.adopted.clear();
        self.contradicted = None;
        self.reopened += 1;
    }

    /// The number of times that a second fold replaced a wrong one. Readers that remember steps compare them
    /// again when it changes.
    pub fn reopened(&self) -> u64 {
        self.reopened
    }

    /// Lists repairs when it is time, and folds again when one below the head is unknown to this fold. Returns
    /// whether another fold replaced this one.
    pub(crate) async fn check_repairs(&mut self) -> Result<bool, LogError> {
        if !self.self_checks || self.clock.now() < self.repairs_due {
            return Ok(false);
        }
        self.draw_repairs_due();
        let listed = match self.list_repairs().await {
            Ok(listed) => listed,
            Err(e) => {
                warn!(error = %e, "cannot list repairs; retrying in a minute");
                return Ok(false);
            }
        };
        let next = self.manifest.next_version();
        let known = self.manifest.repaired();
        let new = |v: &Version| {
            *v < next && known.binary_search(v).is_err() && !self.known_repairs.contains(v)
        };
        let Some(first) = listed.iter().copied().filter(new).min() else {
            return Ok(false);
        };
        warn!(
            key = keys::repair(first),
            "found a repair below the head: folding the log again"
        );
        // A snapshot of a process that takes the record would only lead back to this fold.
        let repaired = |m: &Manifest| m.repaired().binary_search(&first).is_ok();
        let again = Box::pin(Refold::for_log(self).search(first, next, repaired)).await?;
        self.known_repairs = listed.into_iter().collect();
        if again.stopped.is_none() && again.manifest == self.manifest {
            return Ok(false);
        }
        self.adopt(again);
        Ok(true)
    }

    async fn list_repairs(&self) -> Result<Vec<Version>, LogError> {
        let mut versions = Vec::new();
        list_all(self.store.as_ref(), keys::REPAIRS, |object| {
            versions.extend(keys::repair_version(&object.key));
        })
        .await?;
        Ok(versions)
    }

    /// Folds the log again by other reads, from another start, and compares: before anything is deleted, and
    /// before a producer reports that it has finished. Fails when the two folds differ; then this log must not
    /// be used any more.
    pub fn confirm(&self) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let again = Refold::for_log(self);
            Box::pin(again.confirm(&self.manifest)).await.map(drop)
        })
    }
}
