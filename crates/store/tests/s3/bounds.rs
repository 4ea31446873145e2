//! A store may claim any length and send any number of bytes: no more is read than the caller's bound.

use batchweave_store::{ErrorKind, StoreError};

use crate::script::{Answer, header, scripted};

const AT_MOST: u64 = 100_000;

fn head(length: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\n{length}\r\n").into_bytes()
}

fn too_large(error: &StoreError, size: &str) {
    assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
    let text = error.to_string();
    for part in ["get s3://batchweave/p/log/7.json", size, "at most 100000"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// 2^62 bytes cannot be allocated: trying would abort the program.
#[tokio::test]
async fn a_claimed_length_is_not_believed() {
    for length in [AT_MOST + 1, 1 << 40, 1 << 62] {
        let claim = head(&format!("Content-Length: {length}\r\n"));
        let (store, seen) = scripted(vec![Answer::Bytes(claim)]).await;
        let error = store.get("log/7.json", AT_MOST).await.unwrap_err();
        too_large(&error, &format!("{length} bytes"));
        let error = store.get_fresh("log/7.json", AT_MOST).await.unwrap_err();
        too_large(&error, &format!("{length} bytes"));
        assert_eq!(seen.lock().unwrap().len(), 2, "asked again");
    }
}

/// A claim within the bound without any bytes: memory is not allocated before bytes arrive.
#[tokio::test]
async fn a_claim_without_a_body_takes_no_memory() {
    let claim = head(&format!("Content-Length: {}\r\n", 1u64 << 62));
    let (store, _) = scripted(vec![Answer::Bytes([&claim[..], b"x"].concat())]).await;
    let error = store.get("log/7.json", u64::MAX).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("log/7.json"), "{error}");
}

#[tokio::test]
async fn a_body_that_never_ends_is_left() {
    let block = vec![b' '; 1 << 16];
    let chunk = [b"10000\r\n", &block[..], b"\r\n"].concat();
    let chunked = head("Transfer-Encoding: chunked\r\n");
    for (head, more) in [(head(""), block.clone()), (chunked, chunk)] {
        let (store, seen) = scripted(vec![Answer::Endless(head, more)]).await;
        let error = store.get("log/7.json", AT_MOST).await.unwrap_err();
        too_large(&error, "more");
        assert_eq!(seen.lock().unwrap().len(), 1, "asked again");
    }
}

#[tokio::test]
async fn a_second_look_has_a_connection_of_its_own() {
    let kept = [&head("Content-Length: 2\r\n")[..], b"ok"].concat();
    let (store, seen) = scripted(vec![Answer::Kept(kept)]).await;
    for fresh in [false, false, true, true, false] {
        let body = if fresh {
            store.get_fresh("k", 2).await
        } else {
            store.get("k", 2).await
        };
        assert_eq!(body.unwrap(), "ok");
    }
    let seen = seen.lock().unwrap();
    let on: Vec<&str> = seen
        .iter()
        .map(|s| header(s, "connection-number"))
        .collect();
    assert_eq!(on, ["0", "0", "1", "2", "0"]);
}
