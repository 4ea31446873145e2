//! A simulated world: producers, readers, a store, and what befalls them; run to the end of all
//! input. `plan` says what, `run` does it, `producer` and `reader` are the programs, `operator` is a
//! person at work on the stream, `forward` a watch over each open log,
//! `content` what is in a TGB, `faulty` a program that writes what no correct one does.

pub(crate) mod content;
pub(crate) mod faulty;
pub(crate) mod forward;
pub(crate) mod operator;
pub mod plan;
pub(crate) mod producer;
mod reader;
pub(crate) mod run;
mod supervisor;

pub use faulty::Mischief;
pub use operator::Act;
pub use plan::Plan;
pub use run::{Evidence, Read, run};
