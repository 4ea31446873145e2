//! Figures of the newest records, read once, and continued by `--watch`.

use batchweave_core::ids::Version;
use batchweave_log::Log;
use batchweave_store::{Store, StoreError};

use super::commits::NewestRecords;
use super::rate::{self, Rate, Written};
use super::totals::PerStep;

/// The newest records, the times of some, and averages per step.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) records: NewestRecords,
    pub(super) per_step: PerStep,
    written: Vec<Written>,
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
}
