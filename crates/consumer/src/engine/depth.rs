//! How far what is fetched reaches ahead of a rank.

use super::{Engine, SessionId, State};
use crate::engine::location::FrameId;

impl<R, E> Engine<R, E> {
    /// Whole steps from the rank's next one on that are in the arena and that it was not sent yet.
    pub(crate) fn ready_steps(&self, id: SessionId) -> u64 {
        let Some(session) = self.sessions.get(&id).filter(|session| !session.done) else {
            return 0;
        };
        let ready = |step| {
            // Of the step that is being sent, what was sent is no longer missing.
            let first = FrameId {
                step,
                slice: session.slices.start,
            };
            let first = first.max(session.next).slice;
            (first..session.slices.end).all(|slice| {
                let frame = self.frames.get(&FrameId { step, slice });
                frame.is_some_and(|frame| matches!(frame.state, State::Ready(_)))
            })
        };
        let most = self.limits.steps_ahead;
        let missing = (0..most).find(|count| !ready(session.ahead(*count)));
        missing.unwrap_or(most)
    }
}
