//! Shares of the arena that ranks may hold, with others and alone.

use super::*;

const FRAMES: u64 = 100;
const GREEDY: usize = 1_024;

/// Ranks that request all frames and release none, one after another, each with another slice.
fn beside_greedy(ranks: u32) -> World {
    let mut world = World::new(FRAMES, ranks + 1, 400);
    for rank in 0..ranks {
        world.open(rank.into(), rank..rank + 1, 0, GREEDY);
        world.settle(&[]);
    }
    world
}

#[test]
fn a_rank_holds_no_more_of_the_arena_than_it_leaves() {
    let world = beside_greedy(3);
    let held: Vec<usize> = world.held.values().map(Vec::len).collect();
    assert_eq!(held, [50, 25, 13]);
    assert_eq!(world.engine.cause(0), Some(Cause::Share));
}

#[test]
fn a_rank_beside_greedy_ones_reads_all_of_its_steps() {
    for ranks in 1..5 {
        let mut world = beside_greedy(ranks);
        let good = SessionId::from(ranks);
        world.open(good, ranks..ranks + 1, 0, 4);
        world.settle(&[good]);
        assert_eq!(world.ended.get(&good), Some(&400), "beside {ranks}");
    }
}

/// When a rank disconnects, more room is free, and the others may hold more.
#[test]
fn room_of_a_leaving_rank_is_shared_by_the_remaining_ranks() {
    let mut world = beside_greedy(2);
    world.engine.close(0);
    world.held.remove(&0);
    world.run();
    world.settle(&[]);
    assert_eq!(world.held[&1].len(), 50);
}

/// Each rank may hold two steps, however small the arena is.
#[test]
fn two_steps_are_allowed_regardless_of_other_ranks() {
    let mut world = World::new(4, 2, 10);
    world.open(0, 0..1, 0, GREEDY);
    world.settle(&[]);
    world.open(1, 1..2, 0, GREEDY);
    world.settle(&[]);
    assert_eq!((world.held[&0].len(), world.held[&1].len()), (2, 2));
}

/// When there is room for one more step than a greedy rank holds, it is not used for the greedy rank.
#[test]
fn a_rank_reads_on_in_what_little_a_greedy_one_leaves() {
    let mut world = World::new(3, 2, 10);
    world.open(0, 0..1, 0, GREEDY);
    world.settle(&[]);
    world.open(1, 1..2, 0, 2);
    world.settle(&[1]);
    assert_eq!((world.held[&0].len(), world.ended.get(&1)), (2, Some(&10)));
}

/// Frames that ranks share occupy the arena once, and are counted once.
#[test]
fn ranks_of_the_same_slice_hold_the_same_half() {
    let mut world = World::new(FRAMES, 1, 400);
    for rank in 0..8 {
        world.open(rank, 0..1, 0, GREEDY);
    }
    world.settle(&[]);
    let held: Vec<usize> = world.held.values().map(Vec::len).collect();
    assert_eq!(held, [50; 8]);
    world.settle(&[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(world.ended.len(), 8);
}
