//! Intents between producers with scripted policies: those of openings and finishes, and those of fenced
//! instances.

use batchweave_core::commit_policy::Action::{self, Announce, Gather, List};
use batchweave_core::ids::Version;
use batchweave_core::manifest::Record;

use crate::testing::distant::{
    ActionResult, CATCH_UP, Distant, PUT_ALL, ScriptedPolicy, first, intents_in, new_stream,
    scripted_producer,
};
use crate::testing::prelude::*;

/// Writer and kinds of entry of a record.
async fn record(store: &Arc<dyn Store>, version: Version) -> (String, Vec<&'static str>) {
    let bytes = store.get(&keys::log(version), u64::MAX).await.unwrap();
    let record = Record::from_json(&bytes, version).unwrap();
    let kind = |entry: &Entry| match entry {
        Entry::Opened(_) => "opened",
        Entry::Batch(_) => "batch",
        Entry::Finished(_) => "finished",
        _ => "other",
    };
    (
        record.writer.name,
        record.entries.iter().map(kind).collect(),
    )
}

#[tokio::test(start_paused = true)]
async fn an_opening_a_batch_and_a_finish_are_committed_by_another() {
    let (memory, store) = new_stream().await;
    let (leader, leading) = scripted_producer(&store, "leader", 1).await;
    let newcomer = ScriptedPolicy::default();
    let opening = {
        let (store, mut policy) = (Arc::clone(&store), newcomer.clone());
        tokio::spawn(async move {
            let log = Log::open(store, &options(2)).await.unwrap();
            Committer::open_with(log, "new".parse().unwrap(), "test:2", &mut policy).await
        })
    };
    assert_eq!(
        newcomer.run(&[Announce]).await,
        [ActionResult::Announced(true)]
    );
    assert_eq!(intents_in(&memory).len(), 1);
    let round = leader.run(&[List, Gather, PUT_ALL]).await;
    assert_eq!(
        round,
        [
            ActionResult::Listed(1),
            ActionResult::Gathered(1),
            ActionResult::Won
        ]
    );
    newcomer.push(&[CATCH_UP]);
    let OpenOutcome::Opened(producer) = opening.await.unwrap().unwrap() else {
        panic!("not opened")
    };
    assert_eq!(producer.epoch(), 1);
    assert_eq!(
        record(&store, 2).await,
        ("leader".to_owned(), vec!["opened"])
    );

    let next = item(&producer, 0, 2);
    let newcomer = ScriptedPolicy::default();
    let queue = producer.spawn(newcomer.clone(), CommitOptions::default());
    assert!(queue.submit(next).await);
    let closing = tokio::spawn(queue.close(true));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(
        newcomer.run(&[Announce]).await,
        [ActionResult::Announced(true)]
    );
    let round = leader.run(&[List, Gather, PUT_ALL]).await;
    assert_eq!(
        round,
        [
            ActionResult::Listed(2),
            ActionResult::Gathered(2),
            ActionResult::Won
        ],
        "the finish follows the batch"
    );
    newcomer.push(&[CATCH_UP]);
    let (end, _) = closing.await.unwrap().unwrap();
    assert_eq!(end, CommitEnd::Finished { tgbs: 2 });
    assert_eq!(
        record(&store, 3).await,
        ("leader".to_owned(), vec!["batch", "finished"])
    );
    assert_eq!(leading.progress().borrow().combined, 3);
    assert_eq!(intents_in(&memory), [""; 0], "deleted by their owner");
    assert_eq!(steps(&store).await.len(), 3);
    leading.close(false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_fenced_instance_announced_is_void() {
    // The successor opens before the leader lists; after it has gathered; and unseen by it.
    let looks: [(&[Action], &[Action]); 3] = [
        (&[], &[CATCH_UP, List, Gather, PUT_ALL]),
        (&[List, Gather], &[CATCH_UP, PUT_ALL]),
        (&[List, Gather], &[PUT_ALL, List, Gather, PUT_ALL]),
    ];
    for (before, after) in looks {
        let (memory, store) = new_stream().await;
        let (leader, leading) = scripted_producer(&store, "leader", 1).await;
        let old = opened(&store, "p", 2).await;
        let next = item(&old, 0, 2);
        let announcer = ScriptedPolicy::default();
        let queue = old.spawn(announcer.clone(), CommitOptions::default());
        assert!(queue.submit(next).await);
        announcer.run(&[Announce]).await;
        leader.run(&[CATCH_UP]).await;
        leader.run(before).await;
        let mut successor = opened(&store, "p", 3).await;
        assert_eq!((successor.epoch(), successor.next_seq()), (2, 0));
        let came = leader.run(after).await;
        assert!(!came.contains(&ActionResult::Won), "{came:?}");
        assert!(matches!(
            commit(&mut successor, 1).await,
            Commit::Committed { .. }
        ));
        announcer.push(&[CATCH_UP]);
        let (end, _) = queue.close(false).await.unwrap();
        assert_eq!(
            end,
            CommitEnd::Fenced {
                by: 2,
                instance: "test:1".into()
            }
        );
        assert_eq!(
            intents_in(&memory),
            [""; 0],
            "the old instance deletes its own"
        );
        assert_eq!(steps(&store).await, [first(), ("p".to_owned(), 0)]);
        leading.close(false).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_while_nothing_waits_for_it_is_left_for_later() {
    let (_, store) = new_stream().await;
    let distant = Distant::new(&store, 1);
    let producer = opened(&(Arc::clone(&distant) as _), "leader", 1).await;
    let items = [item(&producer, 0, 1), item(&producer, 1, 1)];
    let policy = ScriptedPolicy::default();
    let queue = producer.spawn(policy.clone(), CommitOptions::default());
    for (at, item) in items.into_iter().enumerate() {
        assert!(queue.submit(item).await, "{at}: it goes on");
        let came = policy.run(&[CATCH_UP, PUT_ALL]).await;
        assert_eq!(came, [ActionResult::CaughtUp, ActionResult::Won], "{at}");
        distant.set_busy(true);
        policy.push(&[Action::Poll(1)]);
        // Longer than one read is tried again.
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(policy.run(&[]).await, [ActionResult::CaughtUp], "{at}");
        distant.set_busy(false);
    }
    queue.close(false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_look_behind_a_leader_is_one_window_but_not_twice_with_a_pause_between() {
    let (_, store) = new_stream().await;
    let mut leader = opened(&store, "leader", 1).await;
    let items: Vec<_> = (0..60).map(|n| item(&leader, n, 1)).collect();
    let distant = Distant::steady(&store);
    let slow = opened(&(distant as _), "slow", 2).await;
    let waiting = item(&slow, 0, 1);
    leader.log_mut().catch_up().await.unwrap();
    let leading = ScriptedPolicy::default();
    let leaders = leader.spawn(leading.clone(), CommitOptions::default());
    for item in items {
        assert!(leaders.submit(item).await);
        assert_eq!(leading.run(&[PUT_ALL]).await, [ActionResult::Won]);
    }
    let policy = ScriptedPolicy::default();
    let queue = slow.spawn(policy.clone(), CommitOptions::default());
    assert!(queue.submit(waiting).await);
    let look = Action::Poll(4);
    let came = policy.run(&[look, look]).await;
    assert_eq!(came, [ActionResult::Behind; 2], "it goes on at once");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        policy.run(&[look]).await,
        [ActionResult::CaughtUp],
        "to the head"
    );
    assert_eq!(policy.run(&[PUT_ALL]).await, [ActionResult::Won]);
    for queue in [leaders, queue] {
        queue.close(false).await.unwrap();
    }
}
