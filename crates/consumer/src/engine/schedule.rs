//! Which frames to fetch next, and which to evict for them. All are ordered by distance: the steps between a
//! frame and the nearest rank that still wants it, and one more for a rank that holds its share.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::Step;

use super::{Engine, Fetch, Frame, ReadCursor, Room, State, TooLarge};
use crate::engine::allocator::{ALIGN, FrameRegion};
use crate::engine::location::{FrameId, Location};

/// Steps after a rank's position that are fetched regardless of the budget.
const URGENT_STEPS: u64 = 1;

impl<R: Clone, E: Clone + From<TooLarge>> Engine<R, E> {
    /// Allocates missing frames and returns their fetches, sorted so that neighbours can share a read.
    pub(super) fn schedule(&mut self) -> Vec<Fetch> {
        let cramped = std::mem::take(&mut self.cramped);
        let before = std::mem::take(&mut self.stalled);
        let mut picked = Vec::new();
        for distance in 0..=URGENT_STEPS {
            for (id, from) in self.missing_at(distance) {
                picked.push((distance, id, from));
            }
        }
        let mut fetches = self.place(picked, &before);
        if cramped && fetches.is_empty() && self.waits_for_room() {
            (self.cramped, self.stalled) = (true, before);
            return fetches;
        }
        if cramped || !fetches.is_empty() || self.ahead.is_now(self.horizon()) {
            self.ahead.done();
            let ahead = self.read_ahead();
            fetches.extend(self.place(ahead, &before));
        }
        fetches.sort_by_key(|fetch| fetch.id);
        fetches
    }

    /// Whether free room is too small for a read ahead of useful size. Frames are freed one by one: reading
    /// each at once would cost a request per slice.
    fn waits_for_room(&self) -> bool {
        let free = self.arena.total() - self.arena.used();
        let soon = URGENT_STEPS + 1;
        free < self.limits.refill_bytes.min(self.arena.total() / 8)
            && self.missing_at(soon).is_empty()
            && self.victim(soon).is_none()
    }

    /// Whether a step that is not the very next one would be read only in part, for lack of room.
    fn would_be_torn(
        &self,
        distance: u64,
        id: FrameId,
        from: &Location,
        rest: &[(u64, FrameId, Location)],
    ) -> bool {
        if distance == 0 {
            return false;
        }
        let of_step = rest.iter().take_while(|(_, next, _)| next.step == id.step);
        let sizes = of_step.map(|(_, _, from)| from.bytes());
        let (count, largest) = sizes.fold((1, from.bytes()), |(count, largest), bytes| {
            (count + 1, largest.max(bytes))
        });
        !self.arena.fits(count, largest) && self.victim(distance).is_none()
    }

    /// Allocates a region for each frame; frames without room stay missing. `before`: the frames that found no
    /// room the last time.
    fn place(
        &mut self,
        picked: Vec<(u64, FrameId, Location)>,
        before: &BTreeSet<FrameId>,
    ) -> Vec<Fetch> {
        let mut placed = Vec::with_capacity(picked.len());
        let mut unplaced = picked.into_iter();
        let mut step = None;
        while let Some((distance, id, from)) = unplaced.next() {
            // A frame that several ranks want is picked once per rank.
            if self.frames.contains_key(&id) {
                continue;
            }
            let bytes = from.bytes();
            if bytes > self.limits.segment_bytes {
                self.refuse(id, bytes, Room::Segment(self.limits.segment_bytes));
                continue;
            }
            if distance > URGENT_STEPS {
                self.evict(distance, bytes);
            }
            let begun = step == Some(id.step);
            step = Some(id.step);
            let rest = unplaced.as_slice();
            let torn = !begun && self.would_be_torn(distance, id, &from, rest);
            let region = if torn {
                None
            } else {
                self.take(bytes, distance)
            };
            let Some(to) = region else {
                if distance == 0
                    && let Some((needs, room)) = self.step_too_large(id.step)
                {
                    self.refuse(id, needs, room);
                    continue;
                }
                self.cramped = true;
                self.stalled.insert(id);
                self.stalled.extend(unplaced.map(|(_, id, _)| id));
                break;
            };
            self.insert(id, Some(to), State::Fetching, before.contains(&id));
            placed.push(Fetch { id, from, to });
        }
        placed
    }

    /// Picks frames beyond the urgent steps, as far as the budget reaches after what is needed sooner. Returns
    /// none while they would be few, so that reads are large.
    fn read_ahead(&self) -> Vec<(u64, FrameId, Location)> {
        if self.cramped {
            return Vec::new();
        }
        let idle = self.idle_by_distance();
        let mut counted = self.ahead_bytes() - idle.values().sum::<u64>();
        let (mut picked, mut picked_bytes, mut full) = (Vec::new(), 0, false);
        let horizon = self.horizon();
        for distance in 0..=horizon {
            counted += idle.get(&distance).copied().unwrap_or(0);
            if distance <= URGENT_STEPS {
                continue;
            }
            let missing = self.missing_at(distance);
            let bytes: u64 = missing.values().map(Location::bytes).sum();
            if counted + picked_bytes + bytes > self.limits.ahead_bytes {
                full = true;
                break;
            }
            picked_bytes += bytes;
            picked.extend(missing.into_iter().map(|(id, from)| (distance, id, from)));
        }
        let nearest = picked.first().map_or(u64::MAX, |(distance, ..)| *distance);
        // Half of the frames ahead are used up: the rest lasts while the next half is read.
        let due = self.near_head() || nearest <= horizon / 2;
        if picked_bytes >= self.limits.refill_bytes || (due && !full) {
            return picked;
        }
        Vec::new()
    }

