//! Reading what others have written: a few records at a time, so that nothing waits for the rest.

use std::time::Duration;

use batchweave_core::commit_policy::Event;
use batchweave_core::manifest::Folded;

use super::Committer;
use crate::LogError;
use crate::commit::candidates::seen_record;
use crate::commit::outcome::Stop;

/// Records read at once by one that fell behind.
const WINDOW_MAX: u64 = 16;
/// Windows full of records after which a snapshot is looked for, and those of a look.
const FULL_WINDOWS: u32 = 3;
const LOOKED: u32 = 5;
/// Where windows are no larger, many read and each read is dear: a snapshot spares more.
const FEW: u64 = 8;
/// Who has not looked at the log for so long asks first how far it has gone.
const IDLE: Duration = Duration::from_secs(3);
/// Records remembered from looks of our own.
const ASIDE_MAX: usize = 64;

/// A look that was interrupted: how to go on, and what the last window took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behind {
    window: u64,
    windows: u32,
    took: Duration,
}

impl Committer {
    /// Folds what there is, for one who is held and puts nothing: jobs open, others' turns pass.
    pub(crate) async fn look(&mut self) -> Result<Result<(), Stop>, LogError> {
        let (ahead, aside) = (&mut self.ahead, &mut self.aside);
        let note = |folded: &Folded| {
            ahead.note(&folded.placed);
            aside.extend(seen_record(folded).filter(|_| aside.len() < ASIDE_MAX));
        };
        self.log.catch_up_noting(note).await?;
        Ok(self.settle())
    }

    pub(super) fn note<'f>(&mut self, folded: impl IntoIterator<Item = &'f Folded>) {
        for folded in folded {
            self.ahead.note(&folded.placed);
        }
    }

    /// `to_leader`: where somebody leads one window is enough; the next call goes on from there.
    pub(super) async fn catch_up(
        &mut self,
        expected: u64,
        to_leader: bool,
    ) -> Result<Result<Event, Stop>, LogError> {
        let mut seen = std::mem::take(&mut self.aside);
        let since = self.log.clock.now().saturating_sub(self.looked);
        let interrupted = self.behind.take();
        let behind = interrupted.filter(|behind| since <= behind.took * 4);
        let (mut window, mut tries) = behind.map_or((expected, 0), |b| (b.window, b.windows));
        // Not twice, unless it goes on at once: a reader that is behind must not stay behind.
        let to_leader = to_leader && (behind.is_some() || interrupted.is_none());
        loop {
            // A look is in no hurry, unless reads are so dear that it reads few at a time.
            let soon = !to_leader || window <= FEW;
            if tries == LOOKED || (tries == FULL_WINDOWS && soon) {
                self.log.jump().await?;
            }
            self.log.window = window;
            let now = self.log.clock.now();
            let far = tries == 0 && now.saturating_sub(self.looked) > IDLE;
            let (folded, at_head) = if far {
                self.log.catch_up_far(window).await?
            } else {
                self.log.catch_up_window().await?
            };
            self.looked = self.log.clock.now();
            self.note(&folded);
            seen.extend(folded.iter().filter_map(seen_record));
            let settled = self.settle();
            // Who has nothing left to commit need not know the head.
            if at_head || settled.is_err() || self.wants.is_empty() {
                return Ok(settled.map(|()| Event::CaughtUp(seen)));
            }
            // A few more than expected, since reads of what is not there yet cost as much as others;
            // then many more, for a slow reader must not fall behind for ever.
            window = match tries {
                0 if far => self.log.window,
                0 => (window / 2).clamp(2, WINDOW_MAX),
                _ => (window * 2).clamp(2, 3 * WINDOW_MAX),
            };
            tries += 1;
            // What has become ready meanwhile need not wait for the head.
            if to_leader && seen.last().is_some_and(|r| r.leads) {
                let took = self.looked.saturating_sub(now);
                self.behind = Some(Behind {
                    window,
                    windows: tries,
                    took,
                });
                return Ok(Ok(Event::Behind(seen)));
            }
        }
    }
}
