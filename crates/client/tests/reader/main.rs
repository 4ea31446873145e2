//! The reader with a scripted daemon: order, frames, restarts, waits.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "../fake/mod.rs"]
mod fake;
mod marks;
mod releases;
mod reports;

use std::time::{Duration, Instant};

use batchweave_client::{Batch, Client, ClientError, Reader, Start, State};
use batchweave_wire::{
    BatchMessage, Checkpoint, ClientMessage, DaemonMessage, ErrorName, Fault, Mode, Replaces,
    WaitCause, Waiting,
};

use fake::{Daemon, PATIENCE, connected, folder, options, token};

/// A short time-out, for tests that expect it to pass.
const SHORT: Duration = Duration::from_millis(150);

fn read(reader: &mut Reader) -> Batch {
    reader.next(PATIENCE).unwrap().unwrap()
}

fn check(batch: &Batch, step: u64) {
    assert_eq!(batch.step(), step);
    for (index, slice) in (0..).zip(batch.slices()) {
        assert_eq!(slice.index(), index);
        assert_eq!(slice.array::<u64>("step").unwrap(), [step]);
        let tokens: &[u16] = slice.array("tokens").unwrap();
        let expected: Vec<u16> = (0..16).map(|i| token(step, index, i)).collect();
        assert_eq!(tokens, expected, "step {step} slice {index}");
    }
}

#[test]
fn steps_come_in_order_and_frames_go_back_when_dropped() {
    let (_dir, path) = folder();
    let (mut reader, _daemon, mut session) = connected(&path);
    assert_eq!(reader.shape(), (2, 16, 1));
    session.step(0);
    session.step(1);
    let first = read(&mut reader);
    let second = read(&mut reader);
    check(&first, 0);
    check(&second, 1);
    let kept = first.slices()[1].clone();
    drop(first);
    let error = kept.array::<i64>("tokens").unwrap_err().to_string();
    assert!(error.contains("tokens U16[1, 16]"), "{error}");
    drop(second);
    assert_eq!(
        session.released(),
        (2, vec![0, 2, 3]),
        "one message, slice 0 with it"
    );
    assert_eq!(kept.array::<u16>("tokens").unwrap()[0], token(0, 1, 0));
    drop(kept);
    assert_eq!(session.released(), (2, vec![1]));
    session.send(&DaemonMessage::EndOfStream(2));
    assert!(reader.next(PATIENCE).unwrap().is_none());
    assert!(
        reader.next(PATIENCE).unwrap().is_none(),
        "and it stays the end"
    );
    drop(reader);
    assert_eq!(session.released(), (2, vec![]), "its position, once more");
    assert_eq!(session.recv_deed(), Some(ClientMessage::Bye));
    assert_eq!(session.recv_deed(), None);
}

/// The final position arrives before the socket's end, however late the daemon reads.
#[test]
fn a_reader_that_closes_waits_until_its_last_words_are_read() {
    let (_dir, path) = folder();
    let (mut reader, _daemon, mut session) = connected(&path);
    session.step(0);
    drop(read(&mut reader));
    // A message that stays unread in the rank would reset the connection.
    session.step(1);
    std::thread::scope(|scope| {
        let closed = scope.spawn(|| reader.close(PATIENCE));
        while session.recv_deed() != Some(ClientMessage::Bye) {
            assert!(!closed.is_finished(), "the daemon has not read all yet");
        }
        closed.join().unwrap().unwrap();
    });
    assert_eq!(session.recv_deed(), None);
}

#[test]
fn a_step_in_several_messages_is_handed_out_whole() {
    let (_dir, path) = folder();
    let (mut reader, _daemon, session) = connected(&path);
    for slice in session.fill(0) {
        let part = BatchMessage {
            step: 0,
            first: slice.slice,
            of: 2,
            slices: vec![slice],
        };
        assert!(matches!(
            reader.next(Duration::ZERO),
            Err(ClientError::Timeout { .. })
        ));
        session.send(&DaemonMessage::Batch(part));
    }
    check(&read(&mut reader), 0);
}

