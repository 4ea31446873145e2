//! Reclamation: the watermark as a record first, deletion afterwards, by one single fold at or after
//! that record.
//!
//! Invariants:
//! - a watermark is computed from marks that were read after the fold by which it is judged, and a
//!   lost race means that both are read again;
//! - marks and progress move it by what they hold, not by their names;
//! - what is deleted is chosen by one manifest, which is not folded further meanwhile;
//! - a decision to delete stays right for ever, so a pass may stop anywhere, be repeated, and run
//!   beside others;
//! - nothing under `log/` and `repairs/`, and no ledger, is ever deleted.

mod input_lists;
mod job_objects;
mod lease;
mod plan;
mod publish;
mod report;
mod scan;
mod sweep;
#[cfg(test)]
mod tests;
mod verified;

use batchweave_core::ids::Step;
use batchweave_core::retention::reclaim::Reclaim;

pub use plan::{JobRetention, Plan};
pub use report::{Class, ReclaimReport, Refused, Requests, Tally, Totals};

use crate::{Log, LogError};
use lease::Leases;
use report::ReclaimError as Error;
use scan::{Keep, Known};

pub use report::ReclaimError;

/// Bounds of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Objects that it deletes at most; what is left is for the next.
    pub max_delete: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_delete: 100_000,
        }
    }
}

/// Runs passes of reclamation over a log. Any number of them may be at work on one stream.
#[derive(Debug, Default)]
pub struct Reclaimer {
    leases: Leases,
    known: Known,
}

impl Reclaimer {
    /// One that has observed nothing yet: leases begin to run with its first pass.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a pass would do now. Writes nothing. `to`: a person wants the watermark there.
    pub async fn plan(&mut self, log: &mut Log, to: Option<Step>) -> Result<Plan, Error> {
        plan::make(log, &mut self.known, to).await
    }

    /// Does it, as far as it is still right by then.
    pub async fn apply(
        &mut self,
        log: &mut Log,
        plan: &Plan,
        limits: Limits,
    ) -> Result<ReclaimReport, Error> {
        self.run(log, plan.asked, limits).await
    }

    /// One pass without a plan: what a background duty does.
    pub async fn pass(&mut self, log: &mut Log, limits: Limits) -> Result<ReclaimReport, LogError> {
        match self.run(log, None, limits).await {
            Ok(report) => Ok(report),
            Err(Error::Log(e)) => Err(e),
            // Nobody has asked.
            Err(Error::Asked(e)) => Err(LogError::Stopped(e.to_string())),
        }
    }

    async fn run(
        &mut self,
        log: &mut Log,
        to: Option<Step>,
        limits: Limits,
    ) -> Result<ReclaimReport, Error> {
        let mut report = ReclaimReport::default();
        let signs =
            publish::publish(log, (&mut self.leases, &mut self.known), to, &mut report).await?;
        let fold = log.manifest().clone();
        report.watermark = fold.watermark();
        report.head = fold.next_step();
        let keep = Keep::upto(limits.max_delete);
        let found = scan::scan(log, &Reclaim::by(&fold), &signs, &mut self.known, keep).await?;
        report.take_scan(&found);
        if !found.is_empty() {
            log.confirm().await?;
        }
        sweep::sweep(log, found, limits.max_delete, &mut report).await;
        Ok(report)
    }
}
