//! When to commit: pure state machines that a driver asks. They see time and randomness as
//! arguments and act through the actions they return; safety never depends on them (the fold judges
//! every entry), only latency and the number of requests do.
//!
//! [`Dac`] is what producers use; [`Plain`] and [`Naive`] are what it is compared with.

mod dac;
mod plain;
mod random;

use std::time::Duration;

pub use dac::{Dac, DacOptions};
pub use plain::{Naive, Plain};

/// What a producer has that is not committed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// Items that are durable and uncommitted.
    pub ready: usize,
    /// How many of them, from the front, stand in durable intents.
    pub announced: usize,
    /// When the oldest became ready, on the clock of `step`.
    pub oldest: Duration,
}

/// A record of somebody else, as a policy sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its writer: see [`name_hash`].
    pub writer: u64,
    /// Its hint: "announce instead of racing".
    pub leads: bool,
    /// Its hint: the writer's put latency.
    pub put_ms: Option<u32>,
    /// The producers of its entries: see [`name_hash`].
    pub producers: Vec<u64>,
}

/// What the driver tells the policy. No other event comes between an action and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More items are ready.
    Ready,
    /// The time of the last `Wait` is over.
    Timer,
    /// All records up to the head are folded; these were new and not ours.
    CaughtUp(Vec<SeenRecord>),
    /// The same, but there are more: the next look goes on.
    Behind(Vec<SeenRecord>),
    /// What was ready has been announced; false when the store failed.
    Announced(bool),
    /// So many others' intents extend what is committed.
    Listed(usize),
    /// So many others' intents were read and are valid.
    Gathered(usize),
    /// Our record won.
    Won {
        /// Whose entries it held that are not ours: see [`name_hash`].
        others: Vec<u64>,
        /// It had no room for all that could be committed.
        full: bool,
    },
    /// Another record took the version; it is folded.
    Lost(SeenRecord),
}

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing to do until the next event.
    Idle,
    /// Send `Timer` after this time, or the next event before.
    Wait(Duration),
    /// Fold up to the head, answer `CaughtUp`. About so many records are expected: they are read
    /// in one window.
    CatchUp(u64),
    /// The same, but where somebody leads one window is enough for now: then nothing is put next.
    /// Answered `Behind` when that did not reach the head.
    Poll(u64),
    /// Store intents for what is ready and not announced, answer `Announced`.
    Announce,
    /// List intents, answer `Listed`.
    List,
    /// Read the intents that the list has shown, answer `Gathered`.
    Gather,
    /// Put a record with what is ready, answer `Won` or `Lost`.
    Put {
        /// The hint for the others.
        leads: bool,
        /// Whether to take gathered intents along.
        combine: bool,
        /// The hint of the put latency.
        put_ms: Option<u32>,
    },
}

/// A commit policy.
pub trait Policy: Send {
    /// The next action. `now` counts from any fixed instant and never goes back.
    fn step(&mut self, now: Duration, queue: Queue, event: Event) -> Action;
}

/// A producer's name as a number (FNV-1a): policies compare and count, they need no names.
pub fn name_hash(name: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}

const PUT: Action = Action::Put {
    leads: false,
    combine: false,
    put_ms: None,
};
