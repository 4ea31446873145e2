//! Load in virtual time: N producers with the real log code commit at given rates, with or without
//! disturbances. Latency is the time from a TGB's being ready until its record is in the store.

mod figures;
pub(crate) mod memo;
mod plan;
mod plot;
mod producer;
mod run;
pub mod scenario;
mod shared;

pub use figures::{Figures, Second};
pub use plan::LoadPlan;
pub use plot::svg;
pub use run::run;
