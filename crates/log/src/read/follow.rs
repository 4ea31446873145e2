//! One poll of a follower: the records themselves, or bundles of them while a crowd follows the log.

use std::time::Duration;

use batchweave_core::ids::Version;
use batchweave_core::manifest::bundle::has_crowd;
use batchweave_core::polling::{CROWD, CrowdReads, Gave, NextRead};

use crate::error::LogError;
use crate::log::Log;
use crate::read::bundle::Bundled;

/// A follower's polls.
#[derive(Debug, Default)]
pub struct Follower {
    crowd: CrowdReads,
    /// Bundles do not help before this version: one did not fit.
    not_before: Version,
}

/// Versions after a bundle that did not fit in which none is read: as many as one holds, so that the next one has
/// other records.
const WITHOUT: Version = batchweave_core::limits::BUNDLE_RECORDS;

impl Follower {
    /// Whether a poll reads bundles.
    fn reads_bundles(&self, log: &Log, followers: u32) -> bool {
        let known = log.manifest().next_version() >= self.not_before;
        followers >= CROWD && known && has_crowd(log.manifest())
    }

    /// Polls once, as one of `followers`; returns whether more records may follow at once. `now` gives the time.
    pub async fn poll(
        &mut self,
        log: &mut Log,
        followers: u32,
        now: impl Fn() -> Duration + Send,
    ) -> Result<bool, LogError> {
        if !self.reads_bundles(log, followers) {
            return log.catch_up_near().await;
        }
        let next = log.manifest().next_version();
        let read = self.crowd.next(next, now());
        match read {
            NextRead::Record => log.catch_up_record().await?,
            NextRead::Bundle(last) => match log.catch_up_by_bundle(last).await? {
                Bundled::Folded | Bundled::Absent => {}
                Bundled::Beyond => return log.catch_up_near().await,
                Bundled::Unusable => {
                    self.not_before = next + WITHOUT;
                    return log.catch_up_near().await;
                }
            },
        }
        let at = log.manifest().next_version();
        let gave = if at > next {
            Gave::Records
        } else {
            Gave::Nothing
        };
        self.crowd
            .note(read, gave, (at, log.manifest().next_step()), now());
        Ok(false)
    }

    /// Returns the pause after a poll that reads bundles, with `lead` steps ahead; `None` when it reads records.
    pub fn pause(&self, log: &Log, lead: Option<u64>, followers: u32) -> Option<Duration> {
        self.reads_bundles(log, followers)
            .then(|| self.crowd.pause(lead, followers))
    }
}
