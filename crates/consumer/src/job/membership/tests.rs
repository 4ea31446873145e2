//! Each membership of a rank, and each contradiction between hello and record.

use batchweave_core::fixtures;
use batchweave_core::stream::StreamOrder;

use super::*;

fn attempt(number: AttemptNo, start: Step, dp_size: u32) -> AttemptState {
    AttemptState {
        number,
        id: AttemptId([number as u8; 16]),
        opened: 10 + number,
        parent: None,
        start,
        dp_size,
        mesh: Vec::new(),
        head: None,
    }
}

fn jobs(attempts: Vec<AttemptState>) -> BTreeMap<JobName, JobState> {
    let job = JobState {
        opened: 7,
        start: 0,
        keep: 2,
        holds: true,
        paces: true,
        lease_seconds: None,
        attempts,
    };
    BTreeMap::from([("llm".parse().unwrap(), job)])
}

fn hello(rank: u32, attempt: u8, next_step: Step) -> Hello {
    let mut hello = Hello::new("test", next_step);
    (hello.dp_rank, hello.dp_size, hello.global_rank) = (rank, 4, Some(rank));
    hello.job = Some("llm".into());
    hello.attempt = Some(AttemptId([attempt; 16]).to_string());
    hello
}

fn refused(hello: &Hello, jobs: &BTreeMap<JobName, JobState>) -> (Option<ErrorName>, String) {
    let fault = membership_of(hello, jobs).expect_err("must be refused");
    (fault.known_name(), fault.to_string())
}

#[test]
fn rank_0_opens_and_the_others_wait() {
    let none = jobs(Vec::new());
    let Ok(Membership::MustOpen(request)) = membership_of(&hello(0, 1, 5), &none) else {
        panic!("rank 0 opens")
    };
    assert_eq!((request.opened, request.start, request.dp_size), (7, 5, 4));
    let Ok(Membership::MustWait(hold)) = membership_of(&hello(1, 1, 5), &none) else {
        panic!("others wait")
    };
    assert_eq!(hold.cause, WaitCause::AttemptNotOpen);
    assert!(hold.detail.contains("rank 0 has not opened attempt 0101"));
    let mut resumes = hello(0, 1, 9);
    resumes.mode = Mode::Resume;
    assert!(matches!(
        membership_of(&resumes, &none),
        Ok(Membership::MustWait(_))
    ));
    let mut only = hello(0, 1, 5);
    (only.dp_size, only.global_rank) = (1, None);
    assert!(matches!(
        membership_of(&only, &none),
        Ok(Membership::MustOpen(_))
    ));
    let Ok(Membership::MustWait(hold)) = membership_of(&hello(0, 1, 5), &BTreeMap::new()) else {
        panic!("the job is not open")
    };
    assert_eq!(hold.cause, WaitCause::JobNotOpen);
    assert!(hold.fault.remedy.contains("batchweave job open llm"));
}

#[test]
fn an_open_attempt_is_compared() {
    let jobs = jobs(vec![attempt(0, 0, 4), attempt(1, 100, 4)]);
    let job = &jobs[&"llm".parse().unwrap()];
    assert_eq!(
        membership_of(&hello(2, 1, 100), &jobs),
        Ok(Membership::Open(job, &job.attempts[1]))
    );
    let mut resumes = hello(2, 1, 150);
    resumes.mode = Mode::Resume;
    assert!(matches!(
        membership_of(&resumes, &jobs),
        Ok(Membership::Open(..))
    ));
    resumes.next_step = 99;
    let (name, text) = refused(&resumes, &jobs);
    assert_eq!(name, Some(ErrorName::AttemptDisagrees), "{text}");

    let mut wrong = hello(2, 1, 101);
    wrong.dp_size = 8;
    let (name, text) = refused(&wrong, &jobs);
    assert_eq!(name, Some(ErrorName::AttemptDisagrees));
    for part in ["joins at step 101", "starts at 100", "dp_size 8", "has 4"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (name, text) = refused(&hello(0, 0, 0), &jobs);
    assert_eq!(name, Some(ErrorName::AttemptSuperseded));
    assert!(text.contains("by attempt 1 (0101"), "{text}");
    let mut without = hello(0, 1, 100);
    without.attempt = None;
    assert_eq!(refused(&without, &jobs).0, Some(ErrorName::NoAttempt));
    without.job = None;
    assert_eq!(membership_of(&without, &jobs), Ok(Membership::NoJob));
}

#[test]
fn a_parent_is_of_this_incarnation() {
    let jobs = jobs(vec![attempt(0, 0, 4)]);
    let job = &jobs[&"llm".parse().unwrap()];
    let mut hello = hello(0, 9, 100);
    let parent = |number, id: u8| {
        Some(batchweave_wire::Parent {
            attempt: number,
            id: AttemptId([id; 16]).to_string(),
            step: 100,
        })
    };
    let mut of = |number, id| {
        hello.parent = parent(number, id);
        let Ok(Membership::MustOpen(request)) = membership_of(&hello, &jobs) else {
            panic!("rank 0 opens")
        };
        request.parent_in(job)
    };
    let (attempt, step) = (0, 100);
    assert_eq!(of(0, 0), Some(Parent { attempt, step }));
    assert_eq!(of(0, 5), None, "another incarnation's attempt 0");
    assert_eq!(of(3, 0), None);
}

#[test]
fn a_checkpoint_of_the_parent_stream_is_named_in_a_fork_alone() {
    let parent = StreamId::from_random([8; 16]);
    let mut hello = hello(0, 9, 100);
    hello.stream = Some(parent.to_string());
    hello.parent = Some(batchweave_wire::Parent {
        attempt: 3,
        id: AttemptId([5; 16]).to_string(),
        step: 100,
    });
    let Ok(Membership::MustOpen(request)) = membership_of(&hello, &jobs(vec![attempt(0, 0, 4)]))
    else {
        panic!("rank 0 opens")
    };
    let stream = fixtures::stream([1; 16], StreamOrder::Arrival, Vec::new());
    assert_eq!(request.inherited(&stream), None, "no fork");
    let fork = fixtures::fork(stream, parent, 100);
    let inherited = Inherited {
        stream: parent,
        attempt: 3,
        id: AttemptId([5; 16]),
        step: 100,
    };
    assert_eq!(request.inherited(&fork), Some(inherited));
    let mut own = (*request).clone();
    own.stream = Some(fork.stream_id);
    assert_eq!(own.inherited(&fork), None, "of this stream");
}

#[test]
fn a_closed_job_is_told_from_a_new_one() {
    let jobs = jobs(vec![attempt(0, 0, 4)]);
    let mut member = Member {
        job: "llm".parse().unwrap(),
        opened: 7,
        attempt: 0,
        id: AttemptId([0; 16]),
        parent: None,
        start: 0,
        dp_rank: 0,
        dp_size: 4,
        rank: None,
        shared: false,
        slices: 0..1,
        quarantine: Arc::default(),
    };
    assert_eq!(closed(&member, &jobs), None);
    member.opened = 3;
    let fault = closed(&member, &jobs).unwrap();
    assert!(fault.message.contains("llm@7 now, this rank reads llm@3"));
    let fault = closed(&member, &BTreeMap::new()).unwrap();
    assert_eq!(fault.known_name(), Some(ErrorName::JobClosed));
}
