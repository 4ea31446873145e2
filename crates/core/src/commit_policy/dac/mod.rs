//! Decentralized adaptive commit (DAC): direct puts when few producers commit, announcements when many do,
//! combined records by a leader. Producers exchange no messages; each knows only what the store shows. The
//! algorithm was chosen by simulation (docs/performance.md, docs/adr/0007-dac.md).
//!
//! - `role`: the part that a producer plays; `race`, `follow`, `leading`: its actions in these parts;
//! - `view`: what the log shows, with `activity` (how many producers commit) and `link` (latencies);
//! - `rhythm`: intervals between requests; `constants`: thresholds.
//!
//! Invariants:
//! - every wait ends while an item is ready;
//! - a wrong leader, intent, hint or clock costs requests and time, nothing else;
//! - a producer takes itself to be alone only after two wins without a foreign record; then a commit is one
//!   put.

mod activity;
mod constants;
mod follow;
mod leading;
mod link;
mod race;
mod rhythm;
mod role;
mod view;

use std::time::Duration;

use self::constants::{ACTIVE_FOR, ALONE_AFTER, HOT, IDLE_FOR, MUTE_FOR, NEW_FOR, PASSED_MAX};
use self::leading::Leading;
use self::role::Role;
use self::view::View;
use super::random::Random;
use super::{Action, Event, Policy, Queue, SeenRecord};

/// The options of a producer's commit policy; `constants` holds the rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct DacOptions {
    /// The time that a TGB may take from ready to visible; zero means as fast as the store allows. One second
    /// instead of a tenth halves the requests of a busy stream.
    pub target: Duration,
    /// The seed of the jitter; must differ between producers.
    pub seed: u64,
}

/// The request under way. Its answer is the next event other than `Ready` and `Timer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Poll,
    Announce { then_sweep: bool },
    Sweep,
    PollBeforePut { others: usize },
    Put { leads: bool },
}

/// Races since the last commit, or since nothing was ready.
#[derive(Debug, Clone, Copy, Default)]
struct Races {
    lost: u32,
    /// Too many races are lost, or a leader failed: stop racing.
    hot: bool,
}

/// The reads of the log.
#[derive(Debug, Clone, Copy, Default)]
struct Polls {
    next: Duration,
    last: Duration,
    /// Records that the last poll expected.
    expected: u64,
    /// The last poll ended short of the head.
    behind: bool,
}

/// The commit policy of producers.
#[derive(Debug, Clone)]
pub struct Dac {
    options: DacOptions,
    random: Random,
    view: View,
    doing: Doing,
    /// When the request was made; `None` before the first, since the first event may answer a request of the
    /// policy before this one.
    began: Option<Duration>,
    role: Role,
    races: Races,
    polls: Polls,
    /// Nothing is committed yet: the number of producers that begin at the same moment is unknown.
    new: bool,
    /// The time of the first event.
    started: Option<Duration>,
    not_before: Duration,
    /// The store refused an intent: race until this time.
    mute_until: Duration,
    announced_at: Option<Duration>,
    oldest: Duration,
    /// A producer with nothing to commit stops following the log at this time.
    idle_until: Duration,
}

