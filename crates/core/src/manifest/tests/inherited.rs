//! Attempts of a fork that begin with a checkpoint of the parent stream.

use std::sync::Arc;

use super::admin::{attempt_entry, bench};
use super::*;
use crate::fixtures;
use crate::ids::StreamId;

#[test]
fn a_checkpoint_of_the_parent_stream_is_taken_at_the_first_step_of_a_fork() {
    let mut b = bench();
    let inherited = Inherited {
        stream: StreamId::from_random([8; 16]),
        attempt: 7,
        id: attempt(9),
        step: 4,
    };
    let entry = |inherited, start, parent| AttemptOpened {
        inherited: Some(inherited),
        parent,
        ..attempt_entry(2, 2, Some(1), start)
    };
    let good = entry(inherited, 4, None);
    let judged =
        |m: &Manifest, entry: &AttemptOpened| m.validate(&Entry::AttemptOpened(entry.clone()));
    assert_eq!(judged(&b.m, &good), Err(Void::NotInherited), "no fork");
    let fork = fixtures::fork(b.m.stream().clone(), inherited.stream, 4);
    b.m.stream = Arc::new(fork);
    let other = Inherited {
        stream: StreamId::from_random([3; 16]),
        ..inherited
    };
    let later = Inherited {
        step: 5,
        ..inherited
    };
    let own = Parent {
        attempt: 0,
        step: 4,
    };
    for wrong in [
        entry(other, 4, None),
        entry(later, 5, None),
        entry(inherited, 5, None),
        entry(inherited, 4, Some(own)),
    ] {
        assert_eq!(judged(&b.m, &wrong), Err(Void::NotInherited), "{wrong:?}");
    }
    assert!(judged(&b.m, &good).is_ok());
    let good = Entry::AttemptOpened(good);
    golden::golden("attempt-v1-inherited.json", &crate::json::compact(&good));
}
