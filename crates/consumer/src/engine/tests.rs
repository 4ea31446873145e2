//! The engine against a model of ranks and a store, with seeds printed on failure.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

mod causes;
mod forgotten;
mod growth;
mod requests;
mod shares;

use std::ops::Range;

use super::*;
use crate::quarantine::QuarantineRanges;
use batchweave_core::ids::StreamId;
use batchweave_core::tgb::Identity;

const FRAME: u64 = 640;

/// Ranks, a store with fetches in flight, and what the ranks hold.
struct World {
    engine: Engine<(), String>,
    fetching: Vec<Fetch>,
    /// Frames that a rank holds, with their regions.
    held: BTreeMap<SessionId, Vec<(FrameId, FrameRegion)>>,
    /// The contents of the arena, as written by finished fetches.
    written: BTreeMap<FrameId, FrameRegion>,
    next: BTreeMap<SessionId, FrameId>,
    ended: BTreeMap<SessionId, Step>,
    failed: BTreeMap<SessionId, FrameId>,
    credits: BTreeMap<SessionId, usize>,
    quarantine: BTreeMap<SessionId, Arc<QuarantineRanges>>,
    slices: u32,
}

impl From<TooLarge> for String {
    fn from(_: TooLarge) -> String {
        "too large".into()
    }
}

fn limits(frames: u64) -> Limits {
    Limits {
        ahead_bytes: frames * FRAME / 2,
        refill_bytes: frames * FRAME / 8,
        steps_ahead: 16,
        segment_bytes: frames * FRAME,
        arena_bytes: frames * FRAME,
    }
}

impl World {
    fn new(arena_frames: u64, slices: u32, steps: u64) -> Self {
        let mut engine = Engine::new(limits(arena_frames));
        engine.add_segment(arena_frames * FRAME);
        for step in 0..steps {
            let at = |slice: u32| {
                let start = u64::from(slice) * FRAME;
                Location {
                    key: format!("object-{step}").into(),
                    range: start..start + FRAME,
                    identity: Identity {
                        stream: StreamId([0; 16]),
                        producer: 0,
                        epoch: 1,
                    },
                    seq: step,
                }
            };
            engine.add_step(step, 0, (0..slices).map(at).collect());
        }
        engine.set_head(steps, Some(steps));
        Self {
            engine,
            fetching: Vec::new(),
            held: BTreeMap::new(),
            written: BTreeMap::new(),
            next: BTreeMap::new(),
            ended: BTreeMap::new(),
            failed: BTreeMap::new(),
            credits: BTreeMap::new(),
            quarantine: BTreeMap::new(),
            slices,
        }
    }

    fn open(&mut self, id: SessionId, slices: Range<u32>, step: Step, credits: usize) {
        self.open_without(&[], id, slices, step, credits);
    }

    /// A rank that passes over steps.
    fn open_without(
        &mut self,
        skipped: &[(Step, Step)],
        id: SessionId,
        slices: Range<u32>,
        step: Step,
        credits: usize,
    ) {
        let quarantine = Arc::new(QuarantineRanges::from_ranges(skipped));
        let first = FrameId {
            step: quarantine.next_read(step),
            slice: slices.start,
        };
        self.next.insert(id, first);
        self.held.insert(id, Vec::new());
        self.credits.insert(id, credits);
        self.quarantine.insert(id, quarantine.clone());
        let session = ReadCursor::new(slices, step, credits, quarantine);
        self.engine.open(id, session);
        self.run();
    }

    fn run(&mut self) {
        for action in self.engine.advance() {
            match action {
                Action::Fetch(list) => self.start(list),
                Action::Grow => {
                    assert!(self.engine.can_grow(), "the arena is as large as it gets");
                }
                Action::End(id, step) => assert_eq!(self.ended.insert(id, step), None),
                Action::Fail(id, _) => {
                    let frame = self.next[&id];
                    assert_eq!(self.failed.insert(id, frame), None);
                }
                Action::Push {
                    session: id,
                    id: frame,
                    region: at,
                    ..
                } => {
                    assert_eq!(self.next[&id], frame, "pushed in order");
                    let place = self.written[&frame];
                    assert_eq!(place, at);
                    self.held.get_mut(&id).unwrap().push((frame, place));
                    let session = &self.engine.sessions[&id];
                    let steps: BTreeSet<Step> = session.held().map(|f| f.step).collect();
                    assert!(steps.len() <= self.credits[&id], "beyond its credits");
                    let slice = frame.slice + 1;
                    let next = if slice < session.slices.end {
                        FrameId { slice, ..frame }
                    } else {
                        FrameId {
                            step: self.quarantine[&id].next_read(frame.step + 1),
                            slice: session.slices.start,
                        }
                    };
                    self.next.insert(id, next);
                }
            }
        }
    }