impl Dac {
    /// Returns the policy of a producer that knows nothing of the log.
    pub fn new(options: DacOptions) -> Self {
        Self {
            options,
            random: Random::new(options.seed),
            view: View::new(u64::from(Random::new(!options.seed).draw())),
            doing: Doing::Nothing,
            began: None,
            role: Role::Alone,
            races: Races::default(),
            polls: Polls::default(),
            new: true,
            started: None,
            not_before: Duration::ZERO,
            mute_until: Duration::ZERO,
            announced_at: None,
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

    fn poll(&mut self, now: Duration, doing: Doing) -> Action {
        let expected = self.view.expected(now, self.reads_at_once());
        self.polls.expected = expected;
        // A producer that can't announce puts next, and must know the head.
        let action = match doing {
            Doing::Poll if !self.is_mute(now) => Action::Poll(expected),
            _ => Action::CatchUp(expected),
        };
        self.act(now, doing, action)
    }

    /// Returns the next action when an item is ready or a wait is over.
    fn decide(&mut self, now: Duration, queue: Queue) -> Action {
        if self.role.leads() {
            return self.round(now, queue);
        }
        if queue.ready == 0 {
            (self.role, self.races) = (Role::Alone, Races::default());
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
        self.poll(now, Doing::Poll)
    }

    fn read(&mut self, now: Duration, took: Option<Duration>, records: &[SeenRecord]) {
        self.view.link.get_took(took);
        self.view
            .read(now, self.polls.expected, records.len() as u64);
        self.polls.last = now;
    }

    /// Waits with nothing ready. A producer that expects items soon keeps reading, a few records at a time,
    /// since a read of many takes as long as the slowest of them. A producer with slow reads does not: its next
    /// item would wait for the read.
    fn idle(&mut self, now: Duration) -> Action {
        self.doing = Doing::Nothing;
        let reads_on = now < self.idle_until && self.view.link.may_lead();
        let Some(read) = self.view.read_on().filter(|_| reads_on) else {
            return Action::Idle;
        };
        if now >= read {
            return self.poll(now, Doing::Poll);
        }
        self.wait(now, read)
    }

    /// Returns the next action when the head is folded without some of the own items.
    fn polled(&mut self, now: Duration, queue: Queue) -> Action {
        if queue.ready == 0 || self.role.leads() {
            self.new = false;
            return self.decide(now, queue);
        }
        if self.is_fresh(now) {
            self.role.withdraw();
            if queue.announced > 0 && self.role.follow() >= PASSED_MAX {
                return self.act(now, Doing::Sweep, Action::List);
            }
            self.polls.next = self.next_poll(now);
            return self.follow(now, queue);
        }
        if self.view.leader.take().is_some() && queue.announced > 0 {
            // All followers of a failed leader would sweep at the same time: spread them.
            self.races.hot = true;
            self.stand(now, self.view.active());
        }
        self.races.hot |= self.races.lost >= HOT;
        match self.role.turn() {
            Some(turn) if now < turn => {
                let poll = self.next_poll(now);
                self.wait(now, turn.min(poll))
            }
            _ => self.race(now, queue),
        }
    }

    fn won(
        &mut self,
        now: Duration,
        queue: Queue,
        leads: bool,
        others: &[u64],
        full: bool,
    ) -> Action {
        self.new = false;
        self.view.link.put_took(self.took(now));
        self.view.won(now, others, self.active_for());
        self.races = Races::default();
        self.role = if leads {
            self.view.leader = None;
            let mut leading = match self.role {
                Role::Leading(leading) => leading,
                _ => Leading::new(now, self.pace()),
            };
            if full {
                leading.had_no_room(others.len());
            }
            Role::Leading(leading)
        } else {
            Role::Alone
        };
        self.decide(now, queue)
    }

    fn lost(&mut self, now: Duration, queue: Queue, record: &SeenRecord) -> Action {
        self.note(now, std::slice::from_ref(record));
        if let Role::Leading(leading) = &mut self.role {
            if record.leads {
                self.role = Role::Alone;
            } else {
                // The other writer raced and does not lead: repeat the round.
                leading.next_round = now;
            }
        }
        self.races.lost += 1;
        let most = self.view.link.put() / 2 * (2_u32.pow(self.races.lost.min(3)) - 1);
        self.not_before = now + self.random.part(most);
        self.decide(now, queue)
    }

    fn announced(&mut self, now: Duration, queue: Queue) -> Action {
        self.announced_at = Some(now);
        // A slow producer keeps the time of its poll, or it would read the log only under load.
        let quick = self.view.link.may_lead();
        if self.polls.behind && !quick {
            self.polls.next = now;
        } else if quick || self.polls.next <= self.polls.last {
            self.polls.next = self.next_poll(now);
        }
        match self.doing {
            Doing::Announce { then_sweep: true } => self.act(now, Doing::Sweep, Action::List),
            _ => self.decide(now, queue),
        }
    }

    fn active_for(&self) -> Duration {
        ACTIVE_FOR.max(self.linger() * 4)
    }

    /// Updates the view with records of other writers.
    fn note(&mut self, now: Duration, records: &[SeenRecord]) {
        let led = self.view.note(now, records, self.pace(), self.active_for());
        if led > 0 {
            self.role.count_passed();
        }
    }
}

impl Policy for Dac {
    fn step(&mut self, now: Duration, queue: Queue, event: Event) -> Action {
        let took = self.took(now);
        let started = *self.started.get_or_insert(now);
        self.new &= now.saturating_sub(started) < NEW_FOR;
        if queue.oldest != self.oldest {
            self.oldest = queue.oldest;
            self.role.forget_passed();
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
                self.polls.behind = false;
                self.note(now, &records);
                match doing {
                    Doing::PollBeforePut { others } => self.put(now, queue, others),
                    _ => self.polled(now, queue),
                }
            }
            (Event::Announced(stored), _) => {
                if stored {
                    self.view.link.put_took(took);
                } else {
                    self.mute_until = now + MUTE_FOR;
                }
                self.announced(now, queue)
            }
            (Event::Listed(others), _) => {
                self.view.link.list_took(took);
                self.listed(now, queue, others)
            }
            (Event::Gathered(others), _) => self.gathered(now, queue, others),
            (Event::Won { others, full }, doing) => {
                let leads = matches!(doing, Doing::Put { leads: true });
                self.won(now, queue, leads, &others, full)
            }
            (Event::Lost(record), _) => self.lost(now, queue, &record),
            (Event::Ready | Event::Timer, _) => self.decide(now, queue),
        }
    }
}

#[cfg(test)]
mod tests;
