//! Reading the records of others: a few at a time, so that a ready commit does not wait for the rest.

use std::time::Duration;

use batchweave_core::commit_policy::Event;
use batchweave_core::manifest::Folded;

use super::{Committer, Next};
use crate::commit::candidates::seen_record;
use crate::commit::outcome::Stop;
use crate::error::LogError;

/// The largest window of an instance that fell behind once, in records.
const WINDOW_MAX: u64 = 16;
/// Full windows after which a catch-up looks for a snapshot.
const FULL_WINDOWS: u32 = 3;
/// Full windows after which a poll looks for one.
const POLL_FULL_WINDOWS: u32 = 5;
/// Up to this size of window a poll looks for a snapshot as early as a catch-up: reads are slow there, so
/// that it saves more.
const SMALL_WINDOW: u64 = 8;
/// An instance that has not polled for this time first finds out how far the log has grown.
const IDLE: Duration = Duration::from_secs(3);
/// Records kept for the policy from polls that it did not ask for.
const UNREPORTED_MAX: usize = 64;

/// A poll that was interrupted before the head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behind {
    /// The size of the next window.
    window: u64,
    /// The number of windows read.
    windows: u32,
    /// How long the last window took.
    took: Duration,
}

impl Committer {
    /// Folds new records while this instance is held back and puts nothing: jobs may open or close, and
    /// other producers take their turns. Returns why the instance can commit no more, if so.
    pub(crate) async fn refresh_head(&mut self) -> Result<Option<Stop>, LogError> {
        let (limiter, unreported) = (&mut self.limiter, &mut self.unreported);
        let note = |folded: &Folded| {
            limiter.note_placed(&folded.placed);
            unreported.extend(seen_record(folded).filter(|_| unreported.len() < UNREPORTED_MAX));
        };
        self.log.catch_up_noting(note).await?;
        Ok(self.settle())
    }

    pub(super) fn note<'f>(&mut self, folded: impl IntoIterator<Item = &'f Folded>) {
        for folded in folded {
            self.limiter.note_placed(&folded.placed);
        }
    }

    /// Folds up to the head. `to_leader`: where another instance leads, one window is enough, and the next
    /// call continues from there.
    pub(super) async fn catch_up(
        &mut self,
        expected: u64,
        to_leader: bool,
    ) -> Result<Next, LogError> {
        let mut seen = std::mem::take(&mut self.unreported);
        let since = self.log.clock.now().saturating_sub(self.polled);
        let interrupted = self.behind.take();
        let behind = interrupted.filter(|behind| since <= behind.took * 4);
        let (mut window, mut tries) = behind.map_or((expected, 0), |b| (b.window, b.windows));
        // Not twice, unless this call follows at once: a slow reader must reach the head some time.
        let to_leader = to_leader && (behind.is_some() || interrupted.is_none());
        loop {
            // A poll can wait, unless reads are slow and it reads few records at a time.
            let soon = !to_leader || window <= SMALL_WINDOW;
            if tries == POLL_FULL_WINDOWS || (tries == FULL_WINDOWS && soon) {
                self.log.jump().await?;
            }
            self.log.window = window;
            let now = self.log.clock.now();
            let far = tries == 0 && now.saturating_sub(self.polled) > IDLE;
            let (folded, at_head) = if far {
                self.log.catch_up_far(window).await?
            } else {
                self.log.catch_up_window().await?
            };
            self.polled = self.log.clock.now();
            self.note(&folded);
            seen.extend(folded.iter().filter_map(seen_record));
            let stop = self.settle();
            // Without pending commits the head does not matter.
            if at_head || stop.is_some() || self.pending.is_empty() {
                return Ok(Next::event_unless(stop, Event::CaughtUp(seen)));
            }
            // First a few more than expected, since reads of missing records cost as much as others; then
            // many more, so that a slow reader does not fall behind for ever.
            window = match tries {
                0 if far => self.log.window,
                0 => (window / 2).clamp(2, WINDOW_MAX),
                _ => (window * 2).clamp(2, 3 * WINDOW_MAX),
            };
            tries += 1;
            // Commits that became ready meanwhile need not wait for the head.
            if to_leader && seen.last().is_some_and(|r| r.leads) {
                let took = self.polled.saturating_sub(now);
                self.behind = Some(Behind {
                    window,
                    windows: tries,
                    took,
                });
                return Ok(Next::Event(Event::Behind(seen)));
            }
        }
    }
}
