//! The trap of retrying clients: when the answer to a conditional put is lost, a repeated put is answered
//! "exists" because of its own success. `create` must send one request and report "unknown".

use std::time::Duration;

use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use batchweave_dev_s3::{Fault, Injection, Op as S3Op, Options};
use batchweave_store::{Create, Effect, ErrorKind, probe};
use bytes::Bytes;

use super::served;
use crate::script::{Answer, ok, refusal, scripted};

fn once(fault: Fault, op: S3Op) -> Injection {
    Injection {
        fault,
        op: Some(op),
        key_contains: String::new(),
        times: 1,
    }
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_never_exists() {
    let (server, store) = served(Options::default(), "p").await;
    let ours = Bytes::from_static(b"commit id 1");
    server.faults().inject(once(Fault::Lost, S3Op::Put));
    let error = store.create("log/1", ours.clone()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.effect),
        (ErrorKind::Timeout, Effect::Unknown),
        "{error}"
    );
    assert_eq!(
        store.get("log/1", u64::MAX).await.unwrap(),
        ours,
        "the deed was done"
    );
    assert_eq!(store.create("log/1", ours).await.unwrap(), Create::Exists);
}

/// 100,000 input files make a list of 13 MiB; at 2 MiB/s it takes longer than a record may.
#[tokio::test]
async fn a_large_body_has_more_time() {
    let late = Duration::from_secs(5);
    let Answer::Bytes(created) = ok("", "") else {
        unreachable!()
    };
    let (store, seen) = scripted(vec![Answer::Late(late, created)]).await;
    let list = Bytes::from(vec![b'x'; 32 << 20]);
    let answer = store.create("inputs/p/1.json", list).await.unwrap();
    assert_eq!(answer, Create::Created);
    assert_eq!(seen.lock().unwrap().len(), 1, "a create was repeated");
}

#[tokio::test]
async fn a_lost_request_is_unknown_too() {
    let (server, store) = served(Options::default(), "p").await;
    for fault in [Fault::Reset, Fault::Error, Fault::Slow, Fault::Conflict] {
        server.faults().inject(once(fault, S3Op::Put));
        let error = store.create("log/1", Bytes::new()).await.unwrap_err();
        assert_eq!(error.effect, Effect::Unknown, "{fault:?}: {error}");
        assert!(error.kind.is_transient(), "{fault:?}: {error}");
        assert!(
            store
                .get("log/1", u64::MAX)
                .await
                .unwrap_err()
                .is_not_found(),
            "{fault:?}"
        );
    }
}

/// The trap itself, with the plain SDK: if the winner ever stops failing here, the reason
/// for a client without retries is obsolete.
#[tokio::test]
async fn a_retrying_client_tells_the_winner_that_it_lost() {
    let (server, store) = served(Options::default(), "p").await;
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let keys = Options::default();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .endpoint_url(server.endpoint())
        .force_path_style(true)
        .credentials_provider(Credentials::new(
            keys.access_key,
            keys.secret_key,
            None,
            None,
            "test",
        ))
        .http_client(http)
        .retry_config(RetryConfig::standard());
    let retrying = aws_sdk_s3::Client::from_conf(config.build());
    server.faults().inject(once(Fault::Lost, S3Op::Put));
    let put = retrying
        .put_object()
        .bucket("batchweave")
        .key("p/log/1")
        .if_none_match("*");
    let answer = put.body(ByteStream::from_static(b"ours")).send().await;
    let status = answer
        .unwrap_err()
        .raw_response()
        .map(|raw| raw.status().as_u16());
    assert_eq!(status, Some(412), "the put that won");
    assert_eq!(store.get("log/1", u64::MAX).await.unwrap(), "ours");
}

/// Data goes through a retrying client, under unique keys: an object of the same size is its own.
#[tokio::test]
async fn an_upload_finds_itself_after_a_lost_answer() {
    let (server, store) = served(Options::default(), "p").await;
    let body = Bytes::from_static(b"data");
    server.faults().inject(once(Fault::Lost, S3Op::Put));
    assert_eq!(
        store.upload("data/1", body.clone()).await.unwrap(),
        Create::Created
    );
    server.faults().inject(once(Fault::Conflict, S3Op::Put));
    assert_eq!(
        store.upload("data/2", body.clone()).await.unwrap(),
        Create::Created
    );
    assert_eq!(
        store.upload("data/2", body.slice(1..)).await.unwrap(),
        Create::Exists
    );
}

#[tokio::test]
async fn parts_survive_lost_answers() {
    let (server, store) = served(Options::default(), "p").await;
    let body = large();
    for fault in [Fault::Lost, Fault::Error, Fault::Reset] {
        for op in [S3Op::Multipart, S3Op::Part] {
            let key = format!("data/{op:?}-{fault:?}");
            server.faults().inject(once(fault, op));
            assert_eq!(
                store.upload(&key, body.clone()).await.unwrap(),
                Create::Created,
                "{key}"
            );
            assert_eq!(
                store.head(&key).await.unwrap().size,
                body.len() as u64,
                "{key}"
            );
        }
    }
}

/// The body of an upload in three parts.
fn large() -> Bytes {
    Bytes::from(vec![5u8; 33 << 20])
}

/// The answers to an upload in three parts, up to its Complete.
fn until_complete() -> Vec<Answer> {
    let begun =
        "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>";
    let part = || ok("ETag: \"part\"\r\n", "");
    vec![ok("", begun), part(), part(), part()]
}

#[tokio::test]
async fn a_complete_whose_answer_was_lost_is_looked_up() {
    let gone = || refusal("404 Not Found", "NoSuchUpload", "");
    let length = format!("Content-Length: {}\r\n", large().len());
    let there =
        Answer::Bytes(format!("HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\n").into_bytes());
    let (store, seen) =
        scripted([until_complete(), vec![Answer::Reset, gone(), there]].concat()).await;
    assert_eq!(
        store.upload("data/1", large()).await.unwrap(),
        Create::Created
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 7, "{seen:#?}");
    assert!(
        seen[5].contains("uploadid=u1") && seen[6].starts_with("head "),
        "{seen:#?}"
    );
}

#[tokio::test]
async fn a_complete_told_409_uploads_again() {
    let conflict = refusal("409 Conflict", "ConditionalRequestConflict", "");
    let done = ok(
        "",
        "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>",
    );
    let script = [
        until_complete(),
        vec![conflict],
        until_complete(),
        vec![done],
    ]
    .concat();
    let (store, seen) = scripted(script).await;
    assert_eq!(
        store.upload("data/1", large()).await.unwrap(),
        Create::Created
    );
    assert_eq!(seen.lock().unwrap().len(), 10);
}

#[tokio::test]
async fn the_probe_passes_when_losers_are_told_409() {
    let (server, store) = served(Options::default(), "p").await;
    let conflicts = Injection {
        times: 10,
        ..once(Fault::Conflict, S3Op::Put)
    };
    server.faults().inject(conflicts);
    probe(&*store, 3, 0).await.unwrap();
    assert!(
        store.list("", None).await.unwrap().objects.is_empty(),
        "the probe left objects behind"
    );
}
