//! What to fetch next, and what to drop for it: everything is ordered by distance, the steps between
//! a frame and the nearest rank that still wants it.

use std::collections::BTreeMap;

use super::{Engine, Fetch, Frame, State, TooLarge};
use crate::plan::{FrameId, Location};
use crate::space::Place;

/// Steps from a rank's position that are fetched whatever the budget says.
const URGENT_STEPS: u64 = 1;

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// Picks missing frames by their distance from the ranks that want them.
    pub(super) fn schedule(&mut self) -> Vec<Fetch> {
        let (mut urgent, mut further) = (Vec::new(), Vec::new());
        let mut further_bytes = 0;
        let mut full = false;
        self.cramped = false;
        for distance in 0..=self.limits.steps_ahead {
            let missing = self.missing_at(distance);
            let bytes: u64 = missing.values().map(Location::bytes).sum();
            let over_budget = self.ahead_bytes() + bytes > self.limits.ahead_bytes;
            if distance > URGENT_STEPS && (over_budget && !self.evict(distance, bytes)) {
                full = true;
                break;
            }
            for (id, from) in missing {
                if from.bytes() > self.limits.segment_bytes {
                    self.refuse(id, from.bytes());
                    continue;
                }
                let Some(to) = self.take(from.bytes(), distance) else {
                    self.cramped = true;
                    break;
                };
                self.insert(id, Some(to), State::Fetching);
                if distance > URGENT_STEPS {
                    further_bytes += to.bytes;
                    further.push(Fetch { id, from, to });
                } else {
                    urgent.push(Fetch { id, from, to });
                }
            }
            if self.cramped {
                break;
            }
        }
        if (full || self.cramped) && further_bytes < self.limits.refill_bytes {
            further.drain(..).for_each(|fetch| self.forget(fetch.id));
        }
        urgent.append(&mut further);
        urgent
    }

    fn insert(&mut self, id: FrameId, place: Option<Place>, state: State<R, E>) {
        let frame = Frame {
            place,
            state,
            holders: 0,
            pushed: false,
        };
        self.frames.insert(id, frame);
    }

    fn refuse(&mut self, id: FrameId, bytes: u64) {
        let segment_bytes = self.limits.segment_bytes;
        let why = E::from(TooLarge {
            id,
            bytes,
            segment_bytes,
        });
        self.insert(id, None, State::Failed(why));
    }

    /// Frames that are known, missing, and wanted `distance` steps from a rank's position.
    fn missing_at(&self, distance: u64) -> BTreeMap<FrameId, Location> {
        let mut missing = BTreeMap::new();
        for session in self.active() {
            let step = session.next.step.saturating_add(distance);
            let Some(slices) = self.steps.get(&step) else {
                continue;
            };
            let first = if distance == 0 {
                session.next.slice
            } else {
                session.slices.start
            };
            for slice in first..session.slices.end {
                let id = FrameId { step, slice };
                if let Some(at) = slices.get(slice as usize)
                    && !self.frames.contains_key(&id)
                {
                    missing.insert(id, at.clone());
                }
            }
        }
        missing
    }

    fn ahead_bytes(&self) -> u64 {
        self.space.used() - self.held_bytes
    }

    fn take(&mut self, bytes: u64, distance: u64) -> Option<Place> {
        loop {
            if let Some(place) = self.space.take(bytes) {
                return Some(place);
            }
            let victim = self.victim(distance)?;
            self.forget(victim);
        }
    }

    /// Drops frames needed later than `distance` until `bytes` more fit in the budget.
    fn evict(&mut self, distance: u64, bytes: u64) -> bool {
        while self.ahead_bytes() + bytes > self.limits.ahead_bytes {
            let Some(victim) = self.victim(distance) else {
                return false;
            };
            self.forget(victim);
        }
        true
    }

    /// The ready frame without holders that is needed latest, and later than `distance`.
    fn victim(&self, distance: u64) -> Option<FrameId> {
        let idle = |f: &Frame<R, E>| f.holders == 0 && matches!(f.state, State::Ready(_));
        let idle = self.frames.iter().filter(|(_, frame)| idle(frame));
        idle.map(|(id, _)| (self.distance(*id).unwrap_or(u64::MAX), *id))
            .max()
            .filter(|(needed, _)| *needed > distance)
            .map(|(_, id)| id)
    }

    /// How many steps from the nearest rank that still wants this frame.
    pub(super) fn distance(&self, id: FrameId) -> Option<u64> {
        let wanting = self.sessions.values().filter(|s| s.wants(id));
        wanting.map(|s| id.step - s.next.step).min()
    }
}
