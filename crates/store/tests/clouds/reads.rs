//! Reads whose answers break off, fall short, or change.

use batchweave_store::{ErrorKind, Store, StoreError, read_range};
use bytes::Bytes;
use futures::TryStreamExt;

use super::{BOTH, plain, requests};
use crate::script::{Answer, header, partial};

async fn range(store: &dyn Store, range: std::ops::Range<u64>) -> Result<Bytes, StoreError> {
    let chunks: Vec<Bytes> = store.get_range("k", range).await?.try_collect().await?;
    Ok(chunks.concat().into())
}

#[tokio::test]
async fn a_body_that_breaks_off_is_read_again() {
    for cloud in BOTH {
        let short = Answer::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nab".to_vec(),
        );
        let busy = cloud.refusal("503 Service Unavailable", "ServerBusy");
        let (store, seen) = cloud
            .scripted(vec![short, busy, plain("200 OK", "", "abcde")])
            .await;
        assert_eq!(store.get("k", 9).await.unwrap(), "abcde", "{cloud:?}");
        assert_eq!(requests(&seen).len(), 3, "{cloud:?}");
    }
}

#[tokio::test]
async fn a_range_goes_on_where_it_broke_off() {
    for cloud in BOTH {
        let answers = vec![partial(2, 7, 9, b"cde"), partial(5, 7, 9, b"fgh")];
        let (store, seen) = cloud.scripted(answers).await;
        assert_eq!(range(&*store, 2..8).await.unwrap(), "cdefgh", "{cloud:?}");
        let seen = seen.lock().unwrap();
        let asked: Vec<_> = seen.iter().map(|head| header(head, "range")).collect();
        assert_eq!(asked, ["bytes=2-7", "bytes=5-7"], "{cloud:?}");
    }
}

#[tokio::test]
async fn a_range_beyond_the_object_and_another_version_are_refused() {
    for cloud in BOTH {
        // The clouds answer what there is, and refuse only a range that begins behind the object.
        let (store, _) = cloud.scripted(vec![partial(2, 4, 5, b"cde")]).await;
        let error = range(&*store, 2..8).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Range, "{cloud:?}: {error}");
        let behind = cloud.refusal("416 Range Not Satisfiable", "InvalidRange");
        let (store, _) = cloud.scripted(vec![behind]).await;
        let error = range(&*store, 8..9).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Range, "{cloud:?}: {error}");
        let Answer::Bytes(other) = partial(5, 7, 9, b"fgh") else {
            unreachable!()
        };
        let other = String::from_utf8(other).unwrap().replace("e1", "e2");
        let answers = vec![partial(2, 7, 9, b"cde"), Answer::Bytes(other.into_bytes())];
        let (store, _) = cloud.scripted(answers).await;
        let error = range(&*store, 2..8).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contract, "{cloud:?}: {error}");
        let whole = plain("200 OK", "", "abcdefghi");
        let (store, _) = cloud.scripted(vec![whole]).await;
        let error = range(&*store, 2..8).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contract, "{cloud:?}: {error}");
    }
}

#[tokio::test]
async fn an_object_larger_than_the_bound_is_not_read() {
    for cloud in BOTH {
        let (store, _) = cloud.scripted(vec![plain("200 OK", "", "abcde")]).await;
        let error = store.get("k", 4).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{cloud:?}: {error}");
        let open = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
        let endless = Answer::Endless(open, vec![b'x'; 1 << 16]);
        let (store, _) = cloud.scripted(vec![endless]).await;
        let error = store.get("k", 1 << 20).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{cloud:?}: {error}");
    }
}

#[tokio::test]
async fn a_fresh_read_has_a_connection_of_its_own() {
    for cloud in BOTH {
        let kept = Answer::Kept(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab".to_vec());
        let (store, seen) = cloud.scripted(vec![kept]).await;
        for _ in 0..2 {
            store.get("k", 9).await.unwrap();
        }
        store.get_fresh("k", 9).await.unwrap();
        let seen = seen.lock().unwrap();
        let numbers: Vec<_> = seen
            .iter()
            .map(|head| header(head, "connection-number"))
            .collect();
        assert_eq!(numbers, ["0", "0", "1"], "{cloud:?}");
    }
}

#[tokio::test]
async fn a_large_read_into_memory_is_exact() {
    for cloud in BOTH {
        let answers = vec![partial(0, 5, 9, b"abc"), partial(3, 5, 9, b"def")];
        let (store, _) = cloud.scripted(answers).await;
        let bytes = read_range(&*store, "k", 0..6, false).await.unwrap();
        assert_eq!(bytes, "abcdef", "{cloud:?}");
    }
}
