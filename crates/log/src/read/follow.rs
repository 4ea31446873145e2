//! One poll of a follower: the records themselves, or bundles of them while a crowd follows the log.

use std::time::Duration;

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::limits::BUNDLE_RECORDS;
use batchweave_core::manifest::bundle::has_crowd;
use batchweave_core::polling::{CROWD, CrowdReads, Gave, NextRead, compare_pause};
use batchweave_store::found;
use rand::RngExt;

use crate::error::LogError;
use crate::log::Log;
use crate::read::bundle::Bundled;

/// The polls of one follower.
#[derive(Debug, Default)]
pub struct Follower {
    crowd: CrowdReads,
    /// No bundle is read before this version: there are none.
    not_before: Version,
    /// When to compare another record that a bundle gave with the log.
    compare_at: Option<Duration>,
    /// More records may follow those of the last poll.
    more: bool,
    /// Times in a row that the bundle of an older record was missing, too.
    without: u32,
}

/// Versions in which no bundle is read while there are none.
const WITHOUT: Version = BUNDLE_RECORDS;
/// Times that missing bundles are waited for before that.
const WITHOUT_MAX: u32 = 3;

impl Follower {
    /// Whether a poll reads bundles.
    fn reads_bundles(&self, log: &Log, followers: u32) -> bool {
        let known = log.manifest().next_version() >= self.not_before;
        let many = followers >= CROWD && has_crowd(log.manifest());
        many && known
    }

    /// Polls once, as one of `followers`; returns whether more records may follow at once. `now` gives the time.
    pub async fn poll(
        &mut self,
        log: &mut Log,
        followers: u32,
        now: impl Fn() -> Duration + Send + Sync,
    ) -> Result<bool, LogError> {
        log.recheck_adopted().await?;
        let more = self.read(log, followers, &now).await?;
        if self.is_compare_due(log, followers, now()) {
            log.compare_adopted().await?;
        }
        Ok(more)
    }

    /// Whether it is time to compare a record that a bundle gave.
    fn is_compare_due(&mut self, log: &mut Log, followers: u32, now: Duration) -> bool {
        let due = self.compare_at.is_some_and(|at| now >= at);
        if due || self.compare_at.is_none() {
            let pause = compare_pause(followers, log.rng.random_range(0.0..1.0));
            self.compare_at = Some(now + pause);
        }
        due
    }

    async fn read(
        &mut self,
        log: &mut Log,
        followers: u32,
        now: &(impl Fn() -> Duration + Sync),
    ) -> Result<bool, LogError> {
        let first = !std::mem::take(&mut self.more);
        if !first || !self.reads_bundles(log, followers) {
            let next = log.manifest().next_version();
            let more = self.read_window(log, first).await?;
            self.note(NextRead::Head, next, log, now());
            return Ok(more);
        }
        let next = log.manifest().next_version();
        let read = self.crowd.next(next, followers, now());
        match read {
            NextRead::Record => log.catch_up_record().await?,
            NextRead::Head => self.read_head(log).await?,
            NextRead::Bundle(last) => match log.catch_up_by_bundle(last).await? {
                Bundled::Folded => self.without = 0,
                Bundled::Absent => {}
                Bundled::Beyond => return self.read_window(log, true).await,
                Bundled::Refused => {
                    self.crowd.note_refused();
                    return Ok(false);
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
            .note(read, gave, at, log.manifest().next_step(), now);
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
