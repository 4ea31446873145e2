//! An arena that may grow is grown before frames are evicted.

use super::*;

/// A rank that has filled one of two segments, and a second one that needs room for its next frame.
fn full() -> World {
    let mut world = World::new(4, 2, 8);
    world.engine.limits.arena_bytes = 8 * FRAME;
    world.engine.limits.ahead_bytes = 8 * FRAME;
    world.open(1, 0..1, 0, 2);
    while !world.fetching.is_empty() {
        world.finish(0, Ok(()));
    }
    assert_eq!(world.engine.bytes().1, 4 * FRAME);
    world.open(2, 1..2, 0, 2);
    world
}

fn steps_of_first(world: &World) -> Vec<Step> {
    let own = world.engine.frames.keys().filter(|id| id.slice == 0);
    own.map(|id| id.step).collect()
}

#[test]
fn the_arena_grows_before_a_frame_is_evicted() {
    let mut world = full();
    assert!(world.fetching.is_empty());
    assert_eq!(steps_of_first(&world), [0, 1, 2, 3]);
    let bytes = world.engine.limits.segment_bytes;
    world.engine.add_segment(bytes);
    world.run();
    let first = FrameId { step: 0, slice: 1 };
    assert!(world.fetching.iter().any(|fetch| fetch.id == first));
    assert_eq!(steps_of_first(&world)[..4], [0, 1, 2, 3]);
}

#[test]
fn frames_are_evicted_while_growing_has_to_wait() {
    let mut world = full();
    world.engine.growth_postponed();
    world.run();
    let first = FrameId { step: 0, slice: 1 };
    assert!(world.fetching.iter().any(|fetch| fetch.id == first));
    assert!(!steps_of_first(&world).contains(&3));
}
