//! Reclamation: first the record of a watermark, then deletions by one single fold at or after that record.
//!
//! Invariants:
//! - a watermark is computed from marks that were read after the fold by which it is validated, and after a
//!   lost race both are read again;
//! - marks and progress count by their contents, not by their names;
//! - one manifest chooses the objects to delete, and is not folded further meanwhile;
//! - a decision to delete stays right for ever, so a pass may stop anywhere, be repeated, and run beside
//!   others;
//! - nothing under `log/` and `repairs/`, and no ledger, is ever deleted.
//!
//! Files: `plan` shows what a pass would do, `publish` writes its records, `scan` finds obsolete objects with
//! `input_lists`, `sweep` deletes them, `report` counts; `job_objects` lists marks and progress, `verified`
//! reads those that matter, `lease` closes inactive jobs.

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
use batchweave_core::retention::reclaim::{KEEP_LOSSES, Reclaim};
use futures::future::BoxFuture;

pub use plan::{JobRetention, Plan};
pub use report::{Class, ReclaimReport, Refused, Requests, Tally, Totals};

use crate::error::LogError;
use crate::log::Log;
use lease::Leases;
use report::ReclaimError as Error;
use scan::{Keep, Known};

pub use report::ReclaimError;

/// Bounds of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Objects deleted at most; the rest is left to the next pass.
    pub max_delete: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_delete: 100_000,
        }
    }
}

/// Runs passes of reclamation over a log. Several may work on one stream at a time.
#[derive(Debug)]
pub struct Reclaimer {
    leases: Leases,
    known: Known,
    keep_losses: u64,
}

impl Default for Reclaimer {
    fn default() -> Self {
        Self::keeping(KEEP_LOSSES)
    }
}

impl Reclaimer {
    /// Returns a reclaimer that has observed nothing: leases begin to run with its first pass.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns one that keeps the losses of this many steps below the watermark.
    pub fn keeping(losses: u64) -> Self {
        Self {
            leases: Leases::default(),
            known: Known::default(),
            keep_losses: losses,
        }
    }

    /// Returns what a pass would do now, without writing. `to`: a watermark requested by a person.
    pub fn plan<'a>(
        &'a mut self,
        log: &'a mut Log,
        to: Option<Step>,
    ) -> BoxFuture<'a, Result<Plan, Error>> {
        let keep_losses = self.keep_losses;
        Box::pin(async move { plan::make(log, &mut self.known, to, keep_losses).await })
    }

    /// Carries out `plan`, as far as it is still right.
    pub fn apply<'a>(
        &'a mut self,
        log: &'a mut Log,
        plan: &'a Plan,
        limits: Limits,
    ) -> BoxFuture<'a, Result<ReclaimReport, Error>> {
        Box::pin(async move { self.run(log, plan.asked, limits).await })
    }

    /// Runs one pass without a plan, in the background.
    pub fn pass<'a>(
        &'a mut self,
        log: &'a mut Log,
        limits: Limits,
    ) -> BoxFuture<'a, Result<ReclaimReport, LogError>> {
        Box::pin(async move {
            match self.run(log, None, limits).await {
                Ok(report) => Ok(report),
                Err(Error::Log(e)) => Err(e),
                // Impossible without a requested watermark.
                Err(Error::Asked(e)) => Err(LogError::Stopped(e.to_string())),
            }
        })
    }

    async fn run(
        &mut self,
        log: &mut Log,
        to: Option<Step>,
        limits: Limits,
    ) -> Result<ReclaimReport, Error> {
        let mut report = ReclaimReport::default();
        let objects =
            publish::publish(log, &mut self.leases, &mut self.known, to, &mut report).await?;
        let fold = log.manifest().clone();
        report.watermark = fold.watermark();
        report.head = fold.next_step();
        let keep = Keep::up_to(limits.max_delete);
        let rule = Reclaim::by(&fold).keep_losses(self.keep_losses);
        let found = scan::scan(log, &rule, &objects, &mut self.known, keep).await?;
        found.add_to(&mut report);
        if !found.is_empty() {
            log.confirm().await?;
        }
        sweep::sweep(log, found, limits.max_delete, &mut report).await;
        Ok(report)
    }
}