    /// A fetch overwrites its region, which must not overlap frames that a rank holds.
    fn start(&mut self, list: Vec<Fetch>) {
        for fetch in list {
            let to = fetch.to;
            let hits = |p: &FrameRegion| {
                p.segment == to.segment
                    && p.offset < to.offset + to.bytes
                    && to.offset < p.offset + p.bytes
            };
            let overlap = self.held.values().flatten().find(|(_, p)| hits(p));
            assert_eq!(overlap, None, "{fetch:?} overwrites a held frame");
            assert!(
                !self.fetching.iter().any(|f| f.id == fetch.id),
                "fetched twice at a time"
            );
            self.written.retain(|_, p| !hits(p));
            self.fetching.push(fetch);
        }
    }

    fn finish(&mut self, at: usize, outcome: Result<(), String>) {
        let fetch = self.fetching.swap_remove(at);
        self.written.insert(fetch.id, fetch.to);
        self.engine.fetched(fetch.id, outcome);
        self.run();
    }

    fn release_oldest(&mut self, id: SessionId) -> bool {
        let held = self.held.get_mut(&id).unwrap();
        if held.is_empty() {
            return false;
        }
        let (frame, _) = held.remove(0);
        assert!(self.engine.release(id, frame));
        self.run();
        true
    }

    /// Finishes fetches and releases frames of `readers` until nothing changes.
    fn settle(&mut self, readers: &[SessionId]) {
        loop {
            let mut moved = false;
            while !self.fetching.is_empty() {
                self.finish(0, Ok(()));
                moved = true;
            }
            for id in readers {
                moved |= self.release_oldest(*id);
            }
            if !moved {
                return;
            }
        }
    }
}

#[test]
fn every_rank_gets_every_frame_and_the_end() {
    let mut world = World::new(32, 4, 50);
    for rank in 0..4 {
        world.open(u64::from(rank), rank..rank + 1, 0, 2);
    }
    world.settle(&[0, 1, 2, 3]);
    assert_eq!(world.ended.len(), 4);
    assert!(world.ended.values().all(|step| *step == 50));
    assert_eq!(world.engine.arena.used(), 0, "all is free again");
}