#[test]
fn a_restarted_daemon_is_met_at_our_own_step_and_old_arrays_stay() {
    let (_dir, path) = folder();
    let (mut reader, daemon, session) = connected(&path);
    session.step(0);
    session.step(1);
    let held = read(&mut reader);
    drop((session, daemon));
    let daemon = Daemon::bind(&path, 2);
    let (batch, mut session) = std::thread::scope(|scope| {
        let batch = scope.spawn(|| {
            check(&read(&mut reader), 1);
            read(&mut reader)
        });
        let session = daemon.welcome();
        // The first daemon had queued step 1: it was read before the end, or dropped with it.
        assert!((1..=2).contains(&session.hello.next_step));
        (session.hello.next_step..=2).for_each(|step| session.step(step));
        (batch.join().unwrap(), session)
    });
    check(&batch, 2);
    check(&held, 0);
    assert_eq!(session.hello.mode, Mode::Resume);
    assert_eq!(
        session.hello.replaces,
        Some(Replaces {
            instance: "01".repeat(16),
            session: 1
        })
    );
    assert_eq!(
        session.hello.stream.as_deref(),
        Some("11111111-1111-1111-1111-111111111111")
    );
    assert_eq!(
        session.hello.mapped_bytes,
        1 << 16,
        "the held frame keeps the old segment"
    );
    drop(held);
    drop(batch);
    let mut frames = session.released().1;
    frames.extend(session.released().1);
    frames.retain(|&frame| frame < 2);
    assert!(
        frames.is_empty(),
        "frames of the first daemon are none of the second's"
    );
}

#[test]
fn without_a_daemon_the_error_has_a_name_and_comes_in_time() {
    let (_dir, path) = folder();
    let begun = Instant::now();
    let error = Client::connect(batchweave_client::ConnectOptions {
        timeout: SHORT,
        ..options(&path)
    })
    .unwrap_err();
    assert_eq!(error.name(), "no_daemon");
    assert!(
        error.to_string().contains("start batchweave-consumer"),
        "{error}"
    );
    assert!(begun.elapsed() >= SHORT);

    let (mut reader, daemon, session) = connected(&path);
    drop((session, daemon));
    let error = reader.next(SHORT).unwrap_err();
    assert_eq!(error.name(), "daemon_gone");
    assert!(error.to_string().contains("(step 0)"), "{error}");
    // A later call continues when the daemon is back.
    let daemon = Daemon::bind(&path, 2);
    std::thread::scope(|scope| {
        let batch = scope.spawn(|| read(&mut reader));
        daemon.welcome().step(0);
        check(&batch.join().unwrap(), 0);
    });
}

#[test]
fn a_late_step_is_an_error_that_names_the_cause() {
    let (_dir, path) = folder();
    let (mut reader, _daemon, mut session) = connected(&path);
    let detail = "s3://b/log/7.json: no route".to_owned();
    session.send(&DaemonMessage::Waiting(Waiting {
        step: 0,
        cause: WaitCause::StoreUnavailable,
        detail,
    }));
    let error = reader.next(SHORT).unwrap_err();
    assert_eq!(error.name(), "timeout");
    assert!(
        error.to_string().contains("step 0") && error.to_string().contains("no route"),
        "{error}"
    );
    match session.recv() {
        Some(ClientMessage::Progress(progress)) => assert!(progress.waiting),
        other => panic!("the daemon is told of the wait, not {other:?}"),
    }
    session.step(0);
    session.step(1);
    let held = [read(&mut reader), read(&mut reader)];
    let error = reader.next(SHORT).unwrap_err();
    assert_eq!(error.name(), "frames_held");
    assert!(
        error
            .to_string()
            .contains("step 0 (slices [0, 1]), step 1 (slices [0, 1])"),
        "{error}"
    );
    drop(held);
}

/// After a lost message the reader opens a new session at its own step, and frames of the old one keep
/// the old socket.
#[test]
fn an_unexpected_step_resyncs() {
    let (_dir, path) = folder();
    let (mut reader, daemon, mut old) = connected(&path);
    old.step(0);
    let held = read(&mut reader);
    old.step(2);
    std::thread::scope(|scope| {
        let batch = scope.spawn(|| read(&mut reader));
        let new = daemon.welcome();
        assert_eq!((new.hello.mode, new.hello.next_step), (Mode::Resume, 1));
        assert!(new.hello.replaces.is_some());
        new.step(1);
        check(&batch.join().unwrap(), 1);
    });
    let mut deeds = Vec::new();
    while !old.is_silent() {
        deeds.extend(old.recv_deed());
    }
    assert!(deeds.contains(&ClientMessage::Bye), "{deeds:?}");
    check(&held, 0);
    drop(held);
    assert_eq!(old.released().1, [0, 1], "over the old socket");
    assert_eq!(old.recv_deed(), None, "which is closed then");
}

