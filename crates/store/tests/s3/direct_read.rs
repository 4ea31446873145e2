//! Large reads: bodies go straight to the caller's memory, connections are reused, and failures mean the
//! same as in the SDK, through which reads of unknown failures are repeated.

use std::ops::Range;
use std::sync::Arc;

use batchweave_dev_s3::{Fault, Injection, Op, Options};
use batchweave_store::{ErrorKind, Store, StoreError};
use bytes::Bytes;

use crate::script::{Answer, header, partial, refusal, scripted};

async fn read(store: &Arc<dyn Store>, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
    let mut body = store.open_range("k", range, false).await?;
    let (mut all, mut some) = (Vec::new(), [0; 7]);
    loop {
        match body.read(&mut some).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&some[..count]),
        }
    }
}

/// The answer `partial`, on a connection that stays.
fn kept(first: usize, last: usize, body: &[u8]) -> Answer {
    let Answer::Bytes(bytes) = partial(first, last, 20, body) else {
        unreachable!()
    };
    let text = String::from_utf8(bytes).unwrap();
    Answer::Kept(text.replace("Connection: close\r\n", "").into_bytes())
}

fn by_the_sdk(head: &str) -> bool {
    header(head, "authorization") != "missing"
}

#[tokio::test]
async fn one_signature_and_one_connection_serve_many_ranges() {
    let answers = vec![
        kept(2, 9, b"23456789"),
        kept(10, 11, b"ab"),
        kept(0, 1, b"01"),
    ];
    let (store, seen) = scripted(answers).await;
    assert_eq!(read(&store, 2..10).await.unwrap(), b"23456789");
    assert_eq!(read(&store, 10..12).await.unwrap(), b"ab");
    let mut fresh = store.open_range("k", 0..2, true).await.unwrap();
    assert_eq!(fresh.read(&mut [0; 1]).await.unwrap(), 1);
    let seen = seen.lock().unwrap();
    let firsts: Vec<&str> = seen.iter().filter_map(|head| head.lines().next()).collect();
    assert!(firsts[0].contains("x-amz-signature="), "{firsts:?}");
    assert!(firsts.iter().all(|first| *first == firsts[0]), "{firsts:?}");
    let ranges: Vec<&str> = seen.iter().map(|head| header(head, "range")).collect();
    assert_eq!(ranges, ["bytes=2-9", "bytes=10-11", "bytes=0-1"]);
    let connections: Vec<&str> = seen
        .iter()
        .map(|head| header(head, "connection-number"))
        .collect();
    assert_eq!(connections, ["0", "0", "1"], "a fresh one is another one");
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_does_not_count() {
    for ending in [Answer::Reset, Answer::Bytes(Vec::new())] {
        let answers = vec![kept(0, 1, b"01"), ending, kept(2, 3, b"23")];
        let (store, seen) = scripted(answers).await;
        assert_eq!(read(&store, 0..2).await.unwrap(), b"01");
        assert_eq!(read(&store, 2..4).await.unwrap(), b"23");
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 3);
        assert_eq!(header(&seen[2], "connection-number"), "1");
    }
}

#[tokio::test]
async fn a_body_that_is_not_read_to_its_end_gives_no_connection_back() {
    let (store, seen) = scripted(vec![kept(0, 9, b"0123456789"), kept(0, 1, b"01")]).await;
    let mut body = store.open_range("k", 0..10, false).await.unwrap();
    assert_eq!(body.read(&mut [0; 4]).await.unwrap(), 4);
    drop(body);
    assert_eq!(read(&store, 0..2).await.unwrap(), b"01");
    assert_eq!(header(&seen.lock().unwrap()[1], "connection-number"), "1");
}

#[tokio::test]
async fn a_broken_body_goes_on_where_it_stopped_on_a_fresh_connection() {
    let answers = vec![
        partial(2, 9, 20, b"2345"),
        partial(6, 9, 20, b"6"),
        partial(7, 9, 20, b"789"),
    ];
    let (store, seen) = scripted(answers).await;
    assert_eq!(read(&store, 2..10).await.unwrap(), b"23456789");
    let seen = seen.lock().unwrap();
    let ranges: Vec<&str> = seen.iter().map(|head| header(head, "range")).collect();
    assert_eq!(ranges, ["bytes=2-9", "bytes=6-9", "bytes=7-9"]);
    assert_eq!(header(&seen[0], "if-match"), "missing");
    assert_eq!(
        header(&seen[1], "if-match"),
        "\"e1\"",
        "another object could be spliced in"
    );
    assert!(!seen.iter().any(|head| by_the_sdk(head)));
}

