//! The number of steps that are ready ahead of a rank.

use super::{Engine, SessionId, State};
use crate::engine::location::FrameId;

impl<R, E> Engine<R, E> {
    /// The number of complete steps in the arena from the rank's next one on, which it was not sent yet.
    pub(crate) fn ready_steps(&self, id: SessionId) -> u64 {
        let Some(session) = self.sessions.get(&id).filter(|session| !session.done) else {
            return 0;
        };
        let ready = |step| {
            // The slices of the current step that were sent are not counted as missing.
            let begins = FrameId {
                step,
                slice: session.slices.start,
            };
            let first = begins.max(session.next).slice;
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
