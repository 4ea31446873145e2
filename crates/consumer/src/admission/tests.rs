//! Each refusal once, and what is admitted.

use batchweave_core::ids::{Hash, StreamId};
use batchweave_core::stream::{Order, TokenizerId};

use super::*;

fn stream() -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([7; 16]),
        slices: 12,
        order: Order::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "bytes".into(),
            fingerprint: Hash([0; 32]),
        },
        seq_len: 16,
        rows_per_slice: 2,
        created: "2026-01-01T00:00:00Z".into(),
    }
}

fn hello(dp_rank: u32, dp_size: u32, next_step: Step) -> Hello {
    let mut hello = Hello::new("test", next_step);
    (hello.dp_rank, hello.dp_size) = (dp_rank, dp_size);
    hello.job = Some("llm".into());
    hello.attempt = Some("0".repeat(32));
    hello
}

fn slices(hello: &Hello) -> Result<Range<u32>, Fault> {
    let bounds = Bounds {
        watermark: 5,
        end: Some(20),
    };
    slices_of(hello, &stream(), bounds, "llm")
}

fn refused(hello: &Hello) -> (Option<ErrorName>, String) {
    let fault = slices(hello).expect_err("must be refused");
    (fault.known_name(), fault.to_string())
}

#[test]
fn a_rank_gets_its_block_of_slices() {
    assert_eq!(slices(&hello(0, 1, 5)), Ok(0..12));
    assert_eq!(
        slices(&hello(2, 4, 20)),
        Ok(6..9),
        "the end itself is a position"
    );
}

#[test]
fn every_refusal_names_what_is_wrong() {
    let (name, text) = refused(&hello(0, 5, 5));
    assert_eq!(name, Some(ErrorName::BadMesh));
    assert!(text.contains("choose one of 1, 2, 3, 4, 6, 12"), "{text}");

    assert_eq!(refused(&hello(0, 1, 4)).0, Some(ErrorName::StepReclaimed));
    assert_eq!(refused(&hello(0, 1, 21)).0, Some(ErrorName::StreamEnded));
    assert_eq!(refused(&hello(4, 4, 5)).0, Some(ErrorName::BadHello));

    let mut other = hello(0, 1, 5);
    other.job = Some("eval".into());
    assert_eq!(refused(&other).0, Some(ErrorName::UnknownJob));

    let mut state = hello(0, 1, 5);
    state.stream = Some(StreamId::from_random([8; 16]).to_string());
    assert_eq!(refused(&state).0, Some(ErrorName::OtherStream));

    let mut shape = hello(0, 1, 5);
    (shape.seq_len, shape.rows_per_slice) = (Some(17), Some(3));
    let (name, text) = refused(&shape);
    assert_eq!(name, Some(ErrorName::BadHello));
    assert!(
        text.contains("seq_len") && text.contains("rows_per_slice"),
        "all at once: {text}"
    );
}

#[test]
fn one_coordinate_has_one_live_session() {
    let mut admission = Admission::default();
    assert_eq!(admission.enter(1, &hello(0, 4, 5)), Ok(()));
    assert_eq!(
        admission.enter(2, &hello(0, 4, 5)),
        Err(Refusal::Occupied(1))
    );
    assert_eq!(admission.enter(3, &hello(1, 4, 5)), Ok(()));
    admission.leave(1);
    assert_eq!(admission.enter(4, &hello(0, 4, 5)), Ok(()));
}

#[test]
fn ranks_of_an_attempt_agree() {
    let mut admission = Admission::default();
    assert_eq!(admission.enter(1, &hello(0, 4, 5)), Ok(()));
    for wrong in [hello(1, 2, 5), hello(1, 4, 6)] {
        let Err(Refusal::Final(fault)) = admission.enter(2, &wrong) else {
            panic!("{wrong:?} must be refused");
        };
        assert_eq!(fault.known_name(), Some(ErrorName::AttemptDisagrees));
    }
    let mut resumed = hello(1, 4, 9);
    resumed.mode = Mode::Resume;
    assert_eq!(
        admission.enter(2, &resumed),
        Ok(()),
        "a resuming rank stands elsewhere"
    );
    let mut next = hello(0, 2, 9);
    next.attempt = Some("1".repeat(32));
    assert_eq!(
        admission.enter(3, &next),
        Ok(()),
        "another attempt, another agreement"
    );
}
