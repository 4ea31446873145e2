//! The number of requests per step, for ranks and stores of any speed.

use batchweave_core::ids::StreamId;
use batchweave_core::tgb::Identity;
use batchweave_core::tgb::ranges::{coalesce, with_headers};

use std::collections::VecDeque;

use super::*;

const MIB: u64 = 1 << 20;

/// A node that reads all slices of a stream whose objects have 64 MiB.
struct Node {
    slices: u32,
    slice_bytes: u64,
    steps: u64,
    /// Most bytes and steps read ahead.
    ahead_mib: u64,
    arena_mib: u64,
    steps_ahead: u64,
    /// Most reads in flight.
    reads: usize,
    /// Ticks per read, and ticks of work per step.
    read_ticks: u64,
    step_ticks: u64,
}

impl Node {
    fn location(&self, FrameId { step, slice }: FrameId) -> Location {
        let frame = self.slice_bytes + 64;
        let group = (64 * MIB / (self.slice_bytes * u64::from(self.slices))).max(1);
        let start = (step % group * u64::from(self.slices) + u64::from(slice)) * frame;
        Location {
            key: format!("object-{}", step / group).into(),
            range: start..start + frame,
            identity: Identity {
                stream: StreamId([0; 16]),
                producer: 0,
                epoch: 1,
            },
            seq: step,
        }
    }

    fn engine(&self) -> Engine<(), String> {
        let mut engine = Engine::new(Limits {
            ahead_bytes: self.ahead_mib * MIB,
            refill_bytes: 16 * MIB,
            steps_ahead: self.steps_ahead,
            segment_bytes: 64 * MIB,
            arena_bytes: self.arena_mib * MIB,
        });
        (0..self.arena_mib / 64).for_each(|_| _ = engine.add_segment(64 * MIB));
        for step in 0..self.steps {
            let frame = |slice| self.location(FrameId { step, slice });
            engine.add_step(step, 0, (0..self.slices).map(frame).collect());
        }
        engine.set_head(self.steps, Some(self.steps));
        let quarantine = Arc::new(QuarantineRanges::from_ranges(&[]));
        engine.open(1, ReadCursor::new(0..self.slices, 0, 4, quarantine));
        engine
    }

    /// Returns the requests per step, over the whole stream.
    fn run(&self) -> f64 {
        let mut engine = self.engine();
        let (mut queue, mut flying) = (VecDeque::new(), Vec::<(u64, Vec<FrameId>)>::new());
        let (mut held, mut free, mut working) = (VecDeque::new(), VecDeque::new(), 0);
        let (mut requests, mut tick, mut ended) = (0, 0_u64, false);
        while !ended {
            for action in engine.advance() {
                match action {
                    Action::Fetch(list) => {
                        let frames: Vec<_> = list.iter().map(|f| f.from.frame(f.id)).collect();
                        for read in coalesce(&frames, with_headers(16 * MIB)) {
                            requests += read.pieces().len();
                            let ids = read.frames.iter().map(|slot| FrameId {
                                step: slot.step,
                                slice: slot.slice,
                            });
                            queue.push_back(ids.collect::<Vec<_>>());
                        }
                    }
                    Action::Push { id, .. } => held.push_back(id),
                    Action::End(..) => ended = true,
                    Action::Grow => panic!("it is fully grown"),
                    Action::Fail(_, why) => panic!("{why}"),
                }
            }
            while flying.len() < self.reads
                && let Some(ids) = queue.pop_front()
            {
                flying.push((tick + self.read_ticks, ids));
            }
            tick += 1;
            flying.retain(|(done, ids)| {
                if *done <= tick {
                    for id in ids {
                        engine.fetched(*id, Ok(()));
                    }
                }
                *done > tick
            });
            if tick >= working && held.len() >= self.slices as usize {
                free.extend(held.drain(..self.slices as usize));
                working = tick + self.step_ticks;
            }
            // One message per frame, as frames may arrive.
            if let Some(id) = free.pop_front() {
                assert!(engine.release(1, id));
                tick -= 1;
            }
        }
        requests as f64 / self.steps as f64
    }
}

#[test]
fn at_most_one_request_per_step_with_either_side_faster() {
    for (slices, slice_bytes) in [
        (1, 8 * MIB),
        (8, MIB),
        (16, 512 << 10),
        (4, 4 * MIB),
        (8, 64 << 10),
    ] {
        for (read_ticks, step_ticks) in [(1, 20), (10, 10), (20, 1), (1, 0)] {
            for (ahead_mib, steps_ahead, arena_mib) in
                [(512, 64, 1024), (128, 1024, 256), (128, 64, 128)]
            {
                let node = Node {
                    slices,
                    slice_bytes,
                    steps: 128,
                    ahead_mib,
                    arena_mib,
                    steps_ahead,
                    reads: 4,
                    read_ticks,
                    step_ticks,
                };
                let requests = node.run();
                let text = format!(
                    "{slices} x {slice_bytes}, reads {read_ticks}, steps {step_ticks}, {ahead_mib} of {arena_mib} MiB ahead: {requests}"
                );
                println!("{text}");
                assert!(requests <= 1.05, "{text}");
            }
        }
    }
}
