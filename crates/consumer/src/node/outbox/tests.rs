//! A step of more slices than fit into a message.

use batchweave_arena::{MemoryLimits, Segment};
use batchweave_core::tgb::{Dtype, Layout};

use super::*;
use crate::engine::layouts::ShapeCache;

/// The outbox of a rank that reads this many slices from slice 7 on.
fn outbox(slice_count: u32) -> Outbox {
    let welcome = Welcome {
        session: 1,
        instance: [0; 16],
        stream: [0; 16],
        attempt: [0; 16],
        attempt_number: None,
        next_step: 3,
        end_step: None,
        slices: 7 + slice_count,
        seq_len: 1,
        rows_per_slice: 1,
        first_slice: 7,
        slice_count,
        credits: 2,
    };
    let hello = Hello::new("test", 3);
    let owner = Owner::new(0, &hello, None);
    Outbox::new(&hello, owner, welcome, None)
}

#[test]
fn a_step_of_many_slices_goes_in_several_messages() {
    let layout = Layout::tokens(Dtype::U16, 1, 2).unwrap();
    let shape = ShapeCache::default().get_or_parse(&layout.encode_tokens(&[1, 2]).unwrap());
    let (shape, segment) = (
        shape.unwrap(),
        Segment::create("test", 4096, &MemoryLimits::default()).unwrap(),
    );
    let count = FRAMES_MAX as u32 * 2 + 452;
    let mut outbox = outbox(count);
    for slice in 7..7 + count {
        let id = FrameId { step: 3, slice };
        let region = FrameRegion {
            segment: 0,
            offset: 0,
            bytes: 256,
        };
        outbox.push(
            id,
            region,
            &shape,
            u64::from(slice),
            std::slice::from_ref(&segment),
        );
    }
    let (mut next, mut messages) = (0, 0);
    for message in outbox.queue {
        let Outgoing::Message(message) = message else {
            continue;
        };
        message.encode().unwrap();
        if let DaemonMessage::Batch(batch) = message {
            assert_eq!((batch.step, batch.first, batch.of), (3, next, count));
            let slices: Vec<u32> = batch.slices.iter().map(|slice| slice.slice).collect();
            next += slices.len() as u32;
            assert_eq!(slices, (7 + batch.first..7 + next).collect::<Vec<_>>());
            messages += 1;
        }
    }
    assert_eq!((next, messages), (count, 3));
}

#[test]
fn one_message_for_all_slices_is_found() {
    let test = a_step_of_many_slices_goes_in_several_messages;
    crate::mistakes::is_found(crate::mistakes::Mistake::OneMessage, test);
}

#[test]
fn an_owner_is_one_user_in_one_place() {
    let hello = Hello::new("test", 0);
    let owner = |uid, change: fn(&mut Hello)| {
        let mut hello = hello.clone();
        change(&mut hello);
        Owner::new(uid, &hello, None)
    };
    let first = owner(1, |_| {});
    assert_eq!(first, owner(1, |hello| hello.next_step = 9));
    for other in [
        owner(2, |_| {}),
        owner(1, |hello| hello.dp_rank = 1),
        owner(1, |hello| hello.dp_size = 2),
        owner(1, |hello| hello.global_rank = Some(0)),
    ] {
        assert_ne!(first, other);
    }
}
