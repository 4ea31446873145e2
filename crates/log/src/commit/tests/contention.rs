//! Operators, jobs and new producers commit while others commit without pause. Time is virtual.

use batchweave_core::commit_policy::{Dac, DacOptions};
use tokio::task::JoinSet;

use crate::testing::distant::{Distant, new_stream};
use crate::testing::prelude::*;

/// Another writer's record must be in the log within this time.
const WORD_IN: Duration = Duration::from_secs(10);

/// Commits as fast as it can until the stream is sealed.
async fn flood(store: Arc<Distant>, name: String, seed: u64) -> CommitEnd {
    let producer = opened(&(store as _), &name, seed as u8).await;
    let items: Vec<_> = (0..)
        .map(|first| item(&producer, first, 1))
        .take(5_000)
        .collect();
    let policy = Dac::new(DacOptions {
        seed,
        ..DacOptions::default()
    });
    let options = CommitOptions {
        queue: 4,
        ..CommitOptions::default()
    };
    let queue = producer.spawn(policy, options);
    for next in items {
        if !queue.submit(next).await {
            break;
        }
    }
    queue.close(false).await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_commits_without_a_pause_lets_others_in() {
    for producers in [1, 2, 16] {
        for steady in [true, false] {
            let (_, store) = new_stream().await;
            let way = |seed| {
                if steady {
                    Distant::steady(&store)
                } else {
                    Distant::new(&store, seed)
                }
            };
            let mut floods = JoinSet::new();
            for seed in 1..=producers {
                floods.spawn(flood(way(seed), format!("p{seed}"), seed));
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            let mut person = Log::open(way(99), &options(99)).await.unwrap();
            let before = person.manifest().next_version();
            assert!(before > 20, "{producers} producers: {before} versions");
            let request = person.new_request();
            let seal = |_: &_| {
                Entry::Sealed(Sealed {
                    request,
                    reason: "enough".into(),
                })
            };
            let sealed = person.commit_entry("test", seal);
            let sealed = tokio::time::timeout(WORD_IN, sealed).await;
            let case = format!("{producers} producers, steady: {steady}");
            let version = sealed.unwrap_or_else(|_| panic!("{case}: starved"));
            println!("{case}: {:?} after {before}", version.unwrap());
            for end in floods.join_all().await {
                assert_eq!(end, CommitEnd::Sealed, "{case}");
            }
        }
    }
}
