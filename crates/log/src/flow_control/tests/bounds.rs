//! Each bound alone, with positions sent by the test.

use batchweave_core::commit_policy::Action::{Announce, Gather, List};

use super::*;
use crate::testing::distant::{ActionResult, ScriptedPolicy};

async fn lanes(names: &[&str]) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = MemoryStore::new();
    let mut config = config(names);
    config.order = StreamOrder::Lanes;
    let _ = create(&store, &config).await.unwrap();
    store
}

fn head(queue: &CommitQueue) -> Step {
    queue.flow_control().borrow().manifest.next_step()
}

fn bound(queue: &CommitQueue) -> Option<Bound> {
    queue.flow_control().borrow().held.as_ref().map(|h| h.bound)
}

#[tokio::test(start_paused = true)]
async fn a_held_producer_goes_on_by_itself_and_its_wait_is_no_latency() {
    let store = stream(&[]).await;
    let mut log = reader(&store, 7).await;
    let opened_at = open_job(&mut log, 0).await;
    open_attempt(&mut log, opened_at, 0).await;
    let producer = opened(&store, "p0", 1).await;
    let items: Vec<_> = (0..6).map(|i| item(&producer, i * 3, 3)).collect();
    let (tell, options) = paced(steps_ahead(10));
    let queue = producer.spawn(dac(1), options);
    for item in items {
        assert!(queue.submit(item).await);
    }
    until("held", || bound(&queue).is_some()).await;
    // Whole objects: a fourth one would be step 12.
    assert_eq!((head(&queue), bound(&queue)), (9, Some(Bound::Steps(10))));
    let why = queue
        .flow_control()
        .borrow()
        .held
        .clone()
        .unwrap()
        .to_string();
    assert!(
        why.contains("job llm, whose attempt 0 is at step 0"),
        "{why}"
    );
    tokio::time::sleep(Duration::from_mins(10)).await;
    at(&tell, opened_at, 1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(head(&queue), 9, "step 12 would be 11 ahead of step 1");
    at(&tell, opened_at, 2);
    until("released", || head(&queue) == 12).await;
    let latency = queue.progress().borrow().latency;
    assert!(latency < Duration::from_secs(1), "{latency:?}");
    at(&tell, opened_at, 12);
    let (end, _) = queue.close(true).await.unwrap();
    assert_eq!(end, CommitEnd::Finished { tgbs: 18 });
}

#[tokio::test(start_paused = true)]
async fn a_job_that_opens_holds_at_once_and_one_that_closes_lets_go() {
    let store = stream(&[]).await;
    let producer = opened(&store, "p0", 1).await;
    let items: Vec<_> = (0..40).map(|i| item(&producer, i, 1)).collect();
    let (_tell, options) = paced(steps_ahead(10));
    let queue = producer.spawn(dac(1), options);
    let mut items = items.into_iter();
    for item in items.by_ref().take(30) {
        assert!(queue.submit(item).await);
    }
    until("free", || head(&queue) == 30).await;
    let mut log = reader(&store, 7).await;
    let opened = open_job(&mut log, 25).await;
    for item in items {
        assert!(queue.submit(item).await);
    }
    until("held", || bound(&queue).is_some()).await;
    // It was not notified: its own next record came after the job's.
    assert_eq!(head(&queue), 35);
    let closed = Entry::JobClosed(JobClosed {
        request: unbounded(),
        job: job(),
        opened,
        reason: "done".into(),
    });
    log.commit_entry("test", |_| closed.clone()).await.unwrap();
    until("free again", || head(&queue) == 40).await;
    assert_eq!(bound(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn without_a_job_a_producer_waits_at_its_bound() {
    for most in [0, 4] {
        let store = stream(&[]).await;
        let producer = opened(&store, "p0", 1).await;
        let items: Vec<_> = (0..8).map(|i| item(&producer, i, 1)).collect();
        let (_tell, options) = paced(Limits {
            no_job: Some(most),
            ..Limits::default()
        });
        let queue = producer.spawn(dac(1), options);
        for item in items {
            assert!(queue.submit(item).await);
        }
        until("held", || bound(&queue).is_some()).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(
            (head(&queue), bound(&queue)),
            (most, Some(Bound::NoJob(most)))
        );
        let mut log = reader(&store, 7).await;
        open_job(&mut log, 0).await;
        let (end, _) = queue.close(true).await.unwrap();
        assert_eq!(end, CommitEnd::Finished { tgbs: 8 }, "no bound with a job");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_takes_along_what_fits_below_its_own_ceiling() {
    let store = stream(&[]).await;
    let mut log = reader(&store, 7).await;
    let opened_at = open_job(&mut log, 0).await;
    open_attempt(&mut log, opened_at, 0).await;
    let (tell, options) = paced(steps_ahead(8));
    let leader = opened(&store, "leader", 1).await;
    let own = item(&leader, 0, 2);
    let policy = ScriptedPolicy::default();
    let queue = leader.spawn(policy.clone(), options);
    assert!(queue.submit(own).await);
    // The others know no bound.
    let mut others = Vec::new();
    for (n, tgbs) in [(2, 3), (3, 4)] {
        let other = opened(&store, &format!("p{n}"), n).await;
        let next = item(&other, 0, tgbs);
        let policy = ScriptedPolicy::default();
        let queue = other.spawn(policy.clone(), CommitOptions::default());
        assert!(queue.submit(next).await);
        assert_eq!(
            policy.run(&[Announce]).await,
            [ActionResult::Announced(true)]
        );
        others.push(queue);
    }
    let round = policy.run(&[CATCH_UP, List, Gather, PUT_ALL]).await;
    assert_eq!(
        round[1..],
        [
            ActionResult::Listed(2),
            ActionResult::Gathered(2),
            ActionResult::Won
        ]
    );
    // Its own two and one of the others' entries: the second would be step 9.
    let first = head(&queue);
    assert!(first == 5 || first == 6, "{first}");
    let round = policy.run(&[List, Gather, PUT_ALL, List]).await;
    // Nothing fits, and nothing has changed: the second list is not even made.
    let expected = [1, 1, 0, 0];
    let expected = [
        ActionResult::Listed(expected[0]),
        ActionResult::Gathered(expected[1]),
        ActionResult::Gathered(expected[2]),
        ActionResult::Listed(expected[3]),
    ];
    assert_eq!(round, expected);
    at(&tell, opened_at, 1);
    let round = policy.run(&[List, Gather, PUT_ALL]).await;
    assert_eq!(
        round,
        [
            ActionResult::Listed(1),
            ActionResult::Gathered(1),
            ActionResult::Won
        ]
    );
    assert_eq!(head(&queue), 9);
}

#[tokio::test(start_paused = true)]
async fn a_fast_lane_waits_for_the_slow_one_at_its_lead() {
    let store = lanes(&["fast", "slow"]).await;
    let limits = Limits {
        lane_lead: Some(4),
        bytes: Some(6 * 1024),
        ..Limits::default()
    };
    let mut log = reader(&store, 7).await;
    let opened_at = open_job(&mut log, 0).await;
    open_attempt(&mut log, opened_at, 0).await;
    let fast = opened(&store, "fast", 1).await;
    let slow = opened(&store, "slow", 2).await;
    let fasts: Vec<_> = (0..20).map(|i| item(&fast, i, 1)).collect();
    let slows: Vec<_> = (0..10).map(|i| item(&slow, i * 2, 2)).collect();
    let (tell_fast, options) = paced(limits);
    let fast = fast.spawn(dac(1), options);
    let (tell_slow, options) = paced(limits);
    let slow = slow.spawn(dac(2), options);
    for item in fasts {
        assert!(fast.submit(item).await);
    }
    until("held", || bound(&fast).is_some()).await;
    // One had the turn, four wait: the fifth would be too many.
    assert_eq!(fast.progress().borrow().next_seq, 5);
    assert_eq!(bound(&fast), Some(Bound::LaneLead(4)));
    let why = fast
        .flow_control()
        .borrow()
        .held
        .clone()
        .unwrap()
        .to_string();
    assert!(why.contains("lane slow: step 1 is its turn"), "{why}");
    // Five TGBs of 1 KiB are ahead of the job, two more are over the bound: but all wait for them.
    let mut slows = slows.into_iter();
    assert!(slow.submit(slows.next().unwrap()).await);
    until("the slow lane commits", || {
        slow.progress().borrow().next_seq == 2
    })
    .await;
    let job = tokio::spawn(async move {
        loop {
            log.catch_up().await.unwrap();
            let head = log.manifest().next_step();
            at(&tell_fast, opened_at, head);
            at(&tell_slow, opened_at, head);
            assert!(log.manifest().waiting_of(&"fast".parse().unwrap()) <= 4);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    for item in slows {
        assert!(slow.submit(item).await);
    }
    let (end, _) = slow.close(true).await.unwrap();
    assert_eq!(end, CommitEnd::Finished { tgbs: 20 });
    let (end, _) = fast.close(true).await.unwrap();
    assert_eq!(end, CommitEnd::Finished { tgbs: 20 });
    job.abort();
}

#[tokio::test(start_paused = true)]
async fn bytes_are_counted_back_through_stored_segments() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    for _ in 0..20 {
        assert!(matches!(
            commit(&mut producer, 128).await,
            Commit::Committed { .. }
        ));
    }
    let mut log = reader(&store, 7).await;
    let opened_at = open_job(&mut log, 0).await;
    open_attempt(&mut log, opened_at, 700).await;
    drop(producer);
    // 1,860 KiB are ahead, in three segments.
    let producer = opened(&store, "p0", 2).await;
    let items: Vec<_> = (2560..2570).map(|i| item(&producer, i, 1)).collect();
    let (tell, options) = paced(Limits {
        bytes: Some(1863 * 1024),
        ..Limits::default()
    });
    let queue = producer.spawn(dac(1), options);
    for item in items {
        assert!(queue.submit(item).await);
    }
    until("held", || bound(&queue).is_some()).await;
    assert_eq!(
        (head(&queue), bound(&queue)),
        (2563, Some(Bound::Bytes(1863 * 1024)))
    );
    let lead = queue.flow_control().borrow().lead.clone().unwrap();
    assert_eq!((lead.steps, lead.bytes), (1863, Some(1863 * 1024)));
    at(&tell, opened_at, 702);
    until("two more", || head(&queue) == 2565).await;
    // An attempt from further back has a larger backlog than counted so far.
    open_attempt(&mut log, opened_at, 5).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(head(&queue), 2565);
    drop(tell);
    let (end, _) = queue.close(false).await.unwrap();
    assert_eq!(end, CommitEnd::Drained { next_seq: 2565 });
}

#[tokio::test(start_paused = true)]
async fn a_held_producer_ends_when_its_pacer_does_and_learns_that_it_is_fenced() {
    for fenced in [false, true] {
        let store = stream(&[]).await;
        let producer = opened(&store, "p0", 1).await;
        let items: Vec<_> = (0..90).map(|i| item(&producer, i, 1)).collect();
        let (tell, options) = paced(Limits {
            no_job: Some(3),
            ..Limits::default()
        });
        let queue = producer.spawn(dac(1), options);
        let mut held = queue.flow_control();
        let submits = async {
            for item in items {
                if !queue.submit(item).await {
                    return;
                }
            }
        };
        let end = async {
            held.wait_for(|s| s.held.is_some()).await.unwrap();
            if fenced {
                drop(opened(&store, "p0", 2).await);
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
            drop(tell);
        };
        tokio::join!(submits, end);
        let (end, _) = queue.close(true).await.unwrap();
        match end {
            CommitEnd::Fenced { by: 2, .. } if fenced => {}
            CommitEnd::Drained { next_seq: 3 } if !fenced => {}
            other => panic!("fenced {fenced}: {other:?}"),
        }
    }
}
