//! A session that replaces an earlier one ends only a session of its own rank.

use std::path::Path;

use batchweave_wire::{DaemonMessage, ErrorName, Hello, Replaces, Welcome};

use crate::rude::Rude;
use crate::support::{Daemon, Stream, consumer};

/// One of the two ranks of the job's attempt.
fn hello(dp_rank: u32) -> Hello {
    let mut hello = Hello::new("test", 0);
    (hello.job, hello.attempt) = (Some("llm".into()), Some("a".repeat(32)));
    (hello.dp_rank, hello.dp_size, hello.global_rank) = (dp_rank, 2, Some(dp_rank));
    hello
}

fn replacing(mut hello: Hello, old: &Welcome) -> Hello {
    hello.replaces = Some(Replaces {
        instance: format!("{:032x}", u128::from_be_bytes(old.instance)),
        session: old.session,
    });
    hello
}

/// Returns the first welcome, or the error in its place.
fn answer(rude: &mut Rude) -> Result<Welcome, ErrorName> {
    loop {
        match rude.hear().expect("an answer") {
            DaemonMessage::Welcome(welcome) => return Ok(welcome),
            DaemonMessage::Error(fault) => return Err(fault.known_name().unwrap()),
            _ => {}
        }
    }
}

fn neighbours(path: &Path) {
    let mut rank = Rude::with_hello(path, hello(0));
    let welcome = answer(&mut rank).unwrap();
    let mut twin = hello(0);
    twin.global_rank = Some(7);
    let strangers = [
        ("another coordinate", hello(1), Ok(())),
        ("a reader without a job", Hello::new("stranger", 0), Ok(())),
        (
            "another rank of the coordinate",
            twin,
            Err(ErrorName::DuplicateCoordinate),
        ),
    ];
    for (who, hello, expected) in strangers {
        let mut stranger = Rude::with_hello(path, replacing(hello, &welcome));
        assert_eq!(answer(&mut stranger).map(drop), expected, "{who}");
    }
    // Its batches arrive as before.
    assert_eq!(rank.batch().step, 0);
    let mut next = Rude::with_hello(path, replacing(hello(0), &welcome));
    let after = answer(&mut next).unwrap();
    assert!(after.session > welcome.session);
    let fault = loop {
        if let DaemonMessage::Error(fault) = rank.hear().expect("it is told") {
            break fault;
        }
    };
    assert_eq!(fault.known_name(), Some(ErrorName::DuplicateCoordinate));
    let text = format!("session {} of the same rank has replaced", after.session);
    assert!(fault.to_string().contains(&text), "{fault}");
    assert_eq!(next.batch().step, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_replaced_by_its_own_rank_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(4, 4).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let path = daemon.socket.clone();
    tokio::task::spawn_blocking(move || neighbours(&path))
        .await
        .unwrap();
    daemon.stop().await.unwrap();
}
