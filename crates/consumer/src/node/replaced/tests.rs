//! Ranks of a replaced log: each kind of evidence of a rank's position, and replacements that stop no rank.

use std::sync::Arc;

use batchweave_arena::{MemoryLimits, Segment};
use batchweave_core::ids::{AttemptId, RequestId};
use batchweave_core::manifest::state::{AttemptState, JobState, QuarantineState};
use batchweave_wire::{DaemonMessage, ErrorName, Mode, Parent, Welcome};
use prometheus::Registry;

use super::*;
use crate::engine::Limits;
use crate::job::deliveries::Deliveries;
use crate::metrics::Metrics;
use crate::node::Outgoing;
use crate::node::outbox::Owner;

const ID: AttemptId = AttemptId([1; 16]);

fn head(next_step: Step) -> Head {
    let attempt = AttemptState {
        number: 0,
        id: ID,
        opened: 4,
        parent: None,
        start: 2,
        dp_size: 2,
        mesh: Vec::new(),
        head: None,
    };
    let job = JobState {
        opened: 3,
        start: 0,
        keep: 2,
        holds: true,
        paces: true,
        lease_seconds: None,
        attempts: vec![attempt],
    };
    Head {
        next_step,
        jobs: [("llm".parse().unwrap(), job)].into(),
        ..Head::default()
    }
}

fn state(next_step: Step) -> State {
    let metrics = Arc::new(Metrics::new(&Registry::new()).unwrap());
    let (deliveries, _) = Deliveries::channel(metrics.clone());
    let limits = Limits {
        ahead_bytes: 4096,
        refill_bytes: 1024,
        steps_ahead: 8,
        segment_bytes: 4096,
        arena_bytes: 4096,
    };
    let segment = Segment::create("test", 4096, &MemoryLimits::default()).unwrap();
    let mut state = State::new(
        limits,
        segment,
        metrics,
        Arc::default(),
        deliveries,
        Arc::default(),
        Arc::default(),
    );
    state.set_head(head(next_step));
    state
}

fn hello(dp_rank: u32, mode: Mode, next_step: Step) -> Hello {
    let mut hello = Hello::new("test", next_step);
    (hello.dp_rank, hello.dp_size, hello.mode) = (dp_rank, 2, mode);
    (hello.job, hello.attempt) = (Some("llm".into()), Some(ID.to_string()));
    hello
}

fn member(state: &State, hello: &Hello) -> Member {
    let job = &state.head.jobs[&"llm".parse().unwrap()];
    let slices = hello.dp_rank..hello.dp_rank + 1;
    let quarantine = Arc::new(QuarantineRanges::from_ranges(&[]));
    Member::new(hello, job, &job.attempts[0], slices, quarantine).unwrap()
}

fn join(state: &mut State, hello: &Hello) -> SessionId {
    let (member, session) = (Arc::new(member(state, hello)), state.new_session());
    let welcome = Welcome {
        session,
        instance: [0; 16],
        stream: [0; 16],
        attempt: ID.0,
        attempt_number: Some(0),
        next_step: hello.next_step,
        end_step: None,
        slices: 2,
        seq_len: 1,
        rows_per_slice: 1,
        first_slice: hello.dp_rank,
        slice_count: 1,
        credits: 2,
    };
    let quarantine = Arc::clone(&member.quarantine);
    let owner = Owner::new(0, hello, Some(&member));
    state.open_session(hello, owner, welcome, Some(member), quarantine);
    session
}

/// The error that a session was sent.
fn error(state: &mut State, id: SessionId) -> Option<String> {
    let (outbox, _) = state.take_messages(id);
    outbox.into_iter().find_map(|message| match message {
        Outgoing::Message(DaemonMessage::Error(fault)) => {
            assert_eq!(fault.known_name(), Some(ErrorName::StreamRewound));
            Some(fault.message)
        }
        _ => None,
    })
}

fn changed(steps: &[Step]) -> LogReplacement {
    LogReplacement {
        changed: steps.iter().copied().collect(),
        stored: Vec::new(),
    }
}

#[test]
fn a_rank_that_has_more_than_the_new_log_is_stopped_and_no_other() {
    let mut state = state(20);
    let far = join(&mut state, &hello(0, Mode::Resume, 11));
    let new = join(&mut state, &hello(1, Mode::Join, 2));
    state.replace_log(head(11), &changed(&[]));
    assert_eq!(error(&mut state, far), None, "the log has all that it has");
    state.replace_log(head(10), &changed(&[]));
    let text = error(&mut state, far).unwrap();
    assert!(
        text.contains("given step 10, and the log ends before step 10"),
        "{text}"
    );
    assert_eq!(error(&mut state, new), None, "it has nothing yet");
    assert_eq!(state.head.next_step, 10);
}

