//! Decentralized adaptive commit: direct when it is quiet, announce when it is not, combine when
//! leading. Nobody talks to anybody; what a producer knows is what the store shows. The algorithm is
//! our own, chosen by simulation (docs/performance.md, docs/adr/0007-dac.md).
//!
//! Invariants:
//! - it never waits for ever while something is ready: every wait has an end;
//! - a leader, an intent, a hint or a clock that lies costs requests and time, nothing else;
//! - it is alone only after two wins without a foreign record, and then a commit is one put.

mod activity;
mod constants;
mod follow;
mod leading;
mod link;
mod rhythm;
mod view;

use std::time::Duration;

use self::constants::{
    ACTIVE_FOR, ALONE_AFTER, HOT, IDLE_FOR, MUTE_FOR, NEW_FOR, PASSED_MAX, SWEEP_EVERY, SWEEPERS,
};
use self::leading::Leading;
use self::view::View;
use super::random::Random;
use super::{Action, Event, Policy, Queue, SeenRecord};

/// How a producer commits. The rest are constants, below.
#[derive(Debug, Clone, Copy, Default)]
pub struct DacOptions {
    /// The one knob: how long a TGB may take from ready to visible. Zero: as fast as the store
    /// allows. One second instead of a tenth halves the requests of a busy stream.
    pub target: Duration,
    /// Feeds the jitter; must differ between producers.
    pub seed: u64,
}

/// What is under way; its answer is the next event but `Ready` and `Timer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Look,
    Announce { then_sweep: bool },
    Sweep,
    LookBeforePut { others: usize },
    Put { leads: bool },
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Dac {
    options: DacOptions,
    random: Random,
    view: View,
    doing: Doing,
    /// When it was asked for. The first event may tell of a policy before this one.
    began: Option<Duration>,
    leading: Option<Leading>,
    lost: u32,
    hot: bool,
    /// Nothing committed yet: nobody knows how many others begin at this moment.
    new: bool,
    /// The first event.
    started: Option<Duration>,
    not_before: Duration,
    look_at: Duration,
    /// When the log was looked at last, and how many records were expected then.
    looked: Duration,
    expected: u64,
    /// That look ended short of the head.
    behind: bool,
    /// The store refused an intent.
    mute_until: Duration,
    announced_at: Option<Duration>,
    /// When it is this producer's turn to sweep, if nobody else has.
    candidate_at: Option<Duration>,
    /// Looks at which a leader had gone on without the oldest item, since it was announced; what the
    /// first look shows may be older than the intent, and one look of a slow reader shows many.
    passed: Option<u32>,
    oldest: Duration,
    /// Who has had nothing for so long follows the log no more.
    idle_until: Duration,
}

impl Dac {
    /// A producer that knows nothing yet.
    pub fn new(options: DacOptions) -> Self {
        Self {
            options,
            random: Random::new(options.seed),
            view: View::new(u64::from(Random::new(!options.seed).draw())),
            doing: Doing::Nothing,
            began: None,
            leading: None,
            lost: 0,
            hot: false,
            new: true,
            not_before: Duration::ZERO,
            look_at: Duration::ZERO,
            looked: Duration::ZERO,
            expected: 0,
            behind: false,
            started: None,
            mute_until: Duration::ZERO,
            announced_at: None,
            candidate_at: None,
            passed: None,
            oldest: Duration::ZERO,
            idle_until: Duration::ZERO,
        }
    }

    fn wait(&mut self, now: Duration, until: Duration) -> Action {
        self.doing = Doing::Nothing;
        Action::Wait(until.saturating_sub(now).max(Duration::from_millis(1)))
    }

    fn act(&mut self, now: Duration, doing: Doing, action: Action) -> Action {
        self.doing = doing;
        self.began = Some(now);
        action
    }

    fn took(&self, now: Duration) -> Option<Duration> {
        self.began.map(|began| now.saturating_sub(began))
    }

    fn look(&mut self, now: Duration, doing: Doing) -> Action {
        let expected = self.view.expected(now, self.looked_at_once());
        self.expected = expected;
        // Who can't announce is going to put, and has to know the head.
        let action = match doing {
            Doing::Look if !self.is_mute(now) => Action::Poll(expected),
            _ => Action::CatchUp(expected),
        };
        self.act(now, doing, action)
    }

