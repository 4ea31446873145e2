//! Bodies that break off are resumed from where they stopped, a bounded number of times; servers
//! that mix up ranges are detected.

use batchweave_store::{Chunks, ErrorKind, StoreError};
use bytes::Bytes;
use futures::TryStreamExt;

use crate::script::{Answer, header, partial, refusal, scripted};

async fn read(chunks: Result<Chunks, StoreError>) -> Result<Vec<u8>, StoreError> {
    let chunks: Vec<Bytes> = chunks?.try_collect().await?;
    Ok(chunks.concat())
}

#[tokio::test]
async fn a_broken_body_goes_on_where_it_stopped() {
    let answers = vec![
        partial(2, 9, 20, b"2345"),
        partial(6, 9, 20, b"6"),
        partial(7, 9, 20, b"789"),
    ];
    let (store, seen) = scripted(answers).await;
    assert_eq!(
        read(store.get_range("k", 2..10).await).await.unwrap(),
        b"23456789"
    );
    let seen = seen.lock().unwrap();
    let ranges: Vec<&str> = seen.iter().map(|head| header(head, "range")).collect();
    assert_eq!(ranges, ["bytes=2-9", "bytes=6-9", "bytes=7-9"]);
    assert_eq!(
        header(&seen[1], "if-match"),
        "\"e1\"",
        "another object could be spliced in"
    );
}

#[tokio::test]
async fn a_body_that_always_breaks_is_an_error() {
    let (store, seen) = scripted(vec![partial(0, 9, 10, b"")]).await;
    let error = read(store.get_range("k", 0..10).await).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert!(
        error.to_string().contains("after 4 resumed reads"),
        "{error}"
    );
    assert_eq!(seen.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_replaced_object_is_not_spliced() {
    let changed = refusal("412 Precondition Failed", "PreconditionFailed", "");
    let (store, _) = scripted(vec![partial(0, 9, 10, b"012"), changed]).await;
    let error = read(store.get_range("k", 0..10).await).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Contract, "{error}");
}

#[tokio::test]
async fn wrong_ranges() {
    // S3 truncates a range at the end of the object.
    let (store, _) = scripted(vec![partial(5, 9, 10, b"56789")]).await;
    let error = read(store.get_range("k", 5..15).await).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Range, "{error}");
    assert!(
        error.to_string().contains("5..15 of an object of 10 bytes"),
        "{error}"
    );
    // A server that ignores ranges.
    let all = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n0123".to_vec();
    let (store, _) = scripted(vec![Answer::Bytes(all)]).await;
    let error = read(store.get_range("k", 0..4).await).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Contract, "{error}");
}

#[tokio::test]
async fn a_broken_record_is_read_again() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n01".to_vec();
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n0123".to_vec();
    let (store, seen) = scripted(vec![Answer::Bytes(half.clone()), Answer::Bytes(whole)]).await;
    assert_eq!(store.get("k", u64::MAX).await.unwrap(), "0123");
    assert_eq!(seen.lock().unwrap().len(), 2);
    let (store, _) = scripted(vec![Answer::Bytes(half)]).await;
    assert_eq!(
        store.get("k", u64::MAX).await.unwrap_err().kind,
        ErrorKind::Timeout
    );
}
