//! The role of a producer among those that write to the log.

use std::time::Duration;

use super::leading::Leading;

/// The part that a producer plays. Each role holds the state that has a meaning in it alone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    /// Commits its own entries.
    Alone,
    /// Announces its entries to a leader.
    Following {
        /// Polls that showed a record of a leader without the oldest item, since that item was announced. The
        /// first poll is not counted, since it may show records older than the intent, and one poll of a slow
        /// reader counts once.
        passed: u32,
    },
    /// Takes its turn to sweep for intents, if no other producer does so earlier.
    Candidate {
        /// The time of its turn.
        turn: Duration,
        /// As in `Following`, when it followed a leader before.
        passed: Option<u32>,
    },
    /// Commits other producers' entries with its own.
    Leading(Leading),
}

impl Role {
    /// Returns whether this producer leads.
    pub(super) fn leads(&self) -> bool {
        matches!(self, Self::Leading(_))
    }

    /// Returns the time of the candidate's turn.
    pub(super) fn turn(&self) -> Option<Duration> {
        match *self {
            Self::Candidate { turn, .. } => Some(turn),
            _ => None,
        }
    }

    /// Returns the polls at which a leader passed over the oldest item.
    pub(super) fn passed(&self) -> Option<u32> {
        match *self {
            Self::Following { passed } => Some(passed),
            Self::Candidate { passed, .. } => passed,
            Self::Alone | Self::Leading(_) => None,
        }
    }

    /// Becomes a candidate whose turn is at `turn`.
    pub(super) fn stand(&mut self, turn: Duration) {
        let passed = self.passed();
        *self = Self::Candidate { turn, passed };
    }

    /// Stops being a candidate: another producer leads.
    pub(super) fn withdraw(&mut self) {
        if let Self::Candidate { passed, .. } = *self {
            *self = passed.map_or(Self::Alone, |passed| Self::Following { passed });
        }
    }

    /// Follows a leader and returns the polls at which a leader passed over the oldest item.
    pub(super) fn follow(&mut self) -> u32 {
        let passed = self.passed().unwrap_or(0);
        *self = Self::Following { passed };
        passed
    }

    /// Counts a poll that showed a leader's record.
    pub(super) fn count_passed(&mut self) {
        match self {
            Self::Following { passed }
            | Self::Candidate {
                passed: Some(passed),
                ..
            } => *passed += 1,
            _ => {}
        }
    }

    /// Restarts the count of polls: another item is the oldest.
    pub(super) fn forget_passed(&mut self) {
        match self {
            Self::Following { .. } => *self = Self::Alone,
            Self::Candidate { passed, .. } => *passed = None,
            Self::Alone | Self::Leading(_) => {}
        }
    }
}
