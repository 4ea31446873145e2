//! Bulk deletes: refusals of single keys are distinguished from a refused request.

use batchweave_store::{Effect, ErrorKind};

use crate::script::{Answer, ok, refusal, scripted};

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("data/{name}")).collect()
}

/// 200 means that the request was understood, not that anything was deleted.
#[tokio::test]
async fn errors_of_single_keys_are_read() {
    let one = |key: &str, code: &str| {
        format!("<Error><Key>p/data/{key}</Key><Code>{code}</Code><Message>no</Message></Error>")
    };
    let errors = [
        one("a", "AccessDenied"),
        one("b", "InternalError"),
        one("c", "NoSuchKey"),
        one("d", "SlowDown"),
    ];
    let body = format!(
        "<?xml version=\"1.0\"?><DeleteResult>{}</DeleteResult>",
        errors.concat()
    );
    let (store, seen) = scripted(vec![ok("", &body)]).await;
    let refused = store
        .delete_many(&keys(&["a", "b", "c", "d", "e"]))
        .await
        .unwrap();
    let told: Vec<_> = refused
        .iter()
        .map(|(key, error)| (key.as_str(), error.kind, error.effect))
        .collect();
    let expected = [
        ("data/a", ErrorKind::Denied, Effect::DidNot),
        ("data/b", ErrorKind::Server, Effect::Unknown),
        ("data/d", ErrorKind::Throttled, Effect::Unknown),
    ];
    assert_eq!(told, expected);
    let text = refused[0].1.to_string();
    assert!(text.contains("delete s3://batchweave/p/data/a"), "{text}");
    assert!(text.contains("AccessDenied: no"), "{text}");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refused_request_is_one_error() {
    let (store, _) = scripted(vec![refusal("403 Forbidden", "AccessDenied", "")]).await;
    let error = store.delete_many(&keys(&["a", "b"])).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    assert_eq!(error.effect, Effect::DidNot, "{error}");
    let invalid = store.delete_many(&keys(&["a", "../b"])).await.unwrap_err();
    assert_eq!(invalid.kind, ErrorKind::Invalid, "{invalid}");
}

#[tokio::test]
async fn a_store_without_bulk_deletes_gets_single_ones() {
    let no = refusal("501 Not Implemented", "NotImplemented", "");
    let gone = refusal("404 Not Found", "NoSuchKey", "");
    let (store, seen) = scripted(vec![no, gone]).await;
    let refused = store.delete_many(&keys(&["a", "b", "c"])).await.unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(seen.lock().unwrap().len(), 4);
}

/// Repeating a deletion is harmless, so a request without an answer is retried.
#[tokio::test]
async fn a_request_that_broke_is_made_again() {
    let many: Vec<String> = (0..1000).map(|n| format!("data/{n:0900}")).collect();
    let done = ok("", "<?xml version=\"1.0\"?><DeleteResult></DeleteResult>");
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n<DeleteResult>".to_vec();
    let breaks = [Answer::Reset, Answer::Unread, Answer::Bytes(cut)];
    for first in breaks.clone() {
        let (store, seen) = scripted(vec![first, done.clone()]).await;
        let refused = store.delete_many(&many).await.unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        assert_eq!(seen.lock().unwrap().len(), 2);
    }
    for always in breaks {
        let (store, _) = scripted(vec![always]).await;
        let error = store.delete_many(&many).await.unwrap_err();
        assert!(error.kind.is_transient(), "{error:?}");
        assert_eq!(error.effect, Effect::Unknown, "{error}");
    }
}