    /// Something is ready or a wait is over.
    fn decide(&mut self, now: Duration, queue: Queue) -> Action {
        if self.leading.is_some() {
            return self.round(now, queue);
        }
        if queue.ready == 0 {
            (self.lost, self.hot, self.candidate_at, self.passed) = (0, false, None, None);
            return self.idle(now);
        }
        let fresh = self.is_fresh(now) || self.is_believed(now, queue);
        if now < self.not_before && !fresh {
            return self.wait(now, self.not_before);
        }
        if fresh {
            return self.follow(now, queue);
        }
        let collected = queue.oldest + self.collect();
        if now < collected && queue.announced == 0 {
            return self.wait(now, collected);
        }
        if self.view.streak >= ALONE_AFTER && !self.new && queue.announced == 0 {
            return self.put(now, queue, 0);
        }
        self.look(now, Doing::Look)
    }

    fn read(&mut self, now: Duration, took: Option<Duration>, records: &[SeenRecord]) {
        self.view.link.get_took(took);
        self.view.read(now, self.expected, records.len() as u64);
        self.looked = now;
    }

    /// Nothing is ready. Who will have something before long reads on meanwhile, a few records at a
    /// time: to read many at once takes as long as the slowest of them. Not who reads so slowly that
    /// what is ready next would wait for it.
    fn idle(&mut self, now: Duration) -> Action {
        self.doing = Doing::Nothing;
        let reads_on = now < self.idle_until && self.view.link.may_lead();
        let Some(read) = self.view.read_on().filter(|_| reads_on) else {
            return Action::Idle;
        };
        if now >= read {
            return self.look(now, Doing::Look);
        }
        self.wait(now, read)
    }

    /// The head is folded and something of ours is still not in it.
    fn looked(&mut self, now: Duration, queue: Queue) -> Action {
        if queue.ready == 0 || self.leading.is_some() {
            self.new = false;
            return self.decide(now, queue);
        }
        if self.is_fresh(now) {
            self.candidate_at = None;
            if queue.announced > 0 && *self.passed.get_or_insert(0) >= PASSED_MAX {
                return self.act(now, Doing::Sweep, Action::List);
            }
            self.look_at = self.next_look(now);
            return self.follow(now, queue);
        }
        if self.view.leader.take().is_some() && queue.announced > 0 {
            // All who wait for a dead leader would sweep at once: spread them.
            self.hot = true;
            self.stand(now, self.view.active());
        }
        self.hot |= self.lost >= HOT;
        match self.candidate_at {
            Some(turn) if now < turn => {
                let look = self.next_look(now);
                self.wait(now, turn.min(look))
            }
            _ => self.race(now, queue),
        }
    }

    /// Draws when it is our turn to sweep among so many who might.
    fn stand(&mut self, now: Duration, rivals: u32) {
        let spread = self.view.link.sweep_of_others() * rivals / SWEEPERS;
        self.candidate_at = Some(now + self.random.part(spread));
    }

    /// Nobody leads: put, with a look at the intents when there may be some.
    fn race(&mut self, now: Duration, queue: Queue) -> Action {
        let crowd = self.hot || self.new || self.view.is_crowd();
        if crowd && queue.announced < queue.ready && !self.is_mute(now) {
            let doing = Doing::Announce { then_sweep: true };
            return self.act(now, doing, Action::Announce);
        }
        if crowd || queue.announced > 0 || self.view.versions.is_multiple_of(SWEEP_EVERY) {
            return self.act(now, Doing::Sweep, Action::List);
        }
        self.put(now, queue, 0)
    }

