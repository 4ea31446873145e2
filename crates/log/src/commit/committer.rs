//! One instance of a producer in the log, which every later instance of the same name fences. It turns
//! the actions of a policy into requests, and their results into events.
//!
//! Invariants:
//! - a record is put only with entries that are valid by the state that it follows;
//! - an announced entry is put again by its owner with the same items, so whichever lands first makes
//!   the other void, never a duplicate.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::commit_policy::{Action, Event, Policy, Queue, SeenRecord};
use batchweave_core::cursor::Cursor;
use batchweave_core::guards;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, Step, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::state::ProducerState;
use batchweave_core::tgb::Digest;

use crate::clock::Clock;
use crate::commit::intents::Intents;
use crate::commit::mixtures::MixturesInLog;
use crate::commit::outcome::{self, Phase, Stop};
use crate::commit::pending::PendingCommits;
use crate::error::LogError;
use crate::flow_control::limiter::Limiter;
use crate::log::Log;

mod catch_up;
mod open;
mod put;

use self::catch_up::Behind;
pub use self::open::OpenOutcome;

/// The consequence of an action.
#[derive(Debug)]
pub(crate) enum Next {
    /// Ask the policy again after this time, or when more is ready.
    Wait(Option<Duration>),
    /// Ask the policy again at once with this event.
    Event(Event),
    /// This instance can commit no more.
    Stopped(Stop),
}

impl Next {
    /// Returns the event, unless the instance was stopped.
    fn event_unless(stop: Option<Stop>, event: Event) -> Self {
        stop.map_or(Self::Event(event), Self::Stopped)
    }
}

/// Counters of an instance since its commit task began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) records: u64,
    pub(crate) lost: u64,
    pub(crate) announced: u64,
    pub(crate) combined: u64,
    pub(crate) version: Option<Version>,
    pub(crate) next_step: Step,
    pub(crate) latency: Duration,
}

/// An instance of a producer, opening or open.
#[derive(Debug)]
pub struct Committer {
    pub(crate) log: Log,
    name: ProducerName,
    nonce: Nonce,
    phase: Phase,
    pub(crate) pending: PendingCommits,
    pub(crate) limiter: Limiter,
    pub(crate) counters: Counters,
    intents: Intents,
    /// Pending commits, from the front, that are announced.
    announced: usize,
    /// The next sequence number as last seen: it never decreases.
    seen_seq: Seq,
    /// Our last record says that we continue to combine, and no other producer took over.
    pub(crate) leading: bool,
    /// When the log was last polled.
    polled: Duration,
    /// A poll that ended before the head.
    behind: Option<Behind>,
    /// Records seen by polls that no policy asked for.
    unreported: Vec<SeenRecord>,
    /// The event with which opening ended: the commit task reports it to its policy first.
    pub(crate) first_event: Option<Event>,
}

impl Committer {
    fn new(
        log: Log,
        name: ProducerName,
        nonce: Nonce,
        phase: Phase,
        tgbs_per_entry: usize,
    ) -> Self {
        let intents = Intents::new(Arc::clone(&log.raw), log.manifest.stream_id());
        let next_seq = log.manifest.producer(&name).map_or(0, |p| p.next_seq);
        let polled = log.clock.now();
        Self {
            pending: PendingCommits::new(name.clone(), nonce, next_seq, tgbs_per_entry),
            log,
            name,
            nonce,
            phase,
            limiter: Limiter::default(),
            counters: Counters::default(),
            intents,
            announced: 0,
            seen_seq: next_seq,
            leading: false,
            polled,
            behind: None,
            unreported: Vec::new(),
            first_event: None,
        }
    }

    /// The same instance without pending commits, and with counters at zero.
    pub(crate) fn restarted(self, tgbs_per_entry: usize) -> Self {
        let new = Self::new(self.log, self.name, self.nonce, self.phase, tgbs_per_entry);
        Self {
            leading: self.leading,
            ..new
        }
    }

    /// The name of the producer.
    pub fn name(&self) -> &ProducerName {
        &self.name
    }

    /// The epoch in which this instance opened the producer; 0 while it is opening.
    pub fn epoch(&self) -> Epoch {
        match self.phase {
            Phase::Opening { .. } => 0,
            Phase::Open(epoch) => epoch,
        }
    }

    /// The nonce of this instance, a part of its data keys.
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The log, folded to the last commit or poll.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the log, for commits without a commit task.
    pub fn into_log(self) -> Log {
        self.log
    }

    /// The cursor of the producer: its position in its input.
    pub fn cursor(&self) -> Cursor {
        self.state().map(|p| p.cursor.clone()).unwrap_or_default()
    }

    /// The sequence number of the next TGB.
    pub fn next_seq(&self) -> Seq {
        self.state().map_or(0, |p| p.next_seq)
    }

    /// The sequence number of the first TGB that is made from the cursor: in a fork it may lie before the next one.
    pub fn made_from(&self) -> Seq {
        self.state().map_or(0, ProducerState::made_from)
    }

    /// The digests of the TGBs from there to the next one, which the parent of a fork has.
    pub fn repeated(&self) -> Vec<Digest> {
        let again = self.state().and_then(|p| p.again.as_ref());
        again.map(|again| again.digests.clone()).unwrap_or_default()
    }

    /// The changes of the mixture that the log has for the producer.
    pub fn mixtures(&self) -> MixturesInLog {
        MixturesInLog {
            from: self.state().map(|p| p.mixtures.clone()).unwrap_or_default(),
            last: self.log.manifest.mixture().clone(),
        }
    }