#[test]
fn a_rank_that_stops_reading_blocks_no_other() {
    let mut world = World::new(8, 4, 200);
    for rank in 0..4 {
        world.open(u64::from(rank), rank..rank + 1, 0, 2);
    }
    world.settle(&[1, 2, 3]);
    assert_eq!(world.ended.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(world.held[&0].len(), 2, "no more than its credits");
    world.settle(&[0]);
    assert_eq!(
        world.ended.len(),
        4,
        "and it gets all the rest when it reads on"
    );
}

#[test]
fn a_frame_that_two_ranks_read_is_fetched_once() {
    let mut world = World::new(16, 1, 20);
    world.open(0, 0..1, 0, 2);
    world.open(1, 0..1, 0, 2);
    let mut fetches = 0;
    loop {
        fetches += world.fetching.len();
        let mut moved = !world.fetching.is_empty();
        (0..world.fetching.len()).for_each(|_| world.finish(0, Ok(())));
        moved |= world.release_oldest(0) | world.release_oldest(1);
        if !moved {
            break;
        }
    }
    assert_eq!((world.ended.len(), fetches), (2, 20));
}

#[test]
fn an_unreadable_frame_fails_only_sessions_that_reach_it() {
    let mut world = World::new(16, 2, 20);
    world.open(0, 0..1, 0, 2);
    world.open(1, 1..2, 0, 2);
    loop {
        let mut moved = false;
        while let Some(fetch) = world.fetching.first() {
            let bad = fetch.id == FrameId { step: 7, slice: 1 };
            world.finish(0, if bad { Err("checksum".into()) } else { Ok(()) });
            moved = true;
        }
        moved |= world.release_oldest(0) | world.release_oldest(1);
        if !moved {
            break;
        }
    }
    assert_eq!(
        world.failed,
        BTreeMap::from([(1, FrameId { step: 7, slice: 1 })])
    );
    assert_eq!(world.ended, BTreeMap::from([(0, 20)]));
    assert_eq!(world.engine.arena.used(), 0);
}

/// Quarantined steps are neither fetched nor pushed, also at the end, and those behind them are read
/// ahead.
#[test]
fn quarantined_steps_are_passed_over() {
    let mut world = World::new(64, 1, 40);
    world.open_without(&[(0, 1), (6, 25), (38, 90)], 0, 0..1, 0, 2);
    let mut fetched = BTreeSet::new();
    let mut behind_is_fetched_at = None;
    loop {
        fetched.extend(world.fetching.iter().map(|f| f.id.step));
        if fetched.contains(&26) {
            behind_is_fetched_at.get_or_insert(world.next[&0].step);
        }
        let mut moved = !world.fetching.is_empty();
        (0..world.fetching.len()).for_each(|_| world.finish(0, Ok(())));
        moved |= world.release_oldest(0);
        if !moved {
            break;
        }
    }
    assert_eq!(
        fetched.into_iter().collect::<Vec<_>>(),
        [2, 3, 4, 5].into_iter().chain(26..38).collect::<Vec<_>>()
    );
    assert!(behind_is_fetched_at < Some(6), "{behind_is_fetched_at:?}");
    assert_eq!(world.ended, BTreeMap::from([(0, 40)]));
    world.engine.set_head(40, None);
    world.open_without(&[(10, 90)], 1, 0..1, 9, 2);
    let unknown = world.engine.unknown_steps();
    assert_eq!(*unknown, (91..107).collect::<Vec<_>>());
}

#[test]
fn random_worlds_keep_the_invariants() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let slices = [1, 2, 4, 6][random.random_range(0..4)];
        let mut world = World::new(random.random_range(24..60), slices, 40);
        let mut next_id = 0;
        for _ in 0..600 {
            match random.random_range(0..10) {
                0 if world.held.len() < 6 => {
                    let ranks = [1, slices][random.random_range(0..2)];
                    let each = slices / ranks;
                    let first = random.random_range(0..ranks) * each;
                    let step = random.random_range(0..40);
                    let skipped: &[_] = [&[][..], &[(3, 9), (20, 36)]][random.random_range(0..2)];
                    world.open_without(skipped, next_id, first..first + each, step, 2);
                    next_id += 1;
                }
                1 => {
                    let ids: Vec<SessionId> = world.held.keys().copied().collect();
                    if let Some(&id) = ids.choose(&mut random) {
                        world.held.remove(&id);
                        world.engine.close(id);
                        world.run();
                    }
                }
                2..6 if !world.fetching.is_empty() => {
                    let at = random.random_range(0..world.fetching.len());
                    world.finish(at, Ok(()));
                }
                _ => {
                    let ids: Vec<SessionId> = world.held.keys().copied().collect();
                    if let Some(&id) = ids.choose(&mut random) {
                        world.release_oldest(id);
                    }
                }
            }
        }
        let ids: Vec<SessionId> = world.held.keys().copied().collect();
        world.settle(&ids);
        let done = ids.iter().filter(|id| world.ended.contains_key(id)).count();
        assert_eq!(done, ids.len(), "seed {seed}: everyone reaches the end");
        assert_eq!(world.engine.arena.used(), 0, "seed {seed}");
        assert_eq!(world.engine.held_bytes, 0, "seed {seed}");
        assert!(world.slices > 0);
    }
}

#[test]
fn ranks_in_step_share_their_reads() {
    let mut world = World::new(256, 4, 400);
    for rank in 0..4 {
        world.open(u64::from(rank), rank..rank + 1, 0, 2);
    }
    let mut batches = 0;
    while world.ended.len() < 4 {
        world.run();
        batches += usize::from(!world.fetching.is_empty());
        (0..world.fetching.len()).for_each(|_| world.finish(0, Ok(())));
        for id in 0..4 {
            world.release_oldest(id);
        }
    }
    assert!(batches < 100, "{batches} refills for 400 steps");
}
