//! The start-up probe over HTTP: a conditional put with a late body, and completions of large objects.

use batchweave_dev_s3::{Op, Options};
use batchweave_store::{Create, ErrorKind, Halves, Store, StoreError, probe};
use bytes::Bytes;
use tokio::sync::oneshot;

use super::served;

type Answer = Result<Create, StoreError>;

/// Returns the answers to a late body and to the put between its halves. The server has seen the head of
/// the late one before it receives the other.
async fn late_and_other(server: &batchweave_dev_s3::Server, store: &dyn Store) -> (Answer, Answer) {
    let (sent, half) = oneshot::channel();
    let (go, go_on) = oneshot::channel();
    let body = Bytes::from(vec![b'l'; 64 << 10]);
    let inspect = store.inspect().unwrap();
    let late = inspect.put_in_halves("log/7.json", body, Halves { sent, go_on });
    let other = async {
        half.await.unwrap();
        while server.stats().of(Op::Put) == 0 {
            tokio::task::yield_now().await;
        }
        let other = store.create("log/7.json", "other".into()).await;
        go.send(()).unwrap();
        other
    };
    let (late, other) = futures::join!(late, other);
    (late.unwrap(), other)
}

#[tokio::test]
async fn a_late_body_replaces_nothing() {
    let (server, store) = served(Options::default(), "p").await;
    let (late, other) = late_and_other(&server, &*store).await;
    assert_eq!(other.unwrap(), Create::Created);
    assert_eq!(late.unwrap(), Create::Exists);
    assert_eq!(store.get("log/7.json", 99).await.unwrap(), "other");
    probe(&*store, 3, 0).await.unwrap();
    assert_eq!(
        server.stats().of(Op::Multipart),
        0,
        "no object is that large"
    );
}

#[tokio::test]
async fn a_store_that_looks_first_and_writes_later_is_refused() {
    let options = || Options {
        checks_early: true,
        ..Options::default()
    };
    let (server, store) = served(options(), "p").await;
    let (late, other) = late_and_other(&server, &*store).await;
    let both = (late.unwrap(), other.unwrap());
    assert_eq!(both, (Create::Created, Create::Created));

    let (_server, store) = served(options(), "p").await;
    let error = probe(&*store, 3, 0).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Contract, "{error}");
}

#[tokio::test]
async fn completions_are_looked_at_where_objects_are_that_large() {
    let (server, store) = served(Options::default(), "p").await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    probe(&*store, 3, bucket.parts_above()).await.unwrap();
    assert_eq!(server.stats().of(Op::Multipart), 0);
    probe(&*store, 4, bucket.parts_above() + 1).await.unwrap();
    // 8 begin, 8 complete, 8 are aborted.
    assert_eq!(server.stats().of(Op::Multipart), 24);
    let left = store.list("", None).await.unwrap().objects;
    assert!(left.is_empty(), "the probe left objects behind: {left:?}");
}
