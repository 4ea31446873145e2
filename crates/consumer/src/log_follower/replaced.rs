//! Notices that the followed log was reopened as another log, and finds the differences.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::{Hash, Step, Version};
use batchweave_core::keys;
use batchweave_log::{Located, Log, LogError};
use batchweave_store::{StoreError, list_all};

use super::lookups::Lookups;
use crate::node::{AttemptKey, LogReplacement, Node};
use crate::stream_head::Head;

/// The position of the followed log.
pub(crate) struct FollowedLog {
    next: Version,
    prev: Hash,
    reopened: u64,
}

impl FollowedLog {
    pub(crate) fn new(log: &Log) -> Self {
        let m = log.manifest();
        Self {
            next: m.next_version(),
            prev: m.prev(),
            reopened: log.reopened(),
        }
    }

    fn is_continued_by(&self, log: &Log) -> bool {
        let m = log.manifest();
        let next = m.next_version();
        let on = self.next < next || (self.next == next && self.prev == m.prev());
        on && self.reopened == log.reopened()
    }

    /// If the log is another one, forgets all that was read from the old one and not delivered, and stops ranks
    /// that received steps which it does not contain. Must be called before anything is looked up in it.
    pub(crate) async fn handle_replacement(
        &mut self,
        log: &mut Log,
        node: &Arc<Node>,
        lookups: &mut Lookups,
    ) -> Result<(), LogError> {
        if !self.is_continued_by(log) {
            tracing::warn!(
                version = self.next,
                now = log.manifest().next_version(),
                "the log was replaced by another one: comparing it with what was delivered"
            );
            lookups.stop().await;
            let replaced = LogReplacement {
                changed: changed(log, node).await?,
                stored: stored(node).await?,
            };
            let head = Head::from_manifest(log.manifest());
            node.apply(|state| state.replace_log(head, &replaced));
            node.head_changed.notify_waiters();
        }
        *self = Self::new(log);
        Ok(())
    }
}

/// Returns the known steps that are missing now, or are other batches.
async fn changed(log: &mut Log, node: &Node) -> Result<BTreeSet<Step>, LogError> {
    let known = { node.lock().known_steps() };
    let mut changed = BTreeSet::new();
    for (step, digest) in known {
        let same = match log.locate(step).await? {
            Located::At(entry) => entry.tgb.digest == digest,
            Located::NotYet | Located::Ended { .. } => false,
            // Unknown, since its data is deleted.
            Located::Reclaimed { .. } => true,
        };
        if !same {
            changed.insert(step);
        }
    }
    Ok(changed)
}

/// Returns the furthest step of marks and progress in the store, for each attempt of this node's ranks.
async fn stored(node: &Node) -> Result<Vec<(AttemptKey, Step)>, StoreError> {
    let live = { node.lock().live_attempts() };
    let mut stored = Vec::new();
    for attempt in live {
        let (job, opened, number) = &attempt;
        let mut furthest = 0;
        for prefix in [
            keys::marks(job, *opened, *number),
            keys::progress_of(job, *opened, *number),
        ] {
            list_all(node.resources.store.as_ref(), &prefix, |object| {
                let mark = keys::parse_mark(&object.key).map(|mark| mark.step);
                let step = mark.or_else(|| keys::parse_progress(&object.key).map(|at| at.step));
                furthest = furthest.max(step.unwrap_or(0));
            })
            .await?;
        }
        stored.push((attempt, furthest));
    }
    Ok(stored)
}

#[cfg(test)]
mod tests;
