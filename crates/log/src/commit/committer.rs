//! Turns the actions of a policy into requests, and what came of them into events.
//!
//! Invariants:
//! - a record is put only with entries that were judged valid by the state it follows;
//! - what was announced is put again by its owner with the same items, so whichever lands first makes
//!   the other void, never double.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::commit_policy::{Action, Event, Policy, Queue, SeenRecord};
use batchweave_core::flow_control::pacing_jobs;
use batchweave_core::guards;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, Step, Version};
use batchweave_core::manifest::{Entry, Hints, Writer};

use crate::clock::Clock;
use crate::commit::append::Append;
use crate::commit::candidates::{choose, nobody, seen_record};
use crate::commit::intents::Intents;
use crate::commit::outcome::{self, Stop};
use crate::commit::pending::Wants;
use crate::flow_control::limiter::Ahead;
use crate::{Log, LogError};

mod catch_up;

use self::catch_up::Behind;

/// What comes after an action.
#[derive(Debug)]
pub(crate) enum Next {
    /// Ask again after this time, or when more is ready.
    Wait(Option<Duration>),
    /// Ask again at once with this.
    Event(Event),
}

/// What the committer has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) records: u64,
    pub(crate) lost: u64,
    pub(crate) announced: u64,
    pub(crate) combined: u64,
    pub(crate) version: Option<Version>,
    pub(crate) next_step: Step,
    pub(crate) latency: Duration,
}

#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) log: Log,
    pub(crate) name: ProducerName,
    pub(crate) nonce: Nonce,
    /// 0 until the producer is open.
    pub(crate) epoch: Epoch,
    pub(crate) wants: Wants,
    pub(crate) ahead: Ahead,
    pub(crate) done: Done,
    intents: Intents,
    announced: usize,
    /// What was taken for committed: the next sequence number never goes back.
    taken: Seq,
    /// The epoch in the announced opening.
    opening: Epoch,
    /// Our last record said that we go on combining, and nobody took over.
    pub(crate) leading: bool,
    /// When the log was looked at last.
    looked: Duration,
    /// A look that ended short of the head.
    behind: Option<Behind>,
    /// Seen by looks that no policy had asked for.
    aside: Vec<SeenRecord>,
}

