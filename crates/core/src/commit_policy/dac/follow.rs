//! Following a leader: whether there is one, telling it, and when to look whether it has listened.

use std::time::Duration;

use super::super::{Action, Queue};
use super::constants::{QUIET_AFTER, QUIET_PACE};
use super::{Dac, Doing};

impl Dac {
    /// Whether there is a leader to tell. Who can't announce tells nobody, and races.
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        !self.is_mute(now) && (self.view.is_fresh(now, self.pace()) || self.is_told(now))
    }

    /// Whether a leader that stays through silence was told so lately that it may not have looked.
    fn is_told(&self, now: Duration) -> bool {
        let told = self.announced_at.filter(|at| *at >= self.oldest);
        let (Some(at), Some(heard)) = (told, self.view.stays(now)) else {
            return false;
        };
        let patience = self.view.link.patience() + QUIET_PACE;
        at.saturating_sub(heard) > QUIET_AFTER && now.saturating_sub(at) < patience
    }

    pub(super) fn is_mute(&self, now: Duration) -> bool {
        now < self.mute_until
    }

    /// Whether there was a leader when we looked last, before anything was ready: it is silent because
    /// we did not listen. To announce costs little, and the next look tells.
    pub(super) fn is_believed(&self, now: Duration, queue: Queue) -> bool {
        let unheard = queue.oldest >= self.looked && queue.ready > 0;
        unheard && !self.is_mute(now) && self.view.is_remembered(now)
    }

    /// When to look whether a leader has taken what was announced: it lists within its gap, and a
    /// sweep later its record is there.
    pub(super) fn next_look(&mut self, now: Duration) -> Duration {
        let gap = self.view.leader.map_or(self.pace(), |leader| leader.gap);
        let least = gap * 5 / 4 + self.view.link.sweep();
        now + self.random.from(least.max(self.look_every()))
    }

    /// When what is new may be announced.
    fn announce_at(&self, now: Duration) -> Duration {
        self.announced_at.map_or(now, |at| at + self.linger())
    }

    /// A leader is at work: announce, and look now and then whether it has taken our entries.
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
            if now >= self.look_at {
                return self.look(now, Doing::Look);
            }
            until = Some(until.map_or(self.look_at, |due| due.min(self.look_at)));
        }
        self.wait(now, until.unwrap_or(self.look_at))
    }

    /// The leader's records are not all read yet: what became ready meanwhile does not wait for that.
    pub(super) fn read_some(&mut self, now: Duration, queue: Queue) -> Action {
        self.behind = true;
        if queue.ready == 0 || self.leading.is_some() {
            return self.decide(now, queue);
        }
        let due = now >= self.announce_at(now);
        if queue.announced < queue.ready && due && self.is_fresh(now) {
            let doing = Doing::Announce { then_sweep: false };
            return self.act(now, doing, Action::Announce);
        }
        self.look(now, Doing::Look)
    }
}
