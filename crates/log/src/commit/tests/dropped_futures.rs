//! A `try_commit` future that is dropped during its put while its instance continues (pitfall P8): nothing is
//! duplicated or lost.

use batchweave_core::manifest::Record;
use bytes::Bytes;

use crate::testing::prelude::*;

/// Outcomes of a put that is never answered.
const FATES: [Answer; 3] = [Answer::DoneHangs, Answer::NotDoneHangs, Answer::LaterHangs];

async fn world() -> (Arc<Scripted>, Arc<dyn Store>, Committer) {
    let scripted = Scripted::new(stream(&[]).await);
    let store: Arc<dyn Store> = Arc::clone(&scripted) as _;
    let producer = opened(&store, "p0", 1).await;
    (scripted, store, producer)
}

/// Begins to commit the next TGBs and drops the future.
async fn drop_commit(scripted: &Scripted, producer: &mut Committer, tgbs: u64, fate: Answer) {
    scripted.answer_with(&[fate]);
    let next = item(producer, producer.next_seq(), tgbs);
    let put = producer.try_commit(next.tgbs, next.cursor);
    let dropped = tokio::time::timeout(Duration::from_millis(5), put).await;
    assert!(dropped.is_err(), "{fate:?}: it hangs");
}

/// Commits up to `end`, one TGB after another, as a caller does after it has read the next sequence number.
async fn commit_up_to(producer: &mut Committer, end: u64) {
    for _ in 0..20 {
        if producer.next_seq() >= end {
            return;
        }
        let _ = commit(producer, 1).await;
    }
    panic!("not done: {} of {end}", producer.next_seq());
}

/// Each TGB once and in order, and one body for each version.
async fn check(scripted: &Scripted, store: &Arc<dyn Store>, tgbs: u64, what: &str) {
    let ours: Vec<_> = steps(store)
        .await
        .into_iter()
        .filter(|s| s.0 == "p0")
        .collect();
    let expected: Vec<_> = (0..tgbs).map(|seq| ("p0".to_owned(), seq)).collect();
    assert_eq!(ours, expected, "{what}");
    let creates = scripted.creates.lock().unwrap();
    let own = |v: u64| {
        let ours = move |body: &Bytes| {
            Record::from_json(body, v).is_ok_and(|record| record.writer.name == "p0")
        };
        let at = creates.iter().filter(move |(key, _)| *key == keys::log(v));
        at.map(|(_, body)| body.clone()).filter(ours)
    };
    for v in 0..20 {
        let mut bodies: Vec<_> = own(v).collect();
        bodies.dedup();
        assert!(bodies.len() <= 1, "{what}: other bytes at version {v}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_commit_is_resolved_before_anything_else_is_put() {
    for fate in FATES {
        let (scripted, store, mut producer) = world().await;
        drop_commit(&scripted, &mut producer, 2, fate).await;
        assert_eq!(
            commit(&mut producer, 1).await,
            Commit::Lost,
            "{fate:?}: first the old one"
        );
        assert_eq!(producer.next_seq(), 2, "{fate:?}: which is committed");
        commit_up_to(&mut producer, 4).await;
        check(&scripted, &store, 4, &format!("{fate:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn commits_that_are_dropped_again_and_again_are_one_commit() {
    for first in FATES {
        for second in FATES {
            for third in FATES {
                let (scripted, store, mut producer) = world().await;
                for fate in [first, second, third] {
                    drop_commit(&scripted, &mut producer, 2, fate).await;
                }
                commit_up_to(&mut producer, 3).await;
                let what = format!("{first:?}, {second:?}, {third:?}");
                check(&scripted, &store, 3, &what).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_reads_the_log_after_a_dropped_commit_finds_it_there_or_puts_it() {
    for fate in FATES {
        let (scripted, store, mut producer) = world().await;
        drop_commit(&scripted, &mut producer, 2, fate).await;
        producer.log_mut().catch_up().await.unwrap();
        let there = fate == Answer::DoneHangs;
        assert_eq!(producer.next_seq(), 2 * u64::from(there), "{fate:?}");
        commit_up_to(&mut producer, 3).await;
        check(&scripted, &store, 3, &format!("{fate:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_commit_that_another_record_overtook_is_lost_and_judged_again() {
    for fate in FATES {
        let (scripted, store, mut producer) = world().await;
        let mut other = opened(&store, "other", 2).await;
        // `producer` has not read that opening, so its put meets a record in any case.
        drop_commit(&scripted, &mut producer, 2, fate).await;
        assert!(matches!(
            commit(&mut other, 1).await,
            Commit::Committed { .. }
        ));
        assert_eq!(commit(&mut producer, 2).await, Commit::Lost, "{fate:?}");
        assert_eq!(producer.next_seq(), 0, "{fate:?}: its version was taken");
        commit_up_to(&mut producer, 3).await;
        check(&scripted, &store, 3, &format!("{fate:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_that_the_store_refuses_stays_open_until_it_is_certain() {
    let (scripted, store, mut producer) = world().await;
    drop_commit(&scripted, &mut producer, 1, Answer::NotDoneHangs).await;
    // A refusal says nothing about the first put, so that its resolution continues.
    scripted.answer_with(&[Answer::Denied, Answer::Throttled, Answer::Denied]);
    assert_eq!(commit(&mut producer, 1).await, Commit::Lost);
    commit_up_to(&mut producer, 2).await;
    check(&scripted, &store, 2, "denied").await;
}

#[tokio::test(start_paused = true)]
async fn the_commit_task_resolves_it_too_and_refuses_what_was_made_before() {
    for fate in FATES {
        let (scripted, store, mut producer) = world().await;
        let stale = item(&producer, 0, 2);
        let next = item(&producer, 2, 1);
        drop_commit(&scripted, &mut producer, 2, fate).await;
        let queue = producer.spawn(policy(1), CommitOptions::default());
        assert!(queue.submit(next).await);
        let (end, producer) = queue.close(false).await.unwrap();
        assert_eq!(end, CommitEnd::Drained { next_seq: 3 }, "{fate:?}");
        let queue = producer.spawn(policy(1), CommitOptions::default());
        assert!(queue.submit(stale).await);
        let error = queue.close(false).await.unwrap_err();
        assert!(matches!(error, LogError::Void(_)), "{fate:?}: {error}");
        check(&scripted, &store, 3, &format!("{fate:?}")).await;
    }
}
