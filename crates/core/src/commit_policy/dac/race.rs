//! Putting records: a leader's rounds, when to sweep for other producers' intents first, and which records to put.

use std::time::Duration;

use super::super::{Action, Queue};
use super::constants::{SWEEP_EVERY, SWEEPERS};
use super::role::Role;
use super::{Dac, Doing};

impl Dac {
    /// Runs a leader's round when it is due.
    pub(super) fn round(&mut self, now: Duration, queue: Queue) -> Action {
        let pace = self.pace();
        let Role::Leading(leading) = &mut self.role else {
            return Action::Idle;
        };
        if leading.is_due(now, queue.ready) {
            leading.begin(now, pace);
            return self.act(now, Doing::Sweep, Action::List);
        }
        let next = leading.next_round;
        self.wait(now, next)
    }

    /// Draws the time at which to sweep, among this many rivals.
    pub(super) fn stand(&mut self, now: Duration, rivals: u32) -> Duration {
        let spread = self.view.link.sweep_of_others() * rivals / SWEEPERS;
        let turn = now + self.random.part(spread);
        self.role.stand(turn);
        turn
    }

    /// Puts without a leader, after a sweep when there may be intents.
    pub(super) fn race(&mut self, now: Duration, queue: Queue) -> Action {
        let crowd = self.races.hot || self.new || self.view.is_crowd();
        if crowd && queue.announced < queue.ready && !self.is_mute(now) {
            let doing = Doing::Announce { then_sweep: true };
            return self.act(now, doing, Action::Announce);
        }
        if crowd || queue.announced > 0 || self.view.versions.is_multiple_of(SWEEP_EVERY) {
            return self.act(now, Doing::Sweep, Action::List);
        }
        self.put(now, queue, 0)
    }

    pub(super) fn put(&mut self, now: Duration, queue: Queue, others: usize) -> Action {
        if queue.ready == 0 {
            return self.decide(now, queue);
        }
        let leads = (self.races.hot || others >= 2) && self.view.link.may_lead();
        self.put_record(now, leads, others > 0)
    }

    fn put_record(&mut self, now: Duration, leads: bool, combine: bool) -> Action {
        let put_ms = Some(self.view.link.put_ms());
        let action = Action::Put {
            leads,
            combine,
            put_ms,
        };
        self.act(now, Doing::Put { leads }, action)
    }

    pub(super) fn listed(&mut self, now: Duration, queue: Queue, others: usize) -> Action {
        if others == 0 {
            return self.gathered(now, queue, 0);
        }
        // The list shows how many producers are in the same state: most of them hold back.
        let many = others as u32 > 2 * SWEEPERS;
        if !self.role.leads() && self.role.turn().is_none() && many {
            let proceed = self.random.draw() < 1024 * SWEEPERS / others as u32;
            if !proceed {
                let turn = self.stand(now, others as u32);
                let poll = self.next_poll(now);
                return self.wait(now, turn.min(poll));
            }
        }
        self.act(now, Doing::Sweep, Action::Gather)
    }

    pub(super) fn gathered(&mut self, now: Duration, queue: Queue, others: usize) -> Action {
        let Role::Leading(leading) = &mut self.role else {
            return self.poll(now, Doing::PollBeforePut { others });
        };
        let leads = leading.found(now, queue.ready, others);
        if queue.ready + others > 0 {
            return self.put_record(now, leads, others > 0);
        }
        if !leads {
            // A leader that steps down writes a record, or producers that begin later would wait for it.
            self.role = Role::Alone;
            return self.put_record(now, false, false);
        }
        self.decide(now, queue)
    }
}
