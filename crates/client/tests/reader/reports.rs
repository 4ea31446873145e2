//! Reports of trained steps on the rank's side.

use batchweave_client::ConnectOptions;
use batchweave_wire::{Report, StepStates, StreamInfo, Tokenizer};

use super::*;
use crate::fake::Session;

fn job(path: &std::path::Path) -> ConnectOptions {
    ConnectOptions {
        job: Some("llm".into()),
        ..options(path)
    }
}

/// The description of the fake daemon's stream.
fn info(reports: Option<String>) -> DaemonMessage {
    DaemonMessage::StreamInfo(StreamInfo {
        stream: "11111111-1111-1111-1111-111111111111".into(),
        slices: 2,
        seq_len: 16,
        rows_per_slice: 1,
        tokenizer: Tokenizer {
            name: "bytes".into(),
            fingerprint: "5c".repeat(32),
            builtin: Some("bytes".into()),
            vocabulary: Some(257),
            file_bytes: None,
            missing: None,
        },
        reports,
        stages: Vec::new(),
    })
}

fn state(from: u64, to: u64, left_out: Option<&str>) -> StepStates {
    StepStates {
        from,
        to,
        left_out: left_out.map(str::to_owned),
    }
}

/// Receives the next message that is neither progress nor a release.
fn said(session: &mut Session) -> Option<ClientMessage> {
    loop {
        match session.recv_deed() {
            Some(ClientMessage::Release(_)) => {}
            other => return other,
        }
    }
}

fn report(next_step: u64, states: Vec<StepStates>) -> ClientMessage {
    ClientMessage::Report(Report {
        next_step,
        states,
        ..Report::default()
    })
}

fn is_mark(message: Option<&ClientMessage>, step: u64) -> bool {
    matches!(message, Some(ClientMessage::Checkpoint(mark)) if mark.step == step)
}

#[test]
fn reports_precede_marks_and_are_repeated_until_they_are_stored() {
    let (_dir, path) = folder();
    let daemon = Daemon::bind(&path, 1);
    let (mut reader, mut session) = daemon.connect(job(&path));
    session.step(0);
    session.step(1);
    drop(read(&mut reader));
    drop(read(&mut reader));
    reader.report(0, None).unwrap();
    assert_eq!(reader.reports_taken(), None);
    // The mark waits for the answer.
    reader.checkpoint(&reader.state_dict()).unwrap();
    daemon.answer(&info(Some("01".repeat(16))));
    reader.report(1, Some("nan")).unwrap();
    assert_eq!(reader.reports_taken(), Some(true));
    let states = vec![state(0, 1, None), state(1, 2, Some("nan"))];
    assert_eq!(said(&mut session), Some(report(2, states)));
    session.send(&DaemonMessage::Reported(1));
    session.step(2);
    drop(read(&mut reader));
    assert!(is_mark(said(&mut session).as_ref(), 2));
    reader.report(2, None).unwrap();
    reader.checkpoint(&reader.state_dict()).unwrap();
    assert_eq!(said(&mut session), Some(report(3, vec![state(2, 3, None)])));
    assert!(is_mark(said(&mut session).as_ref(), 3));
    drop(session);
    std::thread::scope(|scope| {
        let closed = scope.spawn(|| reader.close(PATIENCE));
        let mut session = daemon.welcome();
        daemon.answer(&info(Some("01".repeat(16))));
        // The first report was confirmed.
        assert_eq!(said(&mut session), Some(report(3, vec![state(2, 3, None)])));
        for step in [2, 3] {
            assert!(is_mark(said(&mut session).as_ref(), step));
            session.send(&DaemonMessage::Marked(step));
        }
        assert_eq!(said(&mut session), Some(ClientMessage::Bye));
        closed.join().unwrap().unwrap();
    });
}

#[test]
fn a_daemon_that_takes_no_reports_gets_none() {
    let refusal = Fault::new(ErrorName::BadMessage, "message type 6 is not one");
    for answer in [DaemonMessage::Error(refusal), info(None)] {
        let (_dir, path) = folder();
        let daemon = Daemon::bind(&path, 1);
        let (mut reader, mut session) = daemon.connect(job(&path));
        session.step(0);
        drop(read(&mut reader));
        reader.report(0, None).unwrap();
        daemon.answer(&answer);
        reader.checkpoint(&reader.state_dict()).unwrap();
        assert!(is_mark(said(&mut session).as_ref(), 1));
        assert_eq!(reader.reports_taken(), Some(false));
    }
}

#[test]
fn wrong_reports_are_named_and_without_a_job_nothing_is_sent() {
    let (_dir, path) = folder();
    let (mut reader, _daemon, session) = connected(&path);
    session.step(0);
    drop(read(&mut reader));
    let early = reader.report(1, None).unwrap_err();
    assert_eq!(early.name(), "bad_report");
    assert!(early.to_string().contains("the next step is 1"), "{early}");
    for reason in ["", "a\nb", &"x".repeat(65)] {
        let why = reader.report(0, Some(reason)).unwrap_err().to_string();
        assert!(why.contains("one line of 1 to 64 bytes"), "{why}");
    }
    reader.report(0, None).unwrap();
    assert_eq!(reader.reports_taken(), None, "it did not ask");
}