#[tokio::test]
async fn a_body_that_always_breaks_is_an_error() {
    let (store, seen) = scripted(vec![partial(0, 9, 10, b"")]).await;
    let error = read(&store, 0..10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    let text = error.to_string();
    assert!(text.contains("after 4 resumed reads"), "{text}");
    assert_eq!(seen.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_replaced_object_is_not_spliced() {
    let changed = refusal("412 Precondition Failed", "PreconditionFailed", "");
    let (store, _) = scripted(vec![partial(0, 9, 10, b"012"), changed]).await;
    let error = read(&store, 0..10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Contract, "{error}");
}

#[tokio::test]
async fn wrong_ranges() {
    let (store, _) = scripted(vec![partial(5, 9, 10, b"56789")]).await;
    let error = read(&store, 5..15).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Range, "{error}");
    let text = error.to_string();
    assert!(text.contains("5..15 of an object of 10 bytes"), "{text}");
    let all = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n0123".to_vec();
    for wrong in [Answer::Bytes(all), partial(4, 7, 10, b"4567")] {
        let (store, _) = scripted(vec![wrong]).await;
        let error = read(&store, 0..4).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contract, "{error}");
    }
}

#[tokio::test]
async fn refusals_mean_what_they_mean_to_the_sdk() {
    for (status, code, kind, requests) in [
        ("404 Not Found", "NoSuchKey", ErrorKind::NotFound, 1),
        ("404 Not Found", "NoSuchBucket", ErrorKind::NoBucket, 1),
        (
            "416 Range Not Satisfiable",
            "InvalidRange",
            ErrorKind::Range,
            1,
        ),
        // The caller can reduce its load; retrying here would not help.
        ("503 Slow Down", "SlowDown", ErrorKind::Throttled, 1),
        (
            "500 Internal Server Error",
            "InternalError",
            ErrorKind::Server,
            5,
        ),
        // The SDK decides, with one request of its own.
        ("403 Forbidden", "AccessDenied", ErrorKind::Denied, 2),
        (
            "403 Forbidden",
            "InvalidAccessKeyId",
            ErrorKind::WrongKeys,
            2,
        ),
        ("301 Moved", "PermanentRedirect", ErrorKind::WrongRegion, 2),
    ] {
        let (store, seen) = scripted(vec![refusal(status, code, "")]).await;
        let error = read(&store, 0..4).await.unwrap_err();
        assert_eq!(error.kind, kind, "{status} {code}: {error}");
        let text = error.to_string();
        assert!(text.starts_with("get_range s3://batchweave/p/k"), "{text}");
        assert!(text.ends_with(kind.remedy()), "no remedy in: {text}");
        if kind != ErrorKind::Range {
            assert!(text.contains(code) && text.contains("REQ-1"), "{text}");
        }
        assert_eq!(seen.lock().unwrap().len(), requests, "{status} {code}");
    }
}

#[tokio::test]
async fn a_failure_that_passes_is_not_noticed() {
    let broken = refusal("500 Internal Server Error", "InternalError", "");
    let answers = vec![broken, Answer::Reset, kept(0, 3, b"0123")];
    let (store, seen) = scripted(answers).await;
    assert_eq!(read(&store, 0..4).await.unwrap(), b"0123");
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_signature_that_has_run_out_is_made_again() {
    for (status, code) in [
        ("400 Bad Request", "ExpiredToken"),
        ("403 Forbidden", "AccessDenied"),
    ] {
        let expired = refusal(status, code, "");
        let (store, seen) = scripted(vec![kept(0, 1, b"01"), expired, kept(2, 3, b"23")]).await;
        assert_eq!(read(&store, 0..2).await.unwrap(), b"01");
        assert_eq!(read(&store, 2..4).await.unwrap(), b"23");
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 3);
        assert!(!seen.iter().any(|head| by_the_sdk(head)), "{seen:?}");
    }
}

#[tokio::test]
async fn where_signed_urls_are_refused_the_sdk_reads() {
    let refused = refusal("403 Forbidden", "AccessDenied", "");
    let chunked = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-3/9\r\n\
                    Transfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n0\r\n\r\n";
    for odd in [refused, Answer::Bytes(chunked.to_vec())] {
        let answers = vec![odd, partial(0, 3, 9, b"01"), partial(2, 3, 9, b"23")];
        let (store, seen) = scripted(answers).await;
        assert_eq!(read(&store, 0..4).await.unwrap(), b"0123");
        // The next read goes through the SDK at once.
        assert_eq!(read(&store, 2..4).await.unwrap(), b"23");
        let seen = seen.lock().unwrap();
        let sdk: Vec<bool> = seen.iter().map(|head| by_the_sdk(head)).collect();
        assert_eq!(sdk, [false, true, true, true]);
    }
}

#[tokio::test]
async fn no_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for endpoint in [closed.as_str(), "http://no-such-host.invalid:9000"] {
        let store = super::store_at(endpoint, "p", ("id", "secret")).await;
        let error = read(&store, 0..4).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
        let text = error.to_string();
        assert!(text.contains(endpoint), "which endpoint? {text}");
        assert!(text.contains("check the endpoint"), "{text}");
    }
}

/// The embedded server checks signatures, and resets and fails as configured.
#[tokio::test]
async fn a_server_with_faults_loses_nothing() {
    let (server, store) = super::served(Options::default(), "p").await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    let _ = store.upload("k", Bytes::from(body.clone())).await.unwrap();
    for (fault, times) in [(Fault::Reset, 2), (Fault::Lost, 2), (Fault::Error, 3)] {
        server.faults().inject(Injection {
            fault,
            op: Some(Op::Get),
            key_contains: "p/k".to_owned(),
            times,
        });
        let range = 1_000..2_900_001;
        let expected = &body[1_000..2_900_001];
        assert!(read(&store, range).await.unwrap() == expected, "{fault:?}");
    }
    server.faults().inject(Injection {
        fault: Fault::Slow,
        op: Some(Op::Get),
        key_contains: String::new(),
        times: 1,
    });
    let error = read(&store, 0..9).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Throttled, "{error}");
    let wrong = super::store_at(&server.endpoint(), "p", ("batchweave", "wrong")).await;
    let error = read(&wrong, 0..9).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongKeys, "{error}");
    server.shutdown().await;
}
