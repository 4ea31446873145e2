//! Flow control: how far a producer may run ahead of the jobs that read it.
//!
//! - `limiter`: the bounds and positions as the commit task last received them;
//! - `positions`: reads the jobs' positions from the store.

pub(crate) mod limiter;
pub(crate) mod positions;
#[cfg(test)]
mod tests;
