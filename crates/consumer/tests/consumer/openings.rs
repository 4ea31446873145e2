//! Attempts that a daemon does not open although their hellos fit.

use batchweave_client::{ConnectOptions, ErrorName, Start};
use batchweave_core::ids::Step;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::entry::Parent;
use tokio::task::spawn_blocking;

use crate::refusals::refused;
use crate::serving::{TIMEOUT, connect, options};
use crate::support::{Daemon, Stream, consumer};

/// One rank whose client draws the attempt's id.
fn drawn(daemon: &Daemon, start: Step) -> ConnectOptions {
    ConnectOptions {
        attempt: None,
        global_rank: None,
        ..options(&daemon.socket, 0, 1, start)
    }
}

/// A second shell must not end a training run, and an elastic restart must not wait for a rank that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drawn_attempt_ends_no_running_one_and_a_given_one_does() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(2).await;
    stream.commit(10, 5).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut run = connect(options(&daemon.socket, 0, 2, 0)).await;
    let peer = connect(options(&daemon.socket, 1, 2, 0)).await;
    let error = refused(drawn(&daemon, 0)).await;
    assert_eq!(error.name(), ErrorName::AttemptRunning.name(), "{error}");
    let text = error.to_string();
    let own = std::process::id();
    for part in [
        format!(
            "attempt 0 ({}) of job llm runs here with 2 ranks",
            "a".repeat(32)
        ),
        format!("process {own} (this process: close its reader)"),
        "takeover=True".to_owned(),
        "batchweave.open(url)".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is missing: {text}");
    }
    let alone = ConnectOptions {
        job: None,
        ..drawn(&daemon, 0)
    };
    drop(connect(alone).await);
    let mut run = spawn_blocking(move || {
        assert_eq!(run.next(TIMEOUT).unwrap().unwrap().step(), 0, "it goes on");
        run
    })
    .await
    .unwrap();
    assert_eq!(
        stream.manifest().await.jobs()[&"llm".parse().unwrap()]
            .attempts
            .len(),
        1
    );

    // Asked to, it does; and a given id always does.
    let taken = ConnectOptions {
        takeover: true,
        ..drawn(&daemon, 0)
    };
    let taken = connect(taken).await;
    let ended = spawn_blocking(move || {
        loop {
            if let Err(why) = run.next(TIMEOUT) {
                return why;
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(ended.name(), ErrorName::AttemptSuperseded.name(), "{ended}");
    let given = ConnectOptions {
        attempt: Some("b".repeat(32)),
        ..drawn(&daemon, 0)
    };
    let given = connect(given).await;
    // Ranks of a superseded attempt do not count, nor those that are gone.
    drop(given);
    drop(connect(drawn(&daemon, 0)).await);
    // Another node's daemon does not know them, as before.
    let second = Daemon::start(stream.store.clone(), consumer(other.path()));
    drop(connect(drawn(&second, 0)).await);
    drop((peer, taken));
    daemon.stop().await.unwrap();
    second.stop().await.unwrap();
}

/// Reads 30 steps and marks every tenth.
async fn train(options: ConnectOptions) {
    let mut reader = connect(options).await;
    let trained = spawn_blocking(move || {
        for _ in 0..30 {
            let batch = reader.next(TIMEOUT).unwrap().unwrap();
            if (batch.step() + 1) % 10 == 0 {
                reader.checkpoint(&batch.state_dict()).unwrap();
            }
        }
        reader.close(TIMEOUT).unwrap();
    });
    trained.await.unwrap();
}

/// A restart without the saved state would train the same steps again. It is refused on every node, by rank 0's
/// daemon alone: the ranks of an attempt that is open are never refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_with_checkpoints_does_not_begin_again_by_an_oversight() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(2).await;
    stream.commit(40, 8).await;
    let first = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let second = Daemon::start(stream.store.clone(), consumer(other.path()));
    let of = |id: char, daemon: &Daemon, rank, size, start| ConnectOptions {
        attempt: Some(id.to_string().repeat(32)),
        start,
        ..options(&daemon.socket, rank, size, 0)
    };
    // Nothing to forget yet, however often it restarts.
    drop(connect(of('1', &first, 0, 1, Start::Unstated)).await);
    drop(connect(of('2', &first, 0, 1, Start::Latest)).await);
    train(of('3', &first, 0, 1, Start::Unstated)).await;
    for daemon in [&first, &second] {
        let error = refused(of('4', daemon, 0, 1, Start::Unstated)).await;
        assert_eq!(error.name(), ErrorName::ForgottenState.name(), "{error}");
        let text = error.to_string();
        let wanted = "can restart from its checkpoint at step 30 (before it 20, 10)";
        assert!(text.contains(wanted), "{text}");
    }
    let job = |m: &Manifest| m.jobs()[&"llm".parse().unwrap()].clone();
    assert_eq!(job(&stream.manifest().await).attempts.len(), 3);

    // The newest restart point, for all ranks on all nodes; rank 1 comes first.
    let one = tokio::spawn(connect(of('5', &second, 1, 2, Start::Latest)));
    let zero = connect(of('5', &first, 0, 2, Start::Latest)).await;
    let one = one.await.unwrap();
    assert_eq!((zero.next_step(), one.next_step()), (30, 30));
    let attempts = job(&stream.manifest().await).attempts;
    let (attempt, step) = (2, 30);
    assert_eq!(attempts[3].parent, Some(Parent { attempt, step }));
    assert_eq!(attempts[3].start, 30);

    // Rank 0 begins anew on purpose, and rank 1, which states nothing, joins it; then nothing is left to forget.
    let zero = connect(of('6', &first, 0, 2, Start::Step(0))).await;
    let one = connect(of('6', &second, 1, 2, Start::Unstated)).await;
    assert_eq!((zero.next_step(), one.next_step()), (0, 0));
    drop(connect(of('7', &second, 0, 1, Start::Unstated)).await);
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}
