//! When and how the head of the log is polled: as often as its readers need, and no more often than the store and the
//! budget allow.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::polling::{PollSchedule, PollState, QuickPolls, followers};
use batchweave_log::{Follower, Log, LogError};

use crate::config::FollowTable;
use crate::node::{Needs, Node};

/// The least factor of the jitter of polls that read bundles, and its range.
const JITTER: (f64, f64) = (0.9, 0.2);

/// The polls of one follower.
pub(super) struct Polls {
    schedule: PollSchedule,
    follower: Follower,
    quick: QuickPolls,
    /// The end of the last poll.
    last: Duration,
    /// More records may follow those of the last poll.
    more: bool,
}

/// When the next poll is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    pub(super) at: Duration,
    /// It is taken from the budget of quick polls.
    quick: bool,
}

impl Polls {
    pub(super) fn new(table: &FollowTable, steps_ahead: u64, now: Duration) -> Self {
        Self {
            schedule: PollSchedule {
                starved: table.starved.0,
                idle: table.idle.0,
                steps_ahead,
            },
            follower: Follower::default(),
            quick: QuickPolls::new(table.quick_polls, now),
            last: now,
            more: false,
        }
    }

    /// Whether a rank is so near to the head that a new record is wanted at once.
    pub(super) fn wants_hints(&self, needs: &Needs) -> bool {
        needs.hurry
            || needs
                .lead
                .is_some_and(|lead| lead < self.schedule.steps_ahead)
    }

    /// Returns when the next poll is due. `hinted`: the store reports new records by itself.
    pub(super) fn due(&mut self, log: &Log, node: &Node, needs: &Needs, hinted: bool) -> Due {
        let context = &node.resources.context;
        let after = |pause: Duration, quick| Due {
            at: self.last + pause,
            quick,
        };
        if self.more {
            return after(Duration::ZERO, false);
        }
        let followers = followers(log.manifest(), needs.coordinates);
        let lead = if needs.hurry { Some(0) } else { needs.lead };
        if let Some(pause) = self.follower.pause(log, lead, followers) {
            let jitter = JITTER.0 + JITTER.1 * context.random(0.0..1.0);
            return after(pause.mul_f64(jitter), false);
        }
        let starved = lead == Some(0) && !hinted;
        let quick = starved
            .then(|| self.quick.pause(self.schedule.starved, context.now()))
            .flatten();
        let now = PollState {
            lead: needs.lead,
            hurry: needs.hurry,
            followers,
            quick,
        };
        let pause = self.schedule.pause(now, context.random(0.0..1.0));
        after(pause, quick.is_some())
    }

    /// Polls the log because it is due.
    pub(super) async fn poll(
        &mut self,
        log: &mut Log,
        node: &Arc<Node>,
        needs: &Needs,
        due: Due,
    ) -> Result<(), LogError> {
        let context = &node.resources.context;
        if due.quick && !self.more {
            self.quick.take();
            node.resources.metrics.quick_polls.inc();
        }
        let (next, began) = (log.manifest().next_version(), context.now());
        let followers = followers(log.manifest(), needs.coordinates);
        let outcome = self.follower.poll(log, followers, || context.now()).await;
        self.last = context.now();
        self.more = *outcome.as_ref().unwrap_or(&false);
        if outcome.is_ok() && log.manifest().next_version() == next {
            self.quick.note_read(self.last.saturating_sub(began));
        }
        outcome.map(|_| ())
    }

    /// Reads the log to its head because somebody waits for that.
    pub(super) async fn poll_head(&mut self, log: &mut Log, node: &Node) -> Result<(), LogError> {
        let outcome = log.catch_up().await;
        self.last = node.resources.context.now();
        self.more = false;
        outcome
    }
}
