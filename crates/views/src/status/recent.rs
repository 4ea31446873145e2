//! Figures of the newest records, read once, and continued by `--watch`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use batchweave_core::ids::{ProducerName, Version};
use batchweave_core::keys;
use batchweave_log::Log;
use batchweave_store::{Store, StoreError};

use futures::future::join_all;

use super::commits::NewestRecords;
use super::rate::{self, Rate, Written};
use super::totals::PerStep;

/// Most records whose times are requested per update for the producers' last commits.
const TIMES_MAX: usize = 16;

/// The newest records, the times of some, and averages per step.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) records: NewestRecords,
    pub(super) per_step: PerStep,
    written: Vec<Written>,
    /// The times of the producers' last commits, as far as they were read.
    commit_times: BTreeMap<Version, SystemTime>,
}

impl Recent {
    /// Reads the newest records of a log as it is folded.
    pub(super) async fn read(log: &mut Log) -> Result<Self, StoreError> {
        let (store, next) = (log.store().clone(), log.manifest().next_version());
        let records = NewestRecords::read(store.as_ref(), next).await?;
        let (per_step, written) = tokio::join!(
            PerStep::read(log, &records),
            rate::times(store.as_ref(), &records.tgbs)
        );
        Ok(Self {
            records,
            per_step,
            written,
            commit_times: BTreeMap::new(),
        })
    }

    /// Reads the records that were written since. Documents per step stay those of the beginning.
    pub(super) async fn read_on(
        &mut self,
        store: &dyn Store,
        next: Version,
    ) -> Result<(), StoreError> {
        // A copy, so that a failed read changes nothing.
        self.records = self.records.clone().read_on(store, next).await?;
        self.per_step.add(&self.records.sums);
        rate::add_newest(store, &self.records.tgbs, &mut self.written).await;
        Ok(())
    }

    /// Returns the present rate.
    pub(super) fn rate(&self) -> Rate {
        let (tgbs, tokens) = (&self.records.tgbs, self.per_step.tokens());
        Rate::between(&self.written, tgbs, tokens, std::time::SystemTime::now())
    }

    /// Reads the times of the producers' last commits, the newest first; those that are left out follow with the next
    /// call.
    pub(super) async fn read_commit_times(&mut self, store: &dyn Store) {
        let last: BTreeSet<Version> = self.records.last_of.values().copied().collect();
        self.commit_times
            .retain(|version, _| last.contains(version));
        self.commit_times.extend(self.written.iter().copied());
        let missing = last
            .iter()
            .rev()
            .filter(|v| !self.commit_times.contains_key(v));
        let times = missing.take(TIMES_MAX).map(|version| async move {
            let meta = store.head(&keys::log(*version)).await.ok()?;
            Some((*version, meta.modified?))
        });
        let times = join_all(times).await.into_iter().flatten();
        self.commit_times.extend(times);
    }

    /// Returns the time of a producer's last commit; `None` when it is not among the newest records.
    pub(super) fn last_commit(&self, producer: &ProducerName) -> Option<SystemTime> {
        let version = self.records.last_of.get(producer)?;
        self.commit_times.get(version).copied()
    }
}
