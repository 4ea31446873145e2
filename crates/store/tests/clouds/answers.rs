//! The outcomes that answers to creates and listings leave open.

use batchweave_store::{Create, Effect, ErrorKind};
use bytes::Bytes;

use super::{BOTH, Cloud, plain, requests};
use crate::script::Answer;

#[tokio::test]
async fn a_create_is_one_request_and_a_lost_answer_is_unknown() {
    for cloud in BOTH {
        for answer in [
            Answer::Reset,
            Answer::Unread,
            cloud.refusal("500 Internal Server Error", "InternalError"),
            cloud.refusal("503 Service Unavailable", "ServerBusy"),
            cloud.refusal("429 Too Many Requests", "rateLimitExceeded"),
            cloud.refusal("408 Request Timeout", "OperationTimedOut"),
            cloud.refusal("409 Conflict", "conflict"),
        ] {
            let (store, seen) = cloud.scripted(vec![answer.clone()]).await;
            let error = store.create("log/1", "x".into()).await.unwrap_err();
            assert_eq!(
                error.effect,
                Effect::Unknown,
                "{cloud:?} {answer:?}: {error}"
            );
            assert!(error.kind.is_transient(), "{cloud:?} {answer:?}: {error}");
            assert_eq!(requests(&seen).len(), 1, "{cloud:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_create_had_no_effect() {
    for cloud in BOTH {
        for (status, code, kind) in [
            ("403 Forbidden", "forbidden", ErrorKind::Denied),
            ("401 Unauthorized", "required", ErrorKind::Denied),
            ("404 Not Found", "ContainerNotFound", ErrorKind::NoBucket),
            ("400 Bad Request", "invalid", ErrorKind::Other),
            ("301 Moved Permanently", "moved", ErrorKind::Contract),
            ("501 Not Implemented", "no", ErrorKind::Contract),
        ] {
            let (store, seen) = cloud.scripted(vec![cloud.refusal(status, code)]).await;
            let error = store.create("log/1", Bytes::new()).await.unwrap_err();
            assert_eq!(
                (error.kind, error.effect),
                (kind, Effect::DidNot),
                "{cloud:?} {status}: {error}"
            );
            assert!(error.detail.contains("made up"), "{error}");
            assert_eq!(requests(&seen).len(), 1, "{cloud:?} {status}");
        }
        let nowhere = cloud.at("http://127.0.0.1:9".to_owned()).await;
        let error = nowhere.create("log/1", Bytes::new()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
        assert_eq!(error.effect, Effect::DidNot, "{error}");
        assert!(
            error.detail.contains("no connection to http://127.0.0.1:9"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_existing_object_is_no_error() {
    for cloud in BOTH {
        let (store, seen) = cloud.scripted(vec![cloud.exists()]).await;
        let created = store.create("log/1", "x".into()).await.unwrap();
        assert_eq!(created, Create::Exists, "{cloud:?}");
        let condition = match cloud {
            Cloud::Google => "ifgenerationmatch=0",
            Cloud::Azure => "if-none-match: *",
        };
        let seen = seen.lock().unwrap();
        assert!(seen[0].contains(condition), "{cloud:?}: {}", seen[0]);
    }
}

#[tokio::test]
async fn a_refusal_names_the_permission_in_the_clouds_own_words() {
    let body = "{\"error\": {\"code\": 403, \"message\": \"a@b does not have storage.objects.list access\", \
                \"errors\": [{\"reason\": \"forbidden\"}]}}";
    let (store, _) = Cloud::Google
        .scripted(vec![plain("403 Forbidden", "", body)])
        .await;
    let error = store.list("log/", None).await.unwrap_err().to_string();
    assert!(error.contains("storage.objects.list"), "{error}");
    assert!(error.contains("Storage Object User"), "{error}");
    let denied = Cloud::Azure.refusal("403 Forbidden", "AuthorizationPermissionMismatch");
    let (store, _) = Cloud::Azure.scripted(vec![denied]).await;
    let error = store.list("log/", None).await.unwrap_err().to_string();
    assert!(
        error.contains("AuthorizationPermissionMismatch: made up"),
        "{error}"
    );
    assert!(error.contains("Storage Blob Data Contributor"), "{error}");
}

#[tokio::test]
async fn a_listing_that_cannot_be_read_or_never_ends_is_refused() {
    for cloud in BOTH {
        let (store, _) = cloud.scripted(vec![plain("200 OK", "", "[]")]).await;
        let error = store.list("log/", None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contract, "{cloud:?}: {error}");
        let endless = match cloud {
            Cloud::Google => "{\"nextPageToken\": \"again\"}",
            Cloud::Azure => {
                "<EnumerationResults><Blobs/><NextMarker>again</NextMarker></EnumerationResults>"
            }
        };
        let (store, _) = cloud.scripted(vec![plain("200 OK", "", endless)]).await;
        let page = store.list("log/", None).await.unwrap();
        let error = store.list("log/", page.next).await.unwrap_err();
        assert!(error.detail.contains("endless"), "{cloud:?}: {error}");
    }
}

#[tokio::test]
async fn throttled_lists_and_deletes_are_retried() {
    for cloud in BOTH {
        let busy = || cloud.refusal("503 Service Unavailable", "ServerBusy");
        let none = match cloud {
            Cloud::Google => "{}",
            Cloud::Azure => "<EnumerationResults><Blobs/></EnumerationResults>",
        };
        let answers = vec![busy(), Answer::Reset, plain("200 OK", "", none)];
        let (store, seen) = cloud.scripted(answers).await;
        assert!(store.list("log/", None).await.unwrap().objects.is_empty());
        assert_eq!(requests(&seen).len(), 3, "{cloud:?}");
        let gone = cloud.refusal("404 Not Found", "BlobNotFound");
        let (store, seen) = cloud.scripted(vec![busy(), gone]).await;
        store.delete("log/1").await.unwrap();
        assert_eq!(requests(&seen).len(), 2, "{cloud:?}");
    }
}
