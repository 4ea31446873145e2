//! All combinations of a request and running ranks against the rule in one line; and the message.

use std::sync::Arc;

use batchweave_core::ids::{AttemptId, AttemptNo, Version};
use batchweave_wire::Begin;

use super::*;
use crate::mistakes::is_found;
use crate::quarantine::QuarantineRanges;

const JOBS: [&str; 2] = ["llm", "eval"];
const OPENED: [Version; 2] = [7, 9];

fn member(job: &str, opened: Version, attempt: AttemptNo) -> Member {
    Member {
        job: job.parse().unwrap(),
        opened,
        attempt,
        id: AttemptId([attempt as u8; 16]),
        parent: None,
        start: 0,
        dp_rank: 0,
        dp_size: 4,
        rank: None,
        shared: false,
        slices: 0..1,
        quarantine: Arc::new(QuarantineRanges::in_force_now(&[])),
    }
}

fn request(attempt: u8, yields: bool) -> AttemptRequest {
    AttemptRequest {
        job: "llm".parse().unwrap(),
        opened: 7,
        id: AttemptId([attempt; 16]),
        parent: None,
        stream: None,
        start: 0,
        begin: Begin::Stated,
        dp_size: 1,
        yields,
    }
}

fn running(member: &Member, pid: Option<u32>, next_step: Step) -> RunningRank<'_> {
    RunningRank {
        member,
        pid,
        next_step,
    }
}

/// Every set of up to two running ranks, of either job, incarnation and three attempts.
fn every_state_is_refused_exactly_when_a_drawn_id_would_end_a_running_attempt() {
    let members: Vec<Member> = JOBS
        .iter()
        .flat_map(|job| OPENED.map(|opened| (*job, opened)))
        .flat_map(|(job, opened)| [1, 2, 3].map(|attempt| member(job, opened, attempt)))
        .collect();
    let none = members.iter().map(|_| None).take(1);
    let some: Vec<Option<&Member>> = none.chain(members.iter().map(Some)).collect();
    for first in &some {
        for second in &some {
            for yields in [false, true] {
                let pair = [*first, *second];
                let ranks = pair.iter().flatten();
                let asked = request(3, yields);
                let ends = ranks.clone().any(|other| {
                    other.job.as_str() == "llm" && other.opened == 7 && other.attempt != 3
                });
                let refused = refuse(&asked, ranks.map(|m| running(m, Some(1), 5)), None);
                assert_eq!(refused.is_some(), ends && yields, "{first:?} {second:?}");
            }
        }
    }
}

#[test]
fn a_drawn_id_ends_no_running_attempt_and_a_given_one_any() {
    is_found(
        Mistake::DrawnTakesOver,
        every_state_is_refused_exactly_when_a_drawn_id_would_end_a_running_attempt,
    );
}

#[test]
fn the_newest_running_attempt_is_named_with_its_processes() {
    let (old, new) = (member("llm", 7, 1), member("llm", 7, 2));
    let many: Vec<RunningRank<'_>> = (0..11)
        .map(|n| running(&new, Some(100 + n), 40 + Step::from(n)))
        .chain([running(&old, Some(5), 3)])
        .collect();
    let fault = refuse(&request(9, true), many.into_iter(), None).unwrap();
    assert_eq!(fault.known_name(), Some(ErrorName::AttemptRunning));
    assert_eq!(
        fault.message,
        "attempt 2 (02020202020202020202020202020202) of job llm runs here with 11 ranks, at step 40: \
         processes 100, 101, 102, 103, 104, 105, 106, 107 and 3 more; a new attempt would end it"
    );
    let own = [running(&new, Some(7), 4)].into_iter();
    let fault = refuse(&request(9, true), own, Some(7)).unwrap();
    assert!(
        fault
            .message
            .contains("1 rank, at step 4: process 7 (this process: close its reader); a new"),
        "{}",
        fault.message
    );
    let elsewhere = [running(&new, None, 4)].into_iter();
    let fault = refuse(&request(9, true), elsewhere, Some(7)).unwrap();
    assert!(fault.message.contains("of another container"), "{fault}");
}
