//! Compares steps that copies of the log locate with the records that they name. A snapshot and a segment name hashes
//! that a forger knows too, so they prove nothing about their steps: the first one that is asked for, and a part of the
//! others, must be in the log.

use batchweave_core::ids::Step;
use batchweave_core::manifest::{Record, Segment, StepEntry};
use rand::RngExt;
use tracing::warn;

use crate::error::LogError;
use crate::log::Log;
use crate::read::refold::Refold;
use crate::read::window;

/// One of this many located steps is compared: thousands of daemons that replay old steps stay within the log's rate.
const COMPARED: u32 = 16;

impl Log {
    /// Whether a located step is compared, beside the first of each copy.
    pub(crate) fn draws_comparison(&mut self) -> bool {
        self.rng.random_range(0..COMPARED) == 0
    }

    /// Whether the record that an entry names commits its TGB.
    pub(crate) async fn is_committed(&self, entry: &StepEntry) -> Result<bool, LogError> {
        let record = window::get_record(self.store.as_ref(), entry.version)
            .await?
            .and_then(|bytes| Record::from_json(&bytes, entry.version).ok());
        Ok(record.is_some_and(|record| entry.is_in(&record)))
    }

    /// Whether the step of a segment is committed; true for one that the segment lacks.
    pub(crate) async fn has_step(&self, segment: &Segment, step: Step) -> Result<bool, LogError> {
        match segment.step(step) {
            Some(entry) => self.is_committed(entry).await,
            None => Ok(true),
        }
    }

    /// Whether an open step may be used. When it is of the snapshot with which this fold began, and the log has another
    /// one, this fold is replaced by one from an older start.
    pub(crate) async fn open_step_stands(&mut self, entry: &StepEntry) -> Result<bool, LogError> {
        let Some(base) = self.base.filter(|base| entry.version <= *base) else {
            return Ok(true);
        };
        let first = self.compared_base.replace(base) != Some(base);
        let compared = self.draws_comparison() || first;
        if !compared || self.is_committed(entry).await? {
            return Ok(true);
        }
        warn!(
            snapshot = base,
            step = entry.step,
            "a snapshot has another TGB at a step than the log: folding the log again"
        );
        let to = self.manifest.next_version();
        let again = Box::pin(Refold::for_log(self).search(base, to, |_| true)).await?;
        if let Some(why) = again.stopped.clone() {
            return Err(why);
        }
        self.adopt(again);
        self.snapshots.unusable.push(base);
        Ok(false)
    }
}
