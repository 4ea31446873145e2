//! Checkpoint marks and attempts on the rank's side.

use super::*;

#[test]
fn marks_are_repeated_until_they_are_stored() {
    let (_dir, path) = folder();
    let (mut reader, daemon, mut session) = connected(&path);
    session.step(0);
    let state = read(&mut reader).state_dict();
    reader.checkpoint(&state).unwrap();
    let inner = State::parse(&state).unwrap().inner();
    let mark = Some(ClientMessage::Checkpoint(Checkpoint {
        step: 1,
        state: inner,
    }));
    while session.recv_deed() != mark {}
    drop(session);
    std::thread::scope(|scope| {
        let closed = scope.spawn(|| reader.close(PATIENCE));
        let mut session = daemon.welcome();
        while session.recv_deed() != mark {}
        session.send(&DaemonMessage::Marked(1));
        assert_eq!(session.released(), (1, vec![]));
        assert_eq!(session.recv_deed(), Some(ClientMessage::Bye));
        closed.join().unwrap().unwrap();
    });
    let (mut reader, _session) = daemon.connect(options(&path));
    let other = state.replace("11111111-1111", "22222222-2222");
    assert_eq!(reader.checkpoint(&other).unwrap_err().name(), "bad_state");
    reader.checkpoint(&state).unwrap();
    assert_eq!(
        reader.close(SHORT).unwrap_err().name(),
        "timeout",
        "nobody stored it"
    );
}

#[test]
fn a_refused_mark_is_told_once_and_not_repeated() {
    let (_dir, path) = folder();
    let (mut reader, daemon, session) = connected(&path);
    session.step(0);
    let state = read(&mut reader).state_dict();
    reader.checkpoint(&state).unwrap();
    let fault = Fault::new(ErrorName::MarkInFuture, "step 1 is above the head").at_step(1);
    session.send(&DaemonMessage::MarkRefused(fault.clone()));
    session.step(1);
    drop(read(&mut reader));
    let state = reader.state_dict();
    let error = reader.checkpoint(&state).unwrap_err();
    assert_eq!(error.name(), "mark_in_future");
    assert!(error.to_string().contains("(step 1)"), "{error}");
    drop(session);
    std::thread::scope(|scope| {
        let closed = scope.spawn(|| reader.close(PATIENCE));
        let mut session = daemon.welcome();
        let marks =
            |deed: &Option<ClientMessage>| matches!(deed, Some(ClientMessage::Checkpoint(_)));
        let mut deed = session.recv_deed();
        while !marks(&deed) {
            deed = session.recv_deed();
        }
        let Some(ClientMessage::Checkpoint(mark)) = deed else {
            unreachable!()
        };
        assert_eq!(mark.step, 2, "the refused one is not sent again");
        session.send(&DaemonMessage::MarkRefused(fault.at_step(2)));
        assert_eq!(closed.join().unwrap().unwrap_err().name(), "mark_in_future");
    });
}

/// The only rank of a job draws its attempt's id; a state's attempt becomes the parent.
#[test]
fn a_job_has_an_attempt_and_a_parent() {
    let (_dir, path) = folder();
    let daemon = Daemon::bind(&path, 1);
    let job = |dp_size, start| batchweave_client::ConnectOptions {
        job: Some("llm".into()),
        dp_size,
        start,
        ..options(&path)
    };
    let ids: Vec<_> = (0..2)
        .map(|_| daemon.connect(job(1, Start::Step(0))).1.hello.attempt)
        .collect();
    assert!(ids[0].is_some() && ids[0] != ids[1], "{ids:?}");
    assert_eq!(daemon.connect(options(&path)).1.hello.attempt, None);
    assert_eq!(daemon.connect(job(2, Start::Step(0))).1.hello.attempt, None);
    let stream = "11111111-1111-1111-1111-111111111111";
    let state = State::new(stream.into(), 40, Some("ab".repeat(16)), Some(3), Some(1));
    let (_, session) = daemon.connect(job(1, Start::State(state.to_json())));
    let parent = session.hello.parent.unwrap();
    assert_eq!(
        (parent.attempt, parent.id, parent.step),
        (3, "ab".repeat(16), 40)
    );
}