impl Committer {
    pub(crate) fn new(
        log: Log,
        name: ProducerName,
        nonce: Nonce,
        epoch: Epoch,
        tgbs_per_entry: usize,
    ) -> Self {
        let intents = Intents::new(Arc::clone(&log.raw), log.manifest.stream_id());
        let next_seq = log.manifest.producer(&name).map_or(0, |p| p.next_seq);
        let looked = log.clock.now();
        Self {
            wants: Wants::new(name.clone(), nonce, next_seq, tgbs_per_entry),
            log,
            name,
            nonce,
            epoch,
            ahead: Ahead::default(),
            done: Done::default(),
            intents,
            announced: 0,
            taken: next_seq,
            opening: 0,
            leading: false,
            looked,
            behind: None,
            aside: Vec::new(),
        }
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.log.clock)
    }

    pub(crate) fn next_seq(&self) -> Seq {
        let state = self.log.manifest.producer(&self.name);
        state.map_or(0, |p| p.next_seq)
    }

    pub(crate) fn refused_intents(&self) -> u64 {
        self.intents.refused()
    }

    /// A log that was folded anew may lack what the first fold had; those items are gone.
    fn check_taken(&mut self) -> Result<(), LogError> {
        let (was, now) = (self.taken, self.next_seq());
        if now < was {
            let producer = self.name.clone();
            return Err(LogError::Undone { producer, was, now });
        }
        self.taken = now;
        Ok(())
    }

    /// Before the first item: what the producer's own last try has done, if nobody waited for it.
    /// Items made by an older state are refused by their keys, never committed twice.
    pub(crate) async fn recover(&mut self) -> Result<(), LogError> {
        if self.log.resolve_open().await?.is_some() {
            self.wants.start_at(self.next_seq());
        }
        Ok(())
    }

    /// Asks the policy for its next action and carries it out.
    pub(crate) async fn advance(
        &mut self,
        policy: &mut dyn Policy,
        event: Event,
    ) -> Result<Result<Next, Stop>, LogError> {
        self.admit().await?;
        self.check_taken()?;
        let now = self.log.clock.now();
        let ready = self.wants.allowed();
        let oldest = self.wants.oldest().filter(|_| ready > 0);
        let queue = Queue {
            ready,
            announced: self.announced.min(ready),
            oldest: oldest.unwrap_or(now),
        };
        let acted = match policy.step(now, queue, event) {
            Action::Idle => return Ok(Ok(Next::Wait(None))),
            Action::Wait(time) => return Ok(Ok(Next::Wait(Some(time)))),
            Action::CatchUp(expected) => self.catch_up(expected, false).await?,
            Action::Poll(expected) => match self.catch_up(expected, true).await {
                // Nothing waits for it: a later look will do.
                Err(e) if e.may_pass() && self.wants.is_empty() => Ok(Event::CaughtUp(Vec::new())),
                looked => looked?,
            },
            Action::Announce => Ok(self.announce().await),
            // What is there was above the ceiling a moment ago, and nothing has changed.
            Action::List if self.ahead.is_in_vain(self.log.manifest.next_version()) => {
                Ok(Event::Listed(0))
            }
            Action::List => {
                let start = self.log.random();
                let listed = self
                    .intents
                    .list(&self.log.manifest, &self.name, start, now);
                Ok(Event::Listed(listed.await))
            }
            Action::Gather => {
                let others = self.intents.gather(&self.log.manifest).await;
                Ok(Event::Gathered(others))
            }
            Action::Put {
                leads,
                combine,
                put_ms,
            } => self.put(leads, combine, put_ms).await?,
        };
        Ok(acted.map(Next::Event))
    }

    /// Finds out what of the wants is below the ceiling, by the state that the next record follows.
    async fn admit(&mut self) -> Result<(), LogError> {
        let Some(mut gate) = self.ahead.gate(&mut self.log).await? else {
            self.wants.admit(None, self.epoch, Duration::ZERO);
            return Ok(());
        };
        let now = self.log.clock.now();
        let held = self.wants.admit(Some(&mut gate), self.epoch, now);
        self.ahead.note_held(held, now);
        Ok(())
    }

    /// Whether all that is wanted is above the ceiling.
    pub(crate) fn is_held(&self) -> bool {
        !self.wants.is_empty() && self.wants.allowed() == 0
    }

    /// Drops what is committed, and tells whether this instance may go on.
    fn settle(&mut self) -> Result<(), Stop> {
        let manifest = &self.log.manifest;
        let state = manifest.producer(&self.name);
        let oldest = self.wants.oldest();
        let settled = self.wants.settle(state);
        self.announced = self.announced.saturating_sub(settled);
        if let (1.., Some(oldest)) = (settled, oldest) {
            self.done.latency = self.log.clock.now().saturating_sub(oldest);
            self.done.next_step = manifest.next_step();
        }
        let ours = state.filter(|p| p.nonce == self.nonce);
        self.epoch = ours.map_or(self.epoch, |open| open.epoch);
        let current = state.map_or(0, |p| p.epoch);
        let again = !guards::announces_opening_once();
        if self.epoch == 0 && self.opening != 0 && self.opening <= current && again {
            // Somebody else has the epoch that was announced.
            (self.announced, self.opening) = (0, 0);
        }
        let next_seq = state.map_or(0, |p| p.next_seq);
        let finished = state.is_some_and(|p| p.finished);
        self.intents.forget_own(|entry| match entry {
            Entry::Opened(e) => e.epoch <= current,
            // One that is partly committed can't be valid any more either.
            Entry::Batch(e) => e.epoch < current || e.first_seq < next_seq,
            _ => finished,
        });
        self.stopped()
    }

    fn stopped(&self) -> Result<(), Stop> {
        let by_seal = self.wants.is_stopped_by_seal();
        let ours = (self.epoch, self.wants.began);
        outcome::check(&self.log.manifest, &self.name, ours, by_seal)
    }

    /// The epoch of our entries: ours, or the one that we want.
    fn entry_epoch(&self) -> Epoch {
        let current = self
            .log
            .manifest
            .producer(&self.name)
            .map_or(0, |p| p.epoch);
        if self.epoch == 0 {
            current + 1
        } else {
            self.epoch
        }
    }

    async fn announce(&mut self) -> Event {
        let epoch = self.entry_epoch();
        let entries = self
            .wants
            .entries(&self.log.manifest, epoch, self.announced);
        for (entry, wants) in entries {
            if matches!(entry, Entry::Opened(_)) {
                self.opening = epoch;
            }
            if !self.intents.announce(entry).await {
                return Event::Announced(false);
            }
            self.announced += wants;
            self.done.announced += 1;
        }
        Event::Announced(true)
    }

    /// One try with what is ready, and what others have announced.
    async fn put(
        &mut self,
        leads: bool,
        combine: bool,
        put_ms: Option<u32>,
    ) -> Result<Result<Event, Stop>, LogError> {
        // A seal may have been folded while there was nothing for it to stop.
        if let Err(stop) = self.stopped() {
            return Ok(Err(stop));
        }
        let gathered = self.intents.take();
        let own = self
            .wants
            .entries(&self.log.manifest, self.entry_epoch(), 0);
        let mut candidates: Vec<_> = own.into_iter().map(|(entry, _)| entry).collect();
        let own = candidates.len();
        if combine {
            // Who is only opening was told of no bounds: while a job paces it takes openings along.
            let blind = self.epoch == 0 && pacing_jobs(&self.log.manifest).next().is_some();
            let fit = |e: &Entry| !blind || matches!(e, Entry::Opened(_));
            candidates.extend(gathered.into_iter().filter(fit));
        }
        let gate = self.ahead.gate(&mut self.log).await?;
        let chosen = choose(&self.log.manifest, gate, candidates, own)?;
        let (entries, others, full) = (chosen.entries, chosen.others, chosen.full);
        // A leader that steps down says so, also when there is nothing else to say.
        let steps_down = self.leading && !leads && !chosen.above;
        if entries.is_empty() && !steps_down {
            if chosen.above {
                self.ahead.in_vain(self.log.manifest.next_version());
            }
            return Ok(Ok(Event::Gathered(0)));
        }
        let writer = Writer {
            name: self.name.to_string(),
            epoch: self.epoch,
        };
        let hints = Hints {
            leads,
            put_ms,
            ..Hints::default()
        };
        let event = match self.log.put_record(&writer, hints, entries).await? {
            Append::Won { version, folded } => {
                self.note([&folded]);
                self.done.records += 1;
                self.done.combined += others.len() as u64;
                self.done.version = Some(version);
                self.leading = leads;
                Event::Won { others, full }
            }
            Append::Lost { folded, .. } => {
                self.note([&folded]);
                self.done.lost += 1;
                let seen = seen_record(&folded).unwrap_or_else(nobody);
                self.leading &= !seen.leads;
                Event::Lost(seen)
            }
        };
        Ok(self.settle().map(|()| event))
    }

    /// A leader that goes says so, or who has announced waits for it in vain. A hint: it may fail.
    pub(crate) async fn step_down(&mut self) {
        if self.leading {
            let _ = self.put(false, false, None).await;
        }
    }

    /// Leaves nothing running. What has finished is read again before anybody is told.
    pub(crate) async fn end(&mut self, finished: bool) -> Result<(), LogError> {
        self.intents.settle().await;
        self.log.settle_snapshots().await;
        self.check_taken()?;
        if finished {
            self.log.confirm().await?;
        }
        Ok(())
    }
}
