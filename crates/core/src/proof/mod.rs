//! Proof that the deliveries of a job match the log: every step of its lineage once, in order, with the
//! bytes that the log names.
//!
//! - `lineage`: the attempts of a job one after another; `ledger`: what a daemon delivered;
//! - `leg`: the proof of one attempt's part, with the holes in its ledgers, or its first `contradiction`;
//! - `rebuild`: ledger entries rebuilt from checksums;
//! - `states`: what ranks reported of their steps, `steps` sets of them; `training`: the proof that they were trained.

mod contradiction;
mod ledger;
mod leg;
mod lineage;
mod rebuild;
mod states;
mod steps;
mod training;

pub use contradiction::{Contradiction, Mismatch};
pub use ledger::{
    LEDGER_CRCS, LEDGER_ENTRIES_MAX, LEDGER_STEPS, Ledger, LedgerEntry, LedgerPlace, ReaderCoverage,
};
pub use leg::{LedgerHole, LegProof, LoggedTgb, Lookup, ProvenLeg, Unproved};
pub use lineage::{AttemptRecord, History, JobRecord, Leg, LineageError};
pub use rebuild::{ReaderSlices, rebuild_entries};
pub use states::{REASON_BYTES_MAX, ReportedStates, STATE_RANGES_MAX, is_reason};
pub use steps::StepRanges;
pub use training::{CoordinateSteps, LeftOut, LegStates, LegTraining};
