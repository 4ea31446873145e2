//! What a log does when its own fold may be wrong.
//!
//! Invariants (tried in the model `views`):
//! - a record that does not fit is void only by a repair, and a repair counts only for a fold that
//!   can't take the record;
//! - a fold that can't take a record is made again from an older start before it stops;
//! - a repair below the head is found within about a minute, and the log is folded again;
//! - nothing is published or deleted by a fold that a second one does not confirm.

use std::time::Duration;

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::manifest::{FoldError, Manifest};
use bytes::Bytes;
use rand::RngExt;
use tracing::warn;

use crate::log::Stopped;
use crate::read::refold::{Refold, Refolded, confirmed};
use crate::read::root_check;
use crate::{Log, LogError};

/// How often repairs are looked for; each log draws its own moment.
const REPAIRS_EVERY: Duration = Duration::from_mins(1);
/// A fold that stopped at a record is made again no sooner than this.
const AGAIN_AFTER: Duration = Duration::from_mins(10);

impl Log {
    /// When repairs are looked for next.
    pub(crate) fn draw_repairs_due(&mut self) {
        let millis = REPAIRS_EVERY.as_millis() as u64;
        let pause = self.rng.random_range(millis * 3 / 4..=millis * 5 / 4);
        self.repairs_due = self.clock.now() + Duration::from_millis(pause);
    }

    /// This fold can't take the record of the next version, and no repair speaks of it. `Ok` when a
    /// second fold could: it stands in place of this one, past that record.
    pub(crate) async fn doubt(&mut self, error: FoldError, bytes: &Bytes) -> Result<(), LogError> {
        let version = self.manifest.next_version();
        if !self.doubts || matches!(error, FoldError::Unreadable { .. }) {
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
            warn!(version, %error, "the record does not fit this fold: folding the log again");
            if let Some(again) = self.second(&error, version).await? {
                self.adopt(again);
                return Ok(());
            }
        }
        if matches!(error, FoldError::Unlinked { .. }) {
            root_check::explain(self.store.as_ref(), version, self.manifest.prev()).await?;
        }
        Err(error.into())
    }

    /// A second fold, if it shows that the first one was wrong about the same records. Where the
    /// chain is broken it gets to the record only: a fold of other bytes than the first one read would
    /// give steps that were delivered another content.
    async fn second(
        &self,
        error: &FoldError,
        version: Version,
    ) -> Result<Option<Refolded>, LogError> {
        let linked = !matches!(error, FoldError::Unlinked { .. });
        let to = if linked { version + 1 } else { version };
        let again = Refold::of(self).run(to).await?;
        let same = linked || again.manifest.view() == self.manifest.view();
        let better = again.manifest != self.manifest;
        Ok(Some(again).filter(|again| again.stopped.is_none() && same && better))
    }

    fn adopt(&mut self, again: Refolded) {
        warn!(
            from = self.manifest.next_version(),
            to = again.manifest.next_version(),
            "this process had folded the log wrongly, or without a repair: it goes on from a second \
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
        self.reopened += 1;
    }

    /// How often this log was folded anew because the first fold was wrong. Readers that remember
    /// steps compare them again when it changes.
    pub fn reopened(&self) -> u64 {
        self.reopened
    }

    /// Looks for repairs from time to time, and folds anew when there is one below the head that this
    /// fold does not know. True when it did.
    pub(crate) async fn check_repairs(&mut self) -> Result<bool, LogError> {
        if !self.doubts || self.clock.now() < self.repairs_due {
            return Ok(false);
        }
        self.draw_repairs_due();
        let listed = match self.list_repairs().await {
            Ok(listed) => listed,
            Err(e) => {
                warn!(error = %e, "cannot look for repairs; retrying in a minute");
                return Ok(false);
            }
        };
        let next = self.manifest.next_version();
        let known = self.manifest.repaired();
        let new =
            |v: &Version| *v < next && known.binary_search(v).is_err() && !self.heeded.contains(v);
        let Some(first) = listed.iter().copied().filter(new).min() else {
            return Ok(false);
        };
        warn!(
            key = keys::repair(first),
            "a repair was made below the head: folding the log again"
        );
        // A snapshot by a process that takes the record would only lead back to where this fold is.
        let heeds = |m: &Manifest| m.repaired().binary_search(&first).is_ok();
        let again = Box::pin(Refold::of(self).search(first, next, heeds)).await?;
        self.heeded = listed.into_iter().collect();
        if again.stopped.is_none() && again.manifest == self.manifest {
            return Ok(false);
        }
        self.adopt(again);
        Ok(true)
    }

    async fn list_repairs(&self) -> Result<Vec<Version>, LogError> {
        let (mut versions, mut page) = (Vec::new(), None);
        loop {
            let listed = self.store.list(keys::REPAIRS, page).await?;
            versions.extend(
                listed
                    .objects
                    .iter()
                    .filter_map(|o| keys::repair_version(&o.key)),
            );
            page = listed.next;
            if page.is_none() {
                return Ok(versions);
            }
        }
    }

    /// Folds the log again by reads of its own, from another start, and compares: before anything is
    /// deleted, and before a producer says that it has finished. An error when the two differ; this
    /// log is not to be used any more then.
    pub async fn confirm(&self) -> Result<(), LogError> {
        let again = Refold::of(self);
        let to = self.manifest.next_version();
        confirmed(&self.manifest, Box::pin(again.run(to)).await?).map(|_| ())
    }
}
