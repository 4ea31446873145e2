//! One poll of a follower: the records themselves, or bundles of them while a crowd follows the log.

use std::time::Duration;

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::limits::BUNDLE_RECORDS;
use batchweave_core::manifest::bundle::has_crowd;
use batchweave_core::polling::{CROWD, CrowdReads, Gave, NextRead};
use batchweave_store::found;

use crate::error::LogError;
use crate::log::Log;
use crate::read::bundle::Bundled;

/// The polls of one follower.
#[derive(Debug, Default)]
pub struct Follower {
    crowd: CrowdReads,
    /// Bundles do not help before this version: one did not fit, or there are none.
    not_before: Version,
    /// More records may follow those of the last poll.
    more: bool,
    /// Times in a row that the bundle of an older record was missing, too.
    without: u32,
}

/// Versions in which no bundle is read after one that did not fit, or while there are none: the next one has other
/// records.
const WITHOUT: Version = BUNDLE_RECORDS;
/// Times that missing bundles are waited for before that.
const WITHOUT_MAX: u32 = 3;

impl Follower {
    /// Whether a poll reads bundles.
    fn reads_bundles(&self, log: &Log, followers: u32) -> bool {
        let known = log.manifest().next_version() >= self.not_before;
        let many = followers >= CROWD && has_crowd(log.manifest());
        many && known && !self.crowd.is_rare(followers)
    }

    /// Polls once, as one of `followers`; returns whether more records may follow at once. `now` gives the time.
    pub async fn poll(
        &mut self,
        log: &mut Log,
        followers: u32,
        now: impl Fn() -> Duration + Send,
    ) -> Result<bool, LogError> {
        let first = !std::mem::take(&mut self.more);
        if !first || !self.reads_bundles(log, followers) {
            let next = log.manifest().next_version();
            let more = self.read_window(log, first).await?;
            self.note(NextRead::Head, next, log, now());
            return Ok(more);
        }
        let next = log.manifest().next_version();
        let read = self.crowd.next(next, now());
        match read {
            NextRead::Record => log.catch_up_record().await?,
            NextRead::Head => self.read_head(log).await?,
            NextRead::Bundle(last) => match log.catch_up_by_bundle(last).await? {
                Bundled::Folded => self.without = 0,
                Bundled::Absent => {}
                Bundled::Beyond => return self.read_window(log, true).await,
                Bundled::Unusable => {
                    self.not_before = next + WITHOUT;
                    return self.read_window(log, true).await;
                }
            },
        }
        self.note(read, next, log, now());
        Ok(false)
    }

    /// Notes what a read of a log that was folded up to `next` gave.
    fn note(&mut self, read: NextRead, next: Version, log: &Log, now: Duration) {
        let at = log.manifest().next_version();
        let gave = if at > next {
            Gave::Records
        } else {
            Gave::Nothing
        };
        self.crowd
            .note(read, gave, (at, log.manifest().next_step()), now);
    }

    async fn read_window(&mut self, log: &mut Log, first: bool) -> Result<bool, LogError> {
        self.more = log.catch_up_near(first).await?;
        Ok(self.more)
    }

    /// Reads all records because bundles are missing. One of a record that is not the newest should exist; when it is
    /// missing again and again, nobody writes bundles.
    async fn read_head(&mut self, log: &mut Log) -> Result<(), LogError> {
        let next = log.manifest().next_version();
        // One after another: a window would read missing records, thousands of times.
        while log.catch_up_near(true).await? && log.manifest().next_version() < next + WITHOUT {}
        let at = log.manifest().next_version();
        if at < next + 2 {
            return Ok(());
        }
        let there = found(log.store.head(&keys::bundle(at - 2)).await)?.is_some();
        self.without = if there { 0 } else { self.without + 1 };
        if self.without >= WITHOUT_MAX {
            (self.without, self.not_before) = (0, at + WITHOUT);
        }
        Ok(())
    }

    /// Returns the pause after a poll that reads bundles, with `lead` steps ahead; `None` when it reads records.
    pub fn pause(&self, log: &Log, lead: Option<u64>, followers: u32) -> Option<Duration> {
        self.reads_bundles(log, followers)
            .then(|| self.crowd.pause(lead, followers))
    }
}
