//! When to commit: pure state machines that a driver asks for the next action. They receive time and
//! randomness as arguments and act only through the actions they return. Safety never depends on them (the
//! fold validates every entry); latency and the number of requests do.
//!
//! - `dac`: the policy of producers;
//! - `plain`: the policies it is compared with;
//! - `random`: jitter from a seed.

mod dac;
mod plain;
mod random;

use std::time::Duration;

pub use dac::{Dac, DacOptions};
pub use plain::{Naive, Plain};

/// The uncommitted items of a producer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// Items that are durable and uncommitted.
    pub ready: usize,
    /// The number of these, from the front, that durable intents announce.
    pub announced: usize,
    /// The time at which the oldest item became ready, on the clock of `step`.
    pub oldest: Duration,
}

/// A record of another writer, as a policy sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRecord {
    pub writer: u64,
    /// The writer's hint: announce entries instead of racing.
    pub leads: bool,
    /// The writer's hint of its put latency, in milliseconds.
    pub put_ms: Option<u32>,
    /// The [`name_hash`] of each producer that has an entry in the record.
    pub producers: Vec<u64>,
}

/// An event that the driver reports to the policy. No other event arrives between an action and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More items are ready.
    Ready,
    /// The time of the last `Wait` has passed.
    Timer,
    /// All records up to the head are folded; these were new and from other writers.
    CaughtUp(Vec<SeenRecord>),
    /// Some records are folded and more follow: the next poll continues after these.
    Behind(Vec<SeenRecord>),
    /// The ready items are announced; false when the store failed.
    Announced(bool),
    /// The number of other producers' intents that extend what is committed.
    Listed(usize),
    /// The number of other producers' intents that were read and are valid.
    Gathered(usize),
    /// The producer's record took the version.
    Won {
        /// The [`name_hash`] of each other producer whose entry the record holds.
        others: Vec<u64>,
        /// Whether the record had no room for some entries that could be committed.
        full: bool,
    },
    /// Another record took the version; it is folded.
    Lost(SeenRecord),
}

/// The driver's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Wait for the next event.
    Idle,
    /// Send `Timer` after this time, unless another event arrives earlier.
    Wait(Duration),
    /// Fold up to the head, answer `CaughtUp`. The number of records that are expected; one window reads
    /// them.
    CatchUp(u64),
    /// Like `CatchUp`, but one window is enough when another writer leads, since no put follows. Answered
    /// `Behind` when that window did not reach the head.
    Poll(u64),
    /// Store intents for the ready items that are not announced, answer `Announced`.
    Announce,
    /// List intents, answer `Listed`.
    List,
    /// Read the listed intents, answer `Gathered`.
    Gather,
    /// Put a record with the ready items, answer `Won` or `Lost`.
    Put {
        /// The hint that other producers should announce their entries.
        leads: bool,
        /// Whether to include gathered intents.
        combine: bool,
        /// The hint of the put latency, in milliseconds.
        put_ms: Option<u32>,
    },
}

/// A commit policy: it answers each event with the next action.
pub trait Policy: Send {
    /// Returns the next action. `now` counts from any fixed instant and never goes back.
    fn step(&mut self, now: Duration, queue: Queue, event: Event) -> Action;
}

/// Returns the FNV-1a hash of a producer's name: policies only compare and count producers.
pub fn name_hash(name: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}

const PUT: Action = Action::Put {
    leads: false,
    combine: false,
    put_ms: None,
};
