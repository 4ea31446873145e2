//! Following a leader: whether there is one, announcing entries to it, and when to poll for its records.

use std::time::Duration;

use super::super::{Action, Queue};
use super::constants::{QUIET_AFTER, QUIET_PACE};
use super::{Dac, Doing};

impl Dac {
    /// Returns whether there is a leader to announce to. A producer that can't announce races.
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        !self.is_mute(now) && (self.view.is_fresh(now, self.pace()) || self.is_notified(now))
    }

    /// Returns whether a leader that stays through silence may not have seen the last announcement yet.
    fn is_notified(&self, now: Duration) -> bool {
        let announced = self.announced_at.filter(|at| *at >= self.oldest);
        let (Some(at), Some(seen)) = (announced, self.view.stays(now)) else {
            return false;
        };
        let patience = self.view.link.patience() + QUIET_PACE;
        at.saturating_sub(seen) > QUIET_AFTER && now.saturating_sub(at) < patience
    }

    pub(super) fn is_mute(&self, now: Duration) -> bool {
        now < self.mute_until
    }

    /// Returns whether the last poll, before anything was ready, showed a leader. Its silence since then means
    /// nothing, and an announcement costs little: the next poll decides.
    pub(super) fn is_believed(&self, now: Duration, queue: Queue) -> bool {
        let unpolled = queue.oldest >= self.polls.last && queue.ready > 0;
        unpolled && !self.is_mute(now) && self.view.is_remembered(now)
    }

    /// Returns when to poll for a leader's record with the announced entries: it lists within its gap, and its
    /// record is there one sweep later.
    pub(super) fn next_poll(&mut self, now: Duration) -> Duration {
        let gap = self.view.leader.map_or(self.pace(), |leader| leader.gap);
        let least = gap * 5 / 4 + self.view.link.sweep();
        now + self.random.from(least.max(self.poll_every()))
    }

    /// Returns when new items may be announced.
    fn announce_at(&self, now: Duration) -> Duration {
        self.announced_at.map_or(now, |at| at + self.linger())
    }

    /// Announces what is ready and polls for the leader's records.
    pub(super) fn follow(&mut self, now: Duration, queue: Queue) -> Action {
        let mut until = None;
        if queue.announced < queue.ready {
            let due = self.announce_at(now);
            if now >= due {
                let doing = Doing::Announce { then_sweep: false };
                return self.act(now, doing, Action::Announce);
            }
            until = Some(due);
        }
        if queue.announced > 0 {
            if now >= self.polls.next {
                return self.poll(now, Doing::Poll);
            }
            until = Some(until.map_or(self.polls.next, |due| due.min(self.polls.next)));
        }
        self.wait(now, until.unwrap_or(self.polls.next))
    }

    /// Continues a poll that ended short of the head; announces first what became ready meanwhile.
    pub(super) fn read_some(&mut self, now: Duration, queue: Queue) -> Action {
        self.polls.behind = true;
        if queue.ready == 0 || self.role.leads() {
            return self.decide(now, queue);
        }
        let due = now >= self.announce_at(now);
        if queue.announced < queue.ready && due && self.is_fresh(now) {
            let doing = Doing::Announce { then_sweep: false };
            return self.act(now, doing, Action::Announce);
        }
        self.poll(now, Doing::Poll)
    }
}
