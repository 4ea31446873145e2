//! The causes of a rank's wait. A wait is not an error: it ends by itself, or with the rank's deadline.

use std::fmt;

macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)+) => {
        /// The cause of a step's delay. The numbers are part of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum WaitCause {
            $($(#[$doc])* $variant = $number,)+
        }

        impl WaitCause {
            /// All causes, in order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the cause's name in messages, metrics and the Python client.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

causes! {
    /// The step is not committed yet.
    Producing = 1 "producing",
    /// The step is committed and on its way from the store.
    Fetching = 2 "fetching",
    /// The store does not answer; the daemon keeps trying.
    StoreUnavailable = 3 "store_unavailable",
    /// The arena is full of frames that other ranks hold.
    ArenaFull = 4 "arena_full",
    /// The rank holds all its credits itself.
    HeldFrames = 5 "held_frames",
    /// The step is late, because the arena was full when it should have been prefetched.
    Backpressure = 6 "backpressure",
    /// Global rank 0 has not opened the attempt.
    AttemptNotOpen = 7 "attempt_not_open",
    /// The daemon is still opening the log.
    DaemonStarting = 8 "daemon_starting",
    /// There is no daemon at the socket; set by the client, never sent.
    DaemonRestarting = 9 "daemon_restarting",
    /// The job is not open.
    JobNotOpen = 10 "job_not_open",
}

impl WaitCause {
    /// Returns the number in a message.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the cause with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.number() == number)
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