#[test]
fn a_step_that_is_another_batch_now_stops_sessions_that_have_it() {
    let mut state = state(20);
    let far = join(&mut state, &hello(0, Mode::Resume, 9));
    let near = join(&mut state, &hello(1, Mode::Resume, 8));
    for step in 0..12 {
        state.note_step(step, Digest([0; 32]), 0);
    }
    state.replace_log(head(30), &changed(&[8, 9]));
    let text = error(&mut state, far).unwrap();
    assert!(
        text.contains("step 8 is another batch in the log now"),
        "{text}"
    );
    assert_eq!(error(&mut state, near), None);
    let known: Vec<Step> = state.known_steps().iter().map(|(step, _)| *step).collect();
    assert_eq!(known, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]);
}

#[test]
fn marks_of_the_attempt_stop_its_ranks() {
    let mut state = state(20);
    let rank = join(&mut state, &hello(0, Mode::Resume, 5));
    assert_eq!(state.live_attempts().into_iter().next().unwrap().1, 3);
    let attempt = state.live_attempts().into_iter().next().unwrap();
    let replaced = LogReplacement {
        changed: BTreeSet::new(),
        stored: vec![(attempt, 16)],
    };
    state.replace_log(head(16), &replaced);
    assert_eq!(error(&mut state, rank), None);
    state.replace_log(head(15), &replaced);
    let text = error(&mut state, rank).unwrap();
    assert!(
        text.contains("marks or progress") && text.contains("step 15"),
        "{text}"
    );
}

#[test]
fn a_rank_that_comes_with_more_than_the_log_is_told() {
    let mut state = state(10);
    let beyond = |state: &State, hello: &Hello| state.contradicts(hello, None);
    let resumed = |step| hello(0, Mode::Resume, step);
    assert_eq!(beyond(&state, &resumed(10)), None);
    let fault = beyond(&state, &resumed(11)).unwrap();
    assert!(fault.message.contains("given step 10"), "{fault}");
    // A start ahead of the head claims nothing: no step was received before it.
    assert_eq!(beyond(&state, &hello(0, Mode::Join, 40)), None);
    let mut restored = hello(0, Mode::Join, 12);
    restored.attempt = Some("f".repeat(32));
    let parent = |step| Parent {
        attempt: 0,
        id: ID.to_string(),
        step,
    };
    restored.parent = Some(parent(12));
    let fault = beyond(&state, &restored).unwrap();
    assert!(
        fault.message.contains("a checkpoint behind step 11"),
        "{fault}"
    );
    restored.parent = Some(parent(2));
    assert_eq!(beyond(&state, &restored), None, "where the attempt began");
    // The positions lie behind ranges that are quarantined ahead of time.
    state.head.quarantine = vec![QuarantineState {
        id: RequestId([0; 16]),
        first: 10,
        last: 99,
        reason: String::new(),
        added: 1,
        lifted: None,
    }];
    assert_eq!(beyond(&state, &resumed(100)), None);
}

#[test]
fn the_ledger_of_an_earlier_session_counts() {
    let mut state = state(20);
    let first = hello(0, Mode::Resume, 15);
    let id = join(&mut state, &first);
    state.close_session(id);
    let again = hello(0, Mode::Join, 2);
    let rank = member(&state, &again);
    assert_eq!(state.contradicts(&again, Some(&rank)), None);
    state.set_head(head(12));
    let fault = state.contradicts(&again, Some(&rank)).unwrap();
    assert!(fault.message.contains("the ledger says"), "{fault}");
}

/// The position of a rank that reports too much stays at what it was sent.
#[test]
fn a_rank_is_believed_up_to_what_it_was_sent() {
    let mut state = state(50);
    let hello = hello(0, Mode::Join, 2);
    let id = join(&mut state, &hello);
    state.received(id, 1 << 40);
    let rank = member(&state, &hello);
    assert_eq!(state.ranks.received(&rank), Some(2));
    assert!(state.rank_ranges().iter().all(|run| run.step == 2));
}

#[test]
fn a_rank_that_is_believed_is_found() {
    use crate::mistakes::Mistake;
    let test = a_rank_is_believed_up_to_what_it_was_sent;
    crate::mistakes::is_found(Mistake::BelievedRank, test);
}
