//! The error of every S3 answer: its kind, whether a write may have taken effect, and the request id.

use batchweave_store::{AccessKeys, Effect, ErrorKind, OpenOptions, StoreError};
use bytes::Bytes;

use crate::script::{Answer, refusal, scripted};

async fn create(answer: Answer) -> (StoreError, usize) {
    let (store, seen) = scripted(vec![answer]).await;
    let error = store
        .create("log/1.json", Bytes::from_static(b"{}"))
        .await
        .unwrap_err();
    let requests = seen.lock().unwrap().len();
    (error, requests)
}

#[tokio::test]
async fn creates() {
    for (status, code, kind, effect) in [
        (
            "400 Bad Request",
            "InvalidArgument",
            ErrorKind::Other,
            Effect::DidNot,
        ),
        (
            "400 Bad Request",
            "ExpiredToken",
            ErrorKind::Denied,
            Effect::DidNot,
        ),
        (
            "400 Bad Request",
            "AuthorizationHeaderMalformed",
            ErrorKind::WrongRegion,
            Effect::DidNot,
        ),
        (
            "403 Forbidden",
            "AccessDenied",
            ErrorKind::Denied,
            Effect::DidNot,
        ),
        (
            "403 Forbidden",
            "InvalidAccessKeyId",
            ErrorKind::WrongKeys,
            Effect::DidNot,
        ),
        (
            "403 Forbidden",
            "RequestTimeTooSkewed",
            ErrorKind::ClockSkew,
            Effect::DidNot,
        ),
        (
            "404 Not Found",
            "NoSuchBucket",
            ErrorKind::NoBucket,
            Effect::DidNot,
        ),
        (
            "409 Conflict",
            "ConditionalRequestConflict",
            ErrorKind::Conflict,
            Effect::Unknown,
        ),
        (
            "429 Too Many Requests",
            "SlowDown",
            ErrorKind::Throttled,
            Effect::Unknown,
        ),
        (
            "500 Internal Server Error",
            "InternalError",
            ErrorKind::Server,
            Effect::Unknown,
        ),
        (
            "501 Not Implemented",
            "NotImplemented",
            ErrorKind::Contract,
            Effect::DidNot,
        ),
        (
            "503 Service Unavailable",
            "SlowDown",
            ErrorKind::Throttled,
            Effect::Unknown,
        ),
        (
            "507 Insufficient Storage",
            "InsufficientStorage",
            ErrorKind::Full,
            Effect::DidNot,
        ),
    ] {
        let (error, requests) = create(refusal(status, code, "")).await;
        assert_eq!(
            (error.kind, error.effect),
            (kind, effect),
            "{status} {code}: {error}"
        );
        let text = error.to_string();
        for part in [
            "create s3://batchweave/p/log/1.json",
            code,
            "request id REQ-1",
        ] {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
        assert_eq!(requests, 1, "{code}: a create was repeated");
        assert!(text.ends_with(kind.remedy()), "no remedy in: {text}");
        if kind == ErrorKind::ClockSkew {
            assert!(text.contains("set this machine's clock"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_bucket_elsewhere_names_its_region() {
    let answer = refusal(
        "301 Moved Permanently",
        "PermanentRedirect",
        "x-amz-bucket-region: eu-west-3\r\n",
    );
    let (error, _) = create(answer).await;
    assert_eq!(
        (error.kind, error.effect),
        (ErrorKind::WrongRegion, Effect::DidNot),
        "{error}"
    );
    assert!(error.to_string().contains("region eu-west-3"), "{error}");
    assert!(error.to_string().contains("AWS_REGION"), "{error}");
}

#[tokio::test]
async fn no_answer() {
    let (reset, requests) = create(Answer::Reset).await;
    assert_eq!(
        (reset.kind, reset.effect, requests),
        (ErrorKind::Timeout, Effect::Unknown, 1),
        "{reset}"
    );
    assert!(
        reset.to_string().contains("it may have taken effect"),
        "{reset}"
    );
    let half = b"HTTP/1.1 200 OK\r\nContent-Le".to_vec();
    let (cut, requests) = create(Answer::Bytes(half)).await;
    assert_eq!(
        (cut.kind, cut.effect, requests),
        (ErrorKind::Timeout, Effect::Unknown, 1),
        "{cut}"
    );
    // Waits for the commit client's whole time-out.
    let (silent, requests) = create(Answer::Silence).await;
    assert_eq!(
        (silent.kind, silent.effect, requests),
        (ErrorKind::Timeout, Effect::Unknown, 1),
        "{silent}"
    );
}

#[tokio::test]
async fn no_connection_means_it_did_not_happen() {
    // A reserved port, which no other test takes.
    for endpoint in ["http://127.0.0.1:1", "http://no-such-host.invalid:9000"] {
        let store = super::store_at(endpoint, "p", ("id", "secret")).await;
        let error = store.create("k", Bytes::new()).await.unwrap_err();
        assert_eq!(
            (error.kind, error.effect),
            (ErrorKind::Unreachable, Effect::DidNot),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("check the endpoint"), "{text}");
        assert!(text.contains(endpoint), "which endpoint? {text}");
    }
}

#[tokio::test]
async fn reads() {
    let (store, seen) = scripted(vec![refusal("403 Forbidden", "AccessDenied", "")]).await;
    let error = store.get("log/1.json", u64::MAX).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.to_string().contains("s3:ListBucket"), "{error}");
    assert_eq!(seen.lock().unwrap().len(), 1, "a refusal was repeated");

    let (store, _) = scripted(vec![refusal("404 Not Found", "NoSuchBucket", "")]).await;
    for error in [
        store.get("k", u64::MAX).await.unwrap_err(),
        store.list("", None).await.unwrap_err(),
        store.get_range("k", 0..4).await.err().unwrap(),
    ] {
        assert_eq!(
            (error.kind, error.effect),
            (ErrorKind::NoBucket, Effect::DidNot),
            "{error}"
        );
    }

    let (store, seen) = scripted(vec![refusal("503 Slow Down", "SlowDown", "")]).await;
    let error = store.get("k", u64::MAX).await.unwrap_err();
    assert_eq!(
        (error.kind, error.effect),
        (ErrorKind::Throttled, Effect::DidNot),
        "{error}"
    );
    assert_eq!(seen.lock().unwrap().len(), 5, "tries of a read");
}

#[tokio::test]
async fn endpoints_and_keys_that_can_not_work_are_named() {
    let options = OpenOptions {
        endpoint: Some("localhost:9000".to_owned()),
        ..Default::default()
    };
    let error = batchweave_store::open("s3://batchweave", &options)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(
        error.to_string().contains("http://127.0.0.1:9000"),
        "{error}"
    );

    let (server, _) = super::served(batchweave_dev_s3::Options::default(), "p").await;
    let wrong = super::store_at(&server.endpoint(), "p", ("batchweave", "wrong")).await;
    let error = wrong.create("k", Bytes::new()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.effect),
        (ErrorKind::WrongKeys, Effect::DidNot),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("check the access key and the secret key"),
        "{text}"
    );
    assert!(!text.contains("ListBucket"), "{text}");
    let keys = AccessKeys {
        id: "id".to_owned(),
        secret: "hidden".to_owned(),
    };
    assert!(!format!("{keys:?}").contains("hidden"));
}
