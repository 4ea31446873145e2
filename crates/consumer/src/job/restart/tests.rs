//! Where an attempt begins, for all small histories of a job, against the rule in one line; and the message.

use batchweave_core::ids::StreamId;
use batchweave_core::manifest::state::AttemptState;
use batchweave_core::stream::StreamOrder;
use batchweave_core::{fixtures, keys};

use super::*;
use crate::mistakes::is_found;

const HEAD: Step = 1_000;

fn name() -> JobName {
    "llm".parse().unwrap()
}

/// A job with attempts at these starts, each with complete marks at these steps.
fn history(attempts: &[(Step, &[Step])]) -> (JobState, JobObjects) {
    let mut objects = JobObjects::new();
    let states = (0_u64..).zip(attempts).map(|(number, (start, marks))| {
        let own = objects.entry(number).or_default();
        for step in *marks {
            for at in 0..2 {
                own.note(&keys::mark(&name(), 7, number, *step, Some(at)), 2, HEAD);
            }
        }
        AttemptState {
            number,
            id: AttemptId([number as u8 + 1; 16]),
            opened: 10 + number,
            parent: None,
            start: *start,
            dp_size: 2,
            mesh: Vec::new(),
            head: None,
        }
    });
    let job = JobState {
        opened: 7,
        start: 0,
        keep: 2,
        holds: true,
        paces: true,
        lease_seconds: None,
        attempts: states.collect(),
    };
    (job, objects)
}

fn request(begin: Begin) -> AttemptRequest {
    AttemptRequest {
        job: name(),
        opened: 7,
        id: AttemptId([9; 16]),
        parent: None,
        stream: None,
        start: 0,
        begin,
        dp_size: 2,
        yields: false,
    }
}

/// Two attempts, each with any of three starts and any marks of two steps: what was trained, a checkpoint of
/// which a restart could use, is never given up without a word.
fn no_history_is_forgotten() {
    const STEPS: [Step; 3] = [0, 20, 40];
    const MARKS: [&[Step]; 4] = [&[], &[20], &[40], &[20, 40]];
    for first in STEPS {
        for first_marks in MARKS {
            for second in STEPS {
                for second_marks in MARKS {
                    let all = [(first, first_marks), (second, second_marks)];
                    let (job, objects) = history(&all);
                    // The newest attempt always is one of those from which a job restarts.
                    let own = second_marks.iter().filter(|step| **step >= second);
                    let newest = own.copied().max().unwrap_or(second);
                    let unstated = begin(&request(Begin::Unstated), &job, &objects, 0);
                    assert_eq!(unstated.is_err(), newest > 0, "{all:?}");
                    let latest = begin(&request(Begin::Latest), &job, &objects, 0).unwrap();
                    assert_eq!(latest.start, newest, "{all:?}");
                    let parent = latest.parent.map(|(number, _, step)| (number, step));
                    assert_eq!(parent, (newest > 0).then_some((1, newest)), "{all:?}");
                    let stated = request(Begin::Stated);
                    assert_eq!(begin(&stated, &job, &objects, 0), Ok(stated), "{all:?}");
                }
            }
        }
    }
}

#[test]
fn an_attempt_without_a_stated_start_never_gives_checkpoints_up() {
    is_found(Mistake::ForgottenState, no_history_is_forgotten);
}

#[test]
fn a_job_without_checkpoints_begins_at_0_as_often_as_it_restarts() {
    for attempts in [&[][..], &[(0, &[][..])], &[(0, &[]), (0, &[]), (0, &[])]] {
        let (job, objects) = history(attempts);
        for how in [Begin::Unstated, Begin::Latest] {
            let found = begin(&request(how), &job, &objects, 0).unwrap();
            assert_eq!((found.start, found.parent), (0, None), "{attempts:?}");
        }
    }
    let (mut job, objects) = history(&[]);
    job.start = 30;
    let latest = begin(&request(Begin::Latest), &job, &objects, 0).unwrap();
    assert_eq!(latest.start, 30, "where the job begins");
    // One coordinate of two: not a restart point.
    let (job, mut objects) = history(&[(0, &[])]);
    let key = keys::mark(&name(), 7, 0, 20, Some(1));
    objects.entry(0).or_default().note(&key, 2, HEAD);
    assert!(begin(&request(Begin::Unstated), &job, &objects, 0).is_ok());
    // Begun anew, on purpose: what was given up before does not count.
    let (job, objects) = history(&[(0, &[20, 40]), (0, &[])]);
    assert!(begin(&request(Begin::Unstated), &job, &objects, 0).is_ok());
}

#[test]
fn the_newest_restart_points_are_listed_and_reclaimed_ones_are_not() {
    let marks: Vec<Step> = (1..=9).map(|n| 10 * n).collect();
    let (job, objects) = history(&[(0, &marks)]);
    let asked = request(Begin::Unstated);
    let fault = begin(&asked, &job, &objects, 0).unwrap_err();
    assert_eq!(fault.known_name(), Some(ErrorName::ForgottenState));
    assert_eq!(fault.step, Some(90));
    assert_eq!(
        fault.message,
        "job llm can restart from its checkpoint at step 90 (before it 80, 70, 60, 50 and 4 more), and this \
         attempt states no start: it would train from step 0 again and give the checkpoints up"
    );
    let fault = begin(&asked, &job, &objects, 80).unwrap_err();
    assert!(
        fault.message.contains("step 90 (before it 80), and"),
        "{fault}"
    );
    let fault = begin(&asked, &job, &objects, 90).unwrap_err();
    assert!(fault.message.contains("step 90, and this"), "{fault}");
    for part in ["state=", "start=STEP", "resume=\"latest\"", "fresh=True"] {
        assert!(fault.remedy.contains(part), "{fault}");
    }
}

#[test]
fn an_attempt_in_a_fork_must_state_its_start() {
    let stream = fixtures::stream([1; 16], StreamOrder::Arrival, Vec::new());
    let fork = fixtures::fork(stream.clone(), StreamId::from_random([8; 16]), 40);
    let fault = in_fork(&fork, request(Begin::Unstated)).unwrap_err();
    assert_eq!(fault.known_name(), Some(ErrorName::ForgottenState));
    let text = fault.to_string();
    for part in [
        "begins at step 40",
        "state= of the parent's checkpoint",
        "start=40",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let later = AttemptRequest {
        start: 40,
        ..request(Begin::Latest)
    };
    assert_eq!(in_fork(&fork, later.clone()), Ok(later));
    let unstated = request(Begin::Unstated);
    assert_eq!(in_fork(&stream, unstated.clone()), Ok(unstated));
}
