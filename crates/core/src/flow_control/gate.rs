//! The check of the next commits against the ceiling, in one state.

use super::{Bound, FlowControl, HeldBack, Limits, Sizes, Slowest};
use crate::ids::{ProducerName, Step};
use crate::manifest::Entry;
use crate::manifest::state::Manifest;
use crate::manifest::trial::{PlacedSteps, Trial};
use crate::tgb::TgbRecord;

/// Checks commits in the order in which they would be written, and counts those that it allows.
#[derive(Debug, Clone)]
pub struct Gate {
    limits: Limits,
    slowest: Option<Slowest>,
    ceiling: Option<Step>,
    lane: Option<ProducerName>,
    now: State,
}

#[derive(Debug, Clone)]
struct State {
    trial: Trial,
    /// Bytes of steps from the slowest position on; `None` when they are more than the bound.
    placed: Option<u64>,
    /// Bytes of TGBs that wait for their turn.
    waiting: u64,
}

impl Gate {
    /// Returns the gate in the state `m`. `sizes` is needed only with a bound in bytes.
    pub fn new(flow: &FlowControl, m: &Manifest, sizes: Option<&Sizes>) -> Self {
        let slowest = flow.slowest(m);
        let mut limits = flow.limits;
        if slowest.is_none() {
            limits.bytes = None;
        }
        let (mut placed, mut waiting) = (Some(0), 0);
        if let (Some(slowest), Some(_)) = (&slowest, limits.bytes) {
            placed = sizes.and_then(|s| s.from(slowest.position.max(m.watermark())));
            waiting = m.waiting_bytes();
        }
        Self {
            limits,
            ceiling: flow.ceiling(m),
            slowest,
            lane: m.awaited_lane().cloned(),
            now: State {
                trial: Trial::new(m),
                placed,
                waiting,
            },
        }
    }

    /// Checks whether `producer` may commit these TGBs together, and counts them if so.
    pub fn item(&mut self, producer: &ProducerName, tgbs: &[TgbRecord]) -> Result<(), HeldBack> {
        let owner = self.now.trial.owns_next_step(producer);
        let after = self.now.after(producer, tgbs);
        if !(owner && self.is_starved()) {
            self.validate(producer, owner, &after)?;
        }
        self.now = after.state;
        Ok(())
    }

    /// Checks whether a `finished` entry is within the bounds, and counts it if so. Under `lanes` it gives
    /// steps to waiting TGBs.
    pub fn finish(&mut self, entry: &Entry) -> Result<(), HeldBack> {
        let after = self.now.after_finish(entry);
        if !self.is_starved() {
            self.validate_finish(&after)?;
        }
        self.now = after.state;
        Ok(())
    }

    /// Returns whether a leader may include another producer's entry, and counts it if so. Only entries
    /// within the bounds are included: the owner itself commits one that is due beyond them.
    pub fn take_along(&mut self, entry: &Entry) -> bool {
        let (after, judged) = match entry {
            Entry::Batch(e) => {
                let owner = self.now.trial.owns_next_step(&e.producer);
                let after = self.now.after(&e.producer, &e.tgbs);
                let judged = self.validate(&e.producer, owner, &after);
                (after, judged)
            }
            Entry::Finished(_) => {
                let after = self.now.after_finish(entry);
                let judged = self.validate_finish(&after);
                (after, judged)
            }
            _ => return true,
        };
        let fits = judged.is_ok();
        if fits {
            self.now = after.state;
        }
        fits
    }

    /// Counts an entry that is in the record already, even above the ceiling.
    pub fn count(&mut self, entry: &Entry) {
        match entry {
            Entry::Batch(e) => self.now = self.now.after(&e.producer, &e.tgbs).state,
            Entry::Finished(_) => self.now = self.now.after_finish(entry).state,
            _ => {}
        }
    }

    /// Returns whether the slowest job has received all steps.
    fn is_starved(&self) -> bool {
        let next = self.now.trial.next_step();
        self.slowest.as_ref().is_some_and(|s| next <= s.position)
    }

    fn validate(
        &self,
        producer: &ProducerName,
        owner: bool,
        after: &After,
    ) -> Result<(), HeldBack> {
        self.below_ceiling(after)?;
        // Only readable steps hold the owner, never TGBs that wait for it.
        self.bytes_fit(after, if owner { 0 } else { after.state.waiting })?;
        match self.limits.lane_lead {
            Some(most) if !owner && after.state.trial.waiting_of(producer) > most => {
                Err(self.held(Bound::LaneLead(most)))
            }
            _ => Ok(()),
        }
    }

    fn validate_finish(&self, after: &After) -> Result<(), HeldBack> {
        self.below_ceiling(after)?;
        if after.given.steps == 0 {
            return Ok(());
        }
        self.bytes_fit(after, 0)
    }

    fn bytes_fit(&self, after: &After, waiting: u64) -> Result<(), HeldBack> {
        let Some(most) = self.limits.bytes else {
            return Ok(());
        };
        let bytes = after.state.placed.map(|p| p.saturating_add(waiting));
        if bytes.is_none_or(|bytes| bytes > most) {
            return Err(self.held(Bound::Bytes(most)));
        }
        Ok(())
    }

    fn below_ceiling(&self, after: &After) -> Result<(), HeldBack> {
        let over = |ceiling| after.state.trial.next_step() > ceiling;
        if after.given.steps == 0 || !self.ceiling.is_some_and(over) {
            return Ok(());
        }
        Err(self.held(match self.slowest {
            Some(_) => Bound::Steps(self.limits.steps.unwrap_or(0)),
            None => Bound::NoJob(self.limits.no_job.unwrap_or(0)),
        }))
    }

    fn held(&self, bound: Bound) -> HeldBack {
        let lead = matches!(bound, Bound::LaneLead(_));
        HeldBack {
            bound,
            by: self.slowest.clone().filter(|_| !lead),
            lane: self.lane.clone().filter(|_| lead),
            next_step: self.now.trial.next_step(),
        }
    }
}

struct After {
    state: State,
    given: PlacedSteps,
}

impl State {
    fn after(&self, producer: &ProducerName, tgbs: &[TgbRecord]) -> After {
        let mut state = self.clone();
        let given = state.trial.commit(producer, tgbs);
        let bytes = tgbs
            .iter()
            .fold(0, |sum, tgb| u64::saturating_add(sum, tgb.bytes()));
        state.waiting = state.waiting.saturating_add(bytes);
        state.give(given)
    }

    fn after_finish(&self, entry: &Entry) -> After {
        let mut state = self.clone();
        let given = state.trial.finish(entry);
        state.give(given)
    }

    fn give(mut self, given: PlacedSteps) -> After {
        self.waiting = self.waiting.saturating_sub(given.bytes);
        self.placed = self.placed.map(|p| p.saturating_add(given.bytes));
        After { state: self, given }
    }
}