#[test]
fn a_daemon_that_never_sends_the_step_is_called_faulty() {
    let (_dir, path) = folder();
    let (mut reader, daemon, session) = connected(&path);
    session.step(5);
    let error = std::thread::scope(|scope| {
        let error = scope.spawn(|| reader.next(PATIENCE).unwrap_err());
        (0..3).for_each(|_| daemon.welcome().step(5));
        error.join().unwrap()
    });
    assert_eq!(error.name(), "bad_message");
    assert!(
        error.to_string().contains("step 5 instead of step 0"),
        "{error}"
    );
}

#[test]
fn a_quarantined_range_is_passed_over() {
    let (_dir, path) = folder();
    let (mut reader, _daemon, mut session) = connected(&path);
    session.step(0);
    drop(read(&mut reader));
    session.welcome.next_step = 5;
    session.send(&DaemonMessage::Welcome(session.welcome.clone()));
    session.step(5);
    let batch = read(&mut reader);
    check(&batch, 5);
    assert_eq!(State::parse(&batch.state_dict()).unwrap().next_step, 6);
    while !session.is_silent() {
        session.recv();
    }
    session.welcome.next_step = 3;
    session.send(&DaemonMessage::Welcome(session.welcome.clone()));
    assert_eq!(
        reader.next(PATIENCE).unwrap_err().name(),
        "bad_message",
        "and never back"
    );
}

#[test]
fn errors_of_the_daemon_keep_their_name_and_remedy() {
    let (_dir, path) = folder();
    let daemon = Daemon::bind(&path, 1);
    let fault = |name| {
        Fault::new(
            name,
            "dp_size 3 does not divide 8 slices; divisors: 1, 2, 4, 8",
        )
    };
    let error = std::thread::scope(|scope| {
        let error = scope.spawn(|| Client::connect(options(&path)).unwrap_err());
        daemon
            .accept()
            .send(&DaemonMessage::Error(fault(ErrorName::BadMesh)));
        error.join().unwrap()
    });
    assert_eq!(error.name(), "bad_mesh");
    assert!(
        error.to_string().contains("divisors: 1, 2, 4, 8"),
        "{error}"
    );
    let (mut reader, session) = daemon.connect(options(&path));
    session.send(&DaemonMessage::Error(
        fault(ErrorName::StepReclaimed).at_step(0).at_key("data/x"),
    ));
    let error = reader.next(PATIENCE).unwrap_err();
    assert_eq!(error.name(), "step_reclaimed");
    assert!(error.to_string().contains("(step 0) (data/x)"), "{error}");
}

#[test]
fn a_state_says_where_to_begin_and_of_which_stream() {
    let (_dir, path) = folder();
    let daemon = Daemon::bind(&path, 1);
    let state = State::new(
        "11111111-1111-1111-1111-111111111111".into(),
        40,
        None,
        None,
        Some(1),
    );
    let start = Start::State(state.to_json());
    let wanted = batchweave_client::ConnectOptions {
        start,
        credits: 9,
        ..options(&path)
    };
    let (mut reader, session) = daemon.connect(wanted.clone());
    let hello = &session.hello;
    assert_eq!(
        (hello.next_step, hello.stream.as_deref(), hello.credits),
        (40, Some(&*state.stream_id), 9)
    );
    assert_eq!(
        reader.state_dict(),
        state.to_json(),
        "valid before the first read"
    );
    session.step(40);
    check(&read(&mut reader), 40);
    for bad in [
        batchweave_client::ConnectOptions {
            start: Start::State("{}".into()),
            ..wanted.clone()
        },
        batchweave_client::ConnectOptions {
            credits: 1,
            ..wanted.clone()
        },
        batchweave_client::ConnectOptions {
            dp_rank: 1,
            ..wanted
        },
    ] {
        let error = Client::connect(bad).unwrap_err();
        assert!(
            ["bad_state", "bad_hello"].contains(&error.name()),
            "{error}"
        );
    }
}