    fn put(&mut self, now: Duration, queue: Queue, others: usize) -> Action {
        if queue.ready == 0 {
            return self.decide(now, queue);
        }
        let leads = (self.hot || others >= 2) && self.view.link.may_lead();
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

    fn listed(&mut self, now: Duration, queue: Queue, others: usize) -> Action {
        if others == 0 {
            return self.gathered(now, queue, 0);
        }
        // The list tells how many are in the same place: most of them hold back.
        let many = others as u32 > 2 * SWEEPERS;
        if self.leading.is_none() && self.candidate_at.is_none() && many {
            let proceed = self.random.draw() < 1024 * SWEEPERS / others as u32;
            if !proceed {
                self.stand(now, others as u32);
                let look = self.next_look(now);
                let turn = self.candidate_at.unwrap_or(look);
                return self.wait(now, turn.min(look));
            }
        }
        self.act(now, Doing::Sweep, Action::Gather)
    }

    fn gathered(&mut self, now: Duration, queue: Queue, others: usize) -> Action {
        let Some(leading) = &mut self.leading else {
            return self.look(now, Doing::LookBeforePut { others });
        };
        let leads = leading.found(now, queue.ready, others);
        if queue.ready + others > 0 {
            return self.put_record(now, leads, others > 0);
        }
        if !leads {
            // Who steps down says so, or those who come later would wait for a leader.
            self.leading = None;
            return self.put_record(now, false, false);
        }
        self.decide(now, queue)
    }

    fn won(
        &mut self,
        now: Duration,
        queue: Queue,
        leads: bool,
        (others, full): (&[u64], bool),
    ) -> Action {
        self.new = false;
        self.view.link.put_took(self.took(now));
        self.view.won(now, others, self.active_for());
        (self.lost, self.hot, self.candidate_at, self.passed) = (0, false, None, None);
        let pace = self.pace();
        if leads {
            self.view.leader = None;
            let leading = self.leading.get_or_insert(Leading::new(now, pace));
            if full {
                leading.had_no_room(others.len());
            }
        } else {
            self.leading = None;
        }
        self.decide(now, queue)
    }

    fn lost(&mut self, now: Duration, queue: Queue, record: &SeenRecord) -> Action {
        self.note(now, std::slice::from_ref(record));
        match &mut self.leading {
            // Somebody raced, nobody took over: the round is repeated.
            Some(leading) if !record.leads => leading.next_round = now,
            _ => self.leading = None,
        }
        self.lost += 1;
        let most = self.view.link.put() / 2 * (2_u32.pow(self.lost.min(3)) - 1);
        self.not_before = now + self.random.part(most);
        self.decide(now, queue)
    }

    fn active_for(&self) -> Duration {
        ACTIVE_FOR.max(self.linger() * 4)
    }

    /// Learns from what others have written.
    fn note(&mut self, now: Duration, records: &[SeenRecord]) {
        let led = self.view.note(now, records, self.pace(), self.active_for());
        self.passed = self.passed.map(|passed| passed + u32::from(led > 0));
    }
}

impl Policy for Dac {
    fn step(&mut self, now: Duration, queue: Queue, event: Event) -> Action {
        let took = self.took(now);
        let started = *self.started.get_or_insert(now);
        self.new &= now.saturating_sub(started) < NEW_FOR;
        if queue.oldest != self.oldest {
            // Another item is the oldest: nobody has passed it over yet.
            (self.oldest, self.passed) = (queue.oldest, None);
            self.idle_until = now + IDLE_FOR;
        }
        match (event, self.doing) {
            (Event::Behind(records), _) => {
                self.read(now, took, &records);
                self.view
                    .note(now, &records, self.pace(), self.active_for());
                self.read_some(now, queue)
            }
            (Event::CaughtUp(records), doing) => {
                self.read(now, took, &records);
                self.behind = false;
                self.note(now, &records);
                match doing {
                    Doing::LookBeforePut { others } => self.put(now, queue, others),
                    _ => self.looked(now, queue),
                }
            }
            (Event::Announced(stored), doing) => {
                if stored {
                    self.view.link.put_took(took);
                } else {
                    self.mute_until = now + MUTE_FOR;
                }
                self.announced_at = Some(now);
                // Who is slow puts no look off, or it would read the log only when somebody waits.
                let quick = self.view.link.may_lead();
                if self.behind && !quick {
                    self.look_at = now;
                } else if quick || self.look_at <= self.looked {
                    self.look_at = self.next_look(now);
                }
                match doing {
                    Doing::Announce { then_sweep: true } => {
                        self.act(now, Doing::Sweep, Action::List)
                    }
                    _ => self.decide(now, queue),
                }
            }
            (Event::Listed(others), _) => {
                self.view.link.list_took(took);
                self.listed(now, queue, others)
            }
            (Event::Gathered(others), _) => self.gathered(now, queue, others),
            (Event::Won { others, full }, doing) => {
                let leads = matches!(doing, Doing::Put { leads: true });
                self.won(now, queue, leads, (&others, full))
            }
            (Event::Lost(record), _) => self.lost(now, queue, &record),
            (Event::Ready | Event::Timer, _) => self.decide(now, queue),
        }
    }
}

#[cfg(test)]
mod tests;
