//! Ranks in the jobs of the log: who may join, which attempt it reads in, and what it reports.
//!
//! - `membership` finds a rank's attempt in the folded log, `admission` checks its hello (both pure);
//! - `takeover` keeps an attempt with a drawn id from ending one that runs (pure);
//! - `restart` finds the restart points of a job, and where an attempt without a stated start begins;
//! - `attempts` writes jobs and attempts into the log, `attempt_rate` bounds them;
//! - `ranks` tracks what each rank was sent and received, `deliveries` reports it to the ledger; `states` holds which
//!   steps ranks report as trained, `values` the losses of these, which `values_task` stores;
//! - `mark_rules` validates checkpoint marks (pure), `marks` stores them.

pub(crate) mod admission;
pub(crate) mod attempt_rate;
pub(crate) mod attempts;
pub(crate) mod deliveries;
pub(crate) mod mark_rules;
pub(crate) mod marks;
pub(crate) mod membership;
pub(crate) mod ranks;
pub(crate) mod restart;
pub(crate) mod states;
pub(crate) mod takeover;
pub(crate) mod values;
pub(crate) mod values_task;
