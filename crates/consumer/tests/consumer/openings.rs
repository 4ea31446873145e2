//! Attempts that a daemon does not open although their hellos fit.

use batchweave_client::{ConnectOptions, ErrorName};
use batchweave_core::ids::Step;
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
        "without job=".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is missing: {text}");
    }
    let alone = ConnectOptions {
        job: None,
        ..drawn(&daemon, 0)
    };
    drop(connect(alone).await);
    let run = spawn_blocking(move || {
        assert_eq!(run.next(TIMEOUT).unwrap().unwrap().step(), 0, "it goes on");
        run
    });
    let mut run = run.await.unwrap();
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
    });
    let ended = ended.await.unwrap();
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
