//! Each refusal once, and admitted hellos.

use batchweave_core::fixtures;
use batchweave_core::ids::{Hash, StreamId};
use batchweave_core::stream::{SliceForm, StreamOrder, TokenizerId};

use super::*;

fn stream() -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([7; 16]),
        slices: 12,
        order: StreamOrder::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "bytes".into(),
            fingerprint: Hash([0; 32]),
        },
        seq_len: 16,
        rows_per_slice: 2,
        created: "2026-01-01T00:00:00Z".into(),
        form: None,
        parent: None,
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
    check(hello, &stream(), &["llm".to_owned()])?;
    slices_of(hello, &stream(), bounds)
}

fn refused(hello: &Hello) -> (Option<ErrorName>, String) {
    let fault = slices(hello).expect_err("must be refused");
    (fault.known_name(), fault.to_string())
}

#[test]
fn a_client_that_does_not_know_bins_is_refused_by_name() {
    let of = |forms: &[&str]| {
        let mut hello = hello(0, 1, 5);
        hello.client = "batchweave-python 0.0.9".to_owned();
        hello.forms = forms.iter().map(|form| (*form).to_owned()).collect();
        let mut stream = stream();
        (stream.format, stream.form) = (2, Some(SliceForm::Balanced));
        check(&hello, &stream, &["llm".to_owned()])
    };
    of(&["balanced"]).unwrap();
    let fault = of(&[]).unwrap_err();
    assert_eq!(fault.known_name(), Some(ErrorName::BadHello));
    let text = fault.to_string();
    assert!(
        text.contains("batchweave-python 0.0.9") && text.contains("release"),
        "{text}"
    );
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
    assert_eq!(
        text,
        "bad_mesh: dp_size 5 does not divide the stream's 12 slices a step; \
         choose a dp_size of 1, 2, 3, 4, 6, 12"
    );

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
fn a_state_of_the_parent_is_taken_at_the_first_step_of_the_fork() {
    let parent = StreamId::from_random([8; 16]);
    let of = |step, stream: &StreamConfig| {
        let mut state = hello(0, 1, step);
        state.stream = Some(parent.to_string());
        check(&state, stream, &["llm".to_owned()])
    };
    assert!(of(9, &stream()).is_err(), "no fork");
    let fork = fixtures::fork(stream(), parent, 9);
    assert_eq!(of(9, &fork), Ok(()));
    for step in [8, 10] {
        let fault = of(step, &fork).unwrap_err();
        assert_eq!(fault.known_name(), Some(ErrorName::OtherStream));
        let text = fault.to_string();
        for part in [
            format!("is of step {step} of the parent"),
            "begins at step 9".to_owned(),
            format!("fork the parent at step {step}"),
        ] {
            assert!(text.contains(&part), "{part}: {text}");
        }
    }
}

fn member(dp_rank: u32, id: u8, rank: Option<u32>) -> Member {
    Member {
        job: "llm".parse().unwrap(),
        opened: 0,
        attempt: 0,
        id: AttemptId([id; 16]),
        parent: None,
        start: 0,
        dp_rank,
        dp_size: 4,
        rank,
        shared: rank.is_some(),
        slices: 0..1,
        quarantine: std::sync::Arc::default(),
    }
}

#[test]
fn one_coordinate_has_one_live_session() {
    let member = |dp_rank, id: u8| member(dp_rank, id, None);
    let mut admission = Admission::default();
    assert_eq!(admission.enter(1, &member(0, 1)), Ok(()));
    assert_eq!(admission.enter(2, &member(0, 1)), Err(Refusal::Occupied(1)));
    assert_eq!(admission.enter(3, &member(1, 1)), Ok(()));
    assert_eq!(admission.enter(4, &member(0, 2)), Ok(()), "another attempt");
    admission.leave(1);
    assert_eq!(admission.enter(5, &member(0, 1)), Ok(()));
}

#[test]
fn ranks_that_say_so_share_a_coordinate() {
    let mut admission = Admission::default();
    let own = |rank| member(0, 1, Some(rank));
    assert_eq!(admission.enter(1, &own(0)), Ok(()));
    assert_eq!(admission.enter(2, &own(1)), Ok(()));
    let twice = Err(Refusal::Occupied(2));
    assert_eq!(admission.enter(3, &own(1)), twice, "the same rank again");
    let alone = Member {
        shared: false,
        ..own(2)
    };
    let taken = Err(Refusal::Occupied(1));
    assert_eq!(admission.enter(3, &alone), taken, "it does not say so");
    admission.leave(1);
    admission.leave(2);
    assert_eq!(admission.enter(3, &alone), Ok(()));
    assert_eq!(admission.enter(4, &own(0)), Err(Refusal::Occupied(3)));
}

#[test]
fn more_ranks_than_slices_hear_of_splitting_rows() {
    let (name, text) = refused(&hello(0, 24, 5));
    assert_eq!(name, Some(ErrorName::BadMesh));
    assert!(
        text.ends_with("12; or split_rows=N, where N ranks share a slice's rows"),
        "{text}"
    );
}
