//! Causes of late frames, and steps that can never be read.

use super::*;

#[test]
fn causes_are_told_apart() {
    let mut world = World::new(4, 1, 10);
    world.open(0, 0..1, 0, 2);
    assert_eq!(world.engine.cause(0), Some(Cause::Fetching));
    world.finish(0, Ok(()));
    world.finish(0, Ok(()));
    assert_eq!(world.engine.cause(0), Some(Cause::Held));
    world.engine.set_head(10, None);
    world.open(1, 0..1, 10, 2);
    assert_eq!(world.engine.cause(1), Some(Cause::Unknown));
}

/// While two ranks hold the whole arena, the third one's step finds no room, and is late afterwards.
#[test]
fn a_full_arena_is_a_cause_and_so_is_what_it_delayed() {
    let mut world = World::new(4, 3, 10);
    world.open(0, 0..1, 0, 8);
    world.open(1, 1..2, 0, 8);
    while !world.fetching.is_empty() {
        world.finish(0, Ok(()));
    }
    assert_eq!(world.held[&0].len() + world.held[&1].len(), 4, "all of it");
    world.open(2, 2..3, 0, 8);
    assert_eq!(world.engine.cause(2), Some(Cause::ArenaFull));
    assert_eq!(world.engine.cause(0), Some(Cause::Share));
    world.release_oldest(0);
    assert_eq!(world.engine.cause(2), Some(Cause::Backpressure));
    world.finish(0, Ok(()));
    assert_eq!(world.held[&2].len(), 1);
}

/// A step of three frames fits into an arena of four, a step of five does not, regardless of its readers.
#[test]
fn a_step_beyond_the_arena_fails_at_once() {
    let mut world = World::new(4, 5, 10);
    world.open(0, 0..3, 0, 2);
    world.settle(&[]);
    assert_eq!(
        world.held[&0].len(),
        4,
        "the first step, and one of the next"
    );
    world.settle(&[0]);
    assert_eq!((world.failed.len(), world.ended.len()), (0, 1));
    let mut world = World::new(4, 5, 10);
    world.open(0, 0..5, 0, 2);
    world.settle(&[]);
    let failed = world.failed[&0];
    assert_eq!((failed.step, failed.slice), (0, 4), "four were sent");
}
