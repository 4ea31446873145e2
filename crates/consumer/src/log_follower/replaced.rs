//! Notices that the log that is followed was opened anew and is another one, and finds out what differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::{Hash, Step, Version};
use batchweave_core::keys;
use batchweave_log::{Located, Log, LogError};
use batchweave_store::StoreError;

use crate::log_follower::head_of;
use crate::log_follower::lookups::Lookups;
use crate::node::{AttemptKey, Hub, Replaced};

/// Where the log stood that was followed.
pub(crate) struct Followed {
    next: Version,
    prev: Hash,
    reopened: u64,
}

impl Followed {
    pub(crate) fn new(log: &Log) -> Self {
        let m = log.manifest();
        Self {
            next: m.next_version(),
            prev: m.prev(),
            reopened: log.reopened(),
        }
    }

    fn is_of(&self, log: &Log) -> bool {
        let m = log.manifest();
        let next = m.next_version();
        let on = self.next < next || (self.next == next && self.prev == m.prev());
        on && self.reopened == log.reopened()
    }

    /// Where the log is another one, has all that was known and not delivered forgotten and stops the ranks
    /// that were given what it does not hold. To be called before anything is looked up in it.
    pub(crate) async fn settle(
        &mut self,
        log: &mut Log,
        hub: &Arc<Hub>,
        lookups: &mut Lookups,
    ) -> Result<(), LogError> {
        if !self.is_of(log) {
            tracing::warn!(
                version = self.next,
                now = log.manifest().next_version(),
                "the log is another one than before: comparing what was delivered"
            );
            lookups.stop().await;
            let replaced = Replaced {
                changed: changed(log, hub).await?,
                stored: stored(hub).await?,
            };
            let head = head_of(log.manifest());
            hub.apply(|state| state.replace_log(head, &replaced));
            hub.heads.notify_waiters();
        }
        *self = Self::new(log);
        Ok(())
    }
}

/// The known steps that are not there any more, or are other batches.
async fn changed(log: &mut Log, hub: &Hub) -> Result<BTreeSet<Step>, LogError> {
    let known = { hub.lock().known_steps() };
    let mut changed = BTreeSet::new();
    for (step, digest) in known {
        let same = match log.locate(step).await? {
            Located::At(entry) => entry.tgb.digest == digest,
            Located::NotYet | Located::Ended { .. } => false,
            // Nobody can say; its data is gone.
            Located::Reclaimed { .. } => true,
        };
        if !same {
            changed.insert(step);
        }
    }
    Ok(changed)
}

/// How far marks and progress in the store say that the attempts of this node's ranks have come.
async fn stored(hub: &Hub) -> Result<Vec<(AttemptKey, Step)>, StoreError> {
    let live = { hub.lock().live_attempts() };
    let mut stored = Vec::new();
    for attempt in live {
        let (job, opened, number) = &attempt;
        let (mut furthest, mut page) = (0, None);
        for prefix in [
            keys::marks(job, *opened, *number),
            keys::progress_of(job, *opened, *number),
        ] {
            loop {
                let found = hub.store.list(&prefix, page).await?;
                let steps = found.objects.iter().filter_map(|object| {
                    let mark = keys::parse_mark(&object.key).map(|mark| mark.step);
                    mark.or_else(|| keys::parse_progress(&object.key).map(|at| at.step))
                });
                furthest = steps.fold(furthest, Step::max);
                page = found.next;
                if page.is_none() {
                    break;
                }
            }
        }
        stored.push((attempt, furthest));
    }
    Ok(stored)
}

#[cfg(test)]
mod tests;
