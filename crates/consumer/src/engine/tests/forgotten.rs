//! Locations that are looked up, fail, or belong to a replaced log; frames of stopped sessions.

use super::*;

fn place(step: Step, slice: u32, key: &str) -> Location {
    let start = u64::from(slice) * FRAME;
    Location {
        key: key.into(),
        range: start..start + FRAME,
        identity: Identity {
            stream: StreamId([0; 16]),
            producer: 0,
            epoch: 1,
        },
        seq: step,
    }
}

/// A world in which no slice is located.
fn unknown(slices: u32, steps: u64) -> World {
    let mut world = World::new(64, slices, 0);
    world.engine.set_head(steps, Some(steps));
    world
}

#[test]
fn slices_that_ranks_need_are_looked_up_and_no_others() {
    let mut world = unknown(8, 4);
    world.open(0, 2..3, 0, 2);
    world.open(1, 3..4, 0, 2);
    world.open(2, 6..8, 3, 2);
    assert_eq!(*world.engine.unknown_steps(), [0, 1, 2, 3]);
    assert_eq!(
        world.engine.lacking(0).first(),
        Some(&(2..4)),
        "rank 2 begins later"
    );
    assert_eq!(world.engine.lacking(3), [2..4, 6..8]);
    let block = |step| (2..8).map(|slice| place(step, slice, "a")).collect();
    world.engine.add_step(3, 2, block(3));
    assert_eq!(world.engine.lacking(3), []);
    assert_eq!(*world.engine.unknown_steps(), [0, 1, 2]);
    assert_eq!(world.engine.steps_in("a").collect::<Vec<_>>(), [3]);
}

#[test]
fn a_slice_whose_place_can_not_be_had_stops_sessions_that_reach_it() {
    let mut world = unknown(2, 3);
    world.open(0, 0..1, 0, 2);
    world.open(1, 1..2, 0, 2);
    for step in 0..3 {
        let run = |slice| [place(step, slice, "a")].into();
        world.engine.add_step(step, 0, run(0));
        if step == 1 {
            world.engine.fail_slices(1, 1..2, &"no index".into());
        } else {
            world.engine.add_step(step, 1, run(1));
        }
    }
    world.run();
    assert_eq!(world.engine.lacking(1), [], "it is decided");
    world.settle(&[0, 1]);
    assert_eq!(
        world.failed,
        BTreeMap::from([(1, FrameId { step: 1, slice: 1 })])
    );
    assert_eq!(world.ended, BTreeMap::from([(0, 3)]));
    // A new session has the step looked up again.
    world.open(2, 1..2, 1, 2);
    assert_eq!(world.engine.lacking(1).first(), Some(&(1..2)));
}

#[test]
fn frames_of_a_replaced_log_are_not_sent() {
    let mut world = World::new(64, 1, 8);
    world.open(0, 0..1, 0, 2);
    // Steps 0 and 1 are held, 2 is ready, the others are being fetched.
    while world.fetching.iter().any(|fetch| fetch.id.step <= 2) {
        world.finish(0, Ok(()));
    }
    assert_eq!((world.held[&0].len(), world.next[&0].step), (2, 2));
    let changed: BTreeSet<Step> = (1..8).collect();
    world.engine.forget_steps(&changed);
    world.run();
    assert_eq!(*world.engine.unknown_steps(), (2..8).collect::<Vec<_>>());
    while !world.fetching.is_empty() {
        world.finish(0, Ok(()));
    }
    assert!(world.fetching.is_empty(), "nothing is known to fetch");
    world.release_oldest(0);
    assert_eq!(world.next[&0].step, 2, "fetched frames are not sent");
    for step in 2..8 {
        world
            .engine
            .add_step(step, 0, [place(step, 0, "new")].into());
    }
    world.run();
    assert!(world.fetching.iter().all(|fetch| &*fetch.from.key == "new"));
    world.settle(&[0]);
    assert_eq!(world.ended, BTreeMap::from([(0, 8)]));
    assert_eq!(world.engine.arena.used(), 0);
}

/// A rank whose session is over may still read its frames: their regions are not reused until it releases them.
#[test]
fn a_stopped_session_keeps_its_frames() {
    let mut world = World::new(8, 2, 60);
    world.open(0, 0..1, 0, 2);
    world.open(1, 1..2, 0, 2);
    world.settle(&[1]);
    assert_eq!(world.held[&0].len(), 2);
    world.engine.stop(0);
    world.run();
    assert_eq!(world.engine.bytes().0, 2 * FRAME, "held bytes");
    // The ranks of the other slice fill the arena repeatedly.
    for id in 2..6 {
        world.open(id, 1..2, 0, 2);
        world.settle(&[id]);
        assert_eq!(world.ended[&id], 60);
    }
    while world.release_oldest(0) {}
    assert_eq!(world.engine.arena.used(), 0);
}

#[test]
fn mistakes_of_the_engine_are_found() {
    use crate::mistakes::{Mistake, is_found};
    is_found(Mistake::StoppedFrees, a_stopped_session_keeps_its_frames);
    is_found(
        Mistake::EndElsewhere,
        every_rank_gets_every_frame_and_the_end,
    );
}
