//! Why a rank's next frame was not pushed.

use super::{Cause, Engine, SessionId, State, TooLarge};

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// Returns why a rank's next frame was not pushed; `None` when nothing is missing.
    pub(crate) fn cause(&self, id: SessionId) -> Option<Cause> {
        let session = self.sessions.get(&id)?;
        if session.done {
            return None;
        }
        if !session.has_credit() {
            return Some(Cause::Held);
        }
        if !session.has_share(self.free_bytes()) {
            return Some(Cause::Share);
        }
        match self.frames.get(&session.next) {
            Some(frame) if frame.stale => Some(Cause::Unknown),
            Some(frame) => match frame.state {
                State::Fetching if frame.stalled => Some(Cause::Backpressure),
                State::Fetching => Some(Cause::Fetching),
                _ => None,
            },
            None if self.location(session.next).is_none() => Some(Cause::Unknown),
            None => Some(Cause::ArenaFull),
        }
    }

    /// The bytes of the arena that no rank holds.
    pub(super) fn free_bytes(&self) -> u64 {
        self.limits.arena_bytes.saturating_sub(self.held_bytes)
    }
}