    /// The state of the producer, if it was ever opened.
    pub fn state(&self) -> Option<&ProducerState> {
        self.log.manifest.producer(&self.name)
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.log.clock)
    }

    pub(crate) fn refused_intents(&self) -> u64 {
        self.intents.refused()
    }

    /// Fails when committed items are gone: a log that was folded again may lack items that the first
    /// fold had.
    fn check_seen_seq(&mut self) -> Result<(), LogError> {
        let (was, now) = (self.seen_seq, self.next_seq());
        if now < was {
            let producer = self.name.clone();
            return Err(LogError::Undone { producer, was, now });
        }
        self.seen_seq = now;
        Ok(())
    }

    /// Resolves, before the first item, a put of this producer whose future was dropped. Items that were
    /// built on an older state are refused by their keys, never committed twice.
    pub(crate) async fn recover(&mut self) -> Result<(), LogError> {
        if self.log.resolve_open().await?.is_some() {
            self.pending.start_at(self.next_seq());
        }
        Ok(())
    }

    /// Asks the policy for its next action and carries it out.
    pub(crate) async fn advance(
        &mut self,
        policy: &mut dyn Policy,
        event: Event,
    ) -> Result<Next, LogError> {
        self.admit().await?;
        self.check_seen_seq()?;
        let now = self.log.clock.now();
        let ready = self.pending.admitted();
        let oldest = self.pending.oldest().filter(|_| ready > 0);
        let queue = Queue {
            ready,
            announced: self.announced.min(ready),
            oldest: oldest.unwrap_or(now),
        };
        Ok(match policy.step(now, queue, event) {
            Action::Idle => Next::Wait(None),
            Action::Wait(time) => Next::Wait(Some(time)),
            Action::CatchUp(expected) => self.catch_up(expected, false).await?,
            Action::Poll(expected) => match self.catch_up(expected, true).await {
                // Nothing waits for this poll: a later one will do.
                Err(e) if e.may_pass() && self.pending.is_empty() => {
                    Next::Event(Event::CaughtUp(Vec::new()))
                }
                polled => polled?,
            },
            Action::Announce => Next::Event(self.announce().await),
            // All listed intents were above the ceiling a moment ago, and nothing has changed.
            Action::List if self.limiter.is_blocked_at(self.log.manifest.next_version()) => {
                Next::Event(Event::Listed(0))
            }
            Action::List => {
                let start = self.log.random();
                let listed = self
                    .intents
                    .list(&self.log.manifest, &self.name, start, now);
                Next::Event(Event::Listed(listed.await))
            }
            Action::Gather => {
                let others = self.intents.gather(&self.log.manifest).await;
                Next::Event(Event::Gathered(others))
            }
            Action::Put {
                leads,
                combine,
                put_ms,
            } => self.put(leads, combine, put_ms).await?,
        })
    }

    /// Finds the pending commits below the ceiling, by the state that the next record follows.
    async fn admit(&mut self) -> Result<(), LogError> {
        let epoch = self.epoch();
        let Some(mut gate) = self.limiter.gate(&mut self.log).await? else {
            self.pending.admit(None, epoch, Duration::ZERO);
            return Ok(());
        };
        let now = self.log.clock.now();
        let held = self.pending.admit(Some(&mut gate), epoch, now);
        self.limiter.note_held(held, now);
        Ok(())
    }

    /// Whether all pending commits are above the ceiling.
    pub(crate) fn is_held_back(&self) -> bool {
        !self.pending.is_empty() && self.pending.admitted() == 0
    }

    /// Drops committed items; returns why this instance can commit no more, if so.
    fn settle(&mut self) -> Option<Stop> {
        let manifest = &self.log.manifest;
        let state = manifest.producer(&self.name);
        let oldest = self.pending.oldest();
        let settled = self.pending.settle(state);
        self.announced = self.announced.saturating_sub(settled);
        if let (1.., Some(oldest)) = (settled, oldest) {
            self.counters.latency = self.log.clock.now().saturating_sub(oldest);
            self.counters.next_step = manifest.next_step();
        }
        if let Some(open) = state.filter(|p| p.nonce == self.nonce) {
            self.phase = Phase::Open(open.epoch);
        }
        let current = state.map_or(0, |p| p.epoch);
        if let Phase::Opening { announced, .. } = &mut self.phase
            && announced.is_some_and(|epoch| epoch <= current)
            && !guards::announces_opening_once()
        {
            // Another instance has the epoch of the announced opening: a new one is announced.
            *announced = None;
            self.announced = 0;
        }
        let next_seq = state.map_or(0, |p| p.next_seq);
        let finished = state.is_some_and(|p| p.finished);
        self.intents.forget_own(|entry| match entry {
            Entry::Opened(e) => e.epoch <= current,
            // A partly committed entry cannot become valid any more either.
            Entry::Batch(e) => e.epoch < current || e.first_seq < next_seq,
            _ => finished,
        });
        self.stopped()
    }

    fn stopped(&self) -> Option<Stop> {
        let sealable = self.pending.is_stopped_by_seal();
        let stop = outcome::stopped(&self.log.manifest, &self.name, self.phase, sealable);
        let mixture = || self.pending.is_of_other_mixture(&self.log.manifest);
        stop.or_else(|| mixture().then_some(Stop::Mixture))
    }

    /// The epoch of our entries: that of this instance, or the one that it wants to open.
    fn entry_epoch(&self) -> Epoch {
        match self.phase {
            Phase::Opening { .. } => self.state().map_or(0, |p| p.epoch) + 1,
            Phase::Open(epoch) => epoch,
        }
    }

    /// Waits for the requests under way. A finish is confirmed by a second fold before it is reported.
    pub(crate) async fn end(&mut self, finished: bool) -> Result<(), LogError> {
        self.intents.settle().await;
        self.log.settle_snapshots().await;
        self.check_seen_seq()?;
        if finished {
            self.log.confirm().await?;
        }
        Ok(())
    }
}
