//! What jobs leave in the store, and what follows from it: restart points, floors, the watermark, and
//! which objects nobody can need any more. Pure: whoever lists the store hands the keys in.
//!
//! - `marks`, `progress`: objects of an attempt; `signs`: what a LIST of them says;
//! - `restart`: restart points and the floor of a job; `due`: what a watermark may say now;
//! - `lineage`: the attempts of a job one after another; `ledger`: what was delivered, and `proof`:
//!   that both fit the log, or the first `contradiction`; `retell`: entries from checksums;
//! - `reclaim`: which objects may be deleted, by one fold.

mod contradiction;
mod due;
mod ledger;
mod lineage;
mod marks;
pub mod pace;
mod progress;
mod proof;
pub mod reclaim;
mod restart;
mod retell;
mod signs;

pub use contradiction::{Contradiction, Mismatch};
pub use due::{Asked, Due, asked, watermark};
pub use ledger::{
    LEDGER_CRCS, LEDGER_ENTRIES_MAX, LEDGER_STEPS, Ledger, LedgerEntry, LedgerPlace, Told,
};
pub use lineage::{AttemptRecord, History, JobRecord, Leg, LineageError};
pub use marks::Mark;
pub use progress::Progress;
pub use proof::{LegProof, Lookup, Named, ProvenLeg, Unproved};
pub use restart::{floor, restart_points};
pub use retell::{Retold, retell};
pub use signs::{AttemptSigns, JobSigns};