    /// The bytes of frames that could be evicted, by the distance at which they are needed.
    fn idle_by_distance(&self) -> BTreeMap<u64, u64> {
        let mut idle = BTreeMap::new();
        for (id, frame) in self.frames.iter().filter(|(_, frame)| is_idle(frame)) {
            let distance = self.distance(*id).unwrap_or(u64::MAX);
            *idle.entry(distance).or_insert(0) += frame.region.map_or(0, |region| region.bytes);
        }
        idle
    }

    /// Whether some rank's horizon reaches the stream's head. Then new steps are read as they are committed.
    fn near_head(&self) -> bool {
        let ahead = self.horizon();
        self.active().any(|s| s.ahead(ahead) >= self.head)
    }

    /// The number of steps to read ahead: few at first, then twice the steps taken. Ranks that join before
    /// their peers wait for them; reading far ahead for the first would read every step again, slice by
    /// slice, for the others.
    fn horizon(&self) -> u64 {
        let taken = self.active().map(ReadCursor::taken).max().unwrap_or(0);
        let begun = taken.next_power_of_two().saturating_mul(2).max(4);
        begun.min(self.limits.steps_ahead)
    }

    pub(super) fn insert(
        &mut self,
        id: FrameId,
        region: Option<FrameRegion>,
        state: State<R, E>,
        stalled: bool,
    ) {
        let frame = Frame {
            region,
            state,
            holders: 0,
            pushed: false,
            stalled,
            stale: false,
        };
        self.frames.insert(id, frame);
    }

    /// Returns the needed bytes if the slices of a step, of all ranks here, do not fit into the fully grown
    /// arena together: then no rank could ever read it.
    fn step_too_large(&self, step: Step) -> Option<(u64, Room)> {
        let places = self.steps.get(&step)?;
        let slices: BTreeSet<u32> = self.active().flat_map(|s| s.slices.clone()).collect();
        let sizes: Vec<u64> = slices
            .iter()
            .filter_map(|slice| places.at(*slice))
            .map(|at| at.bytes().next_multiple_of(ALIGN))
            .collect();
        let (segment, largest) = (self.limits.segment_bytes, sizes.iter().copied().max()?);
        let needs = if sizes.iter().all(|size| *size == largest) {
            let together = (segment / largest).max(1);
            (sizes.len() as u64).div_ceil(together) * segment
        } else {
            sizes.iter().sum()
        };
        let arena = self.limits.arena_bytes / segment * segment;
        (needs > arena && !self.can_grow()).then_some((needs, Room::Arena(arena)))
    }

    fn refuse(&mut self, id: FrameId, bytes: u64, room: Room) {
        let why = E::from(TooLarge { id, bytes, room });
        self.insert(id, None, State::Failed(why), false);
    }

    /// The frames that are located, missing, and wanted `distance` steps from a rank's position.
    fn missing_at(&self, distance: u64) -> BTreeMap<FrameId, Location> {
        let mut missing = BTreeMap::new();
        for session in self.active() {
            let Some(count) = distance.checked_sub(self.lag(session)) else {
                continue;
            };
            let step = session.ahead(count);
            let Some(places) = self.steps.get(&step) else {
                continue;
            };
            for slice in session.slices.clone() {
                let id = FrameId { step, slice };
                if let Some(at) = places.at(slice)
                    && session.wants(id)
                    && !self.frames.contains_key(&id)
                {
                    missing.insert(id, at.clone());
                }
            }
        }
        missing
    }

    fn ahead_bytes(&self) -> u64 {
        self.arena.used() - self.held_bytes
    }

    fn take(&mut self, bytes: u64, distance: u64) -> Option<FrameRegion> {
        loop {
            if let Some(region) = self.arena.allocate(bytes) {
                return Some(region);
            }
            // Another segment costs less than to read what is evicted again.
            if self.can_grow() && !self.postponed {
                return None;
            }
            let victim = self.victim(distance)?;
            self.forget(victim);
        }
    }

    /// Evicts frames needed later than `distance` until `bytes` more fit into the budget.
    fn evict(&mut self, distance: u64, bytes: u64) {
        while self.ahead_bytes() + bytes > self.limits.ahead_bytes {
            let Some(victim) = self.victim(distance) else {
                return;
            };
            self.forget(victim);
        }
    }

    /// The ready frame without holders that is needed furthest ahead, and further than `distance`.
    fn victim(&self, distance: u64) -> Option<FrameId> {
        let idle = self.frames.iter().filter(|(_, frame)| is_idle(frame));
        idle.map(|(id, _)| (self.distance(*id).unwrap_or(u64::MAX), *id))
            .max()
            .filter(|(needed, _)| *needed > distance)
            .map(|(_, id)| id)
    }

    /// The steps from the nearest rank that still wants this frame; `None` if no rank does.
    pub(super) fn distance(&self, id: FrameId) -> Option<u64> {
        let wanting = self.sessions.values().filter(|s| s.wants(id));
        wanting.map(|s| s.before(id.step) + self.lag(s)).min()
    }

    /// The extra distance of a rank that holds its share: its next step would occupy room that another rank
    /// needs for the step that it waits for.
    fn lag(&self, session: &ReadCursor) -> u64 {
        u64::from(!session.has_share(self.free_bytes()))
    }
}

/// Whether a frame is in the arena and no rank holds it.
fn is_idle<R, E>(frame: &Frame<R, E>) -> bool {
    frame.holders == 0 && matches!(frame.state, State::Ready(_))
}
