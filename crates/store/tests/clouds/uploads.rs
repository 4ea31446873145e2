//! Uploads whose answers are lost, in one request and in parts.

use batchweave_store::{Create, Effect, ErrorKind};
use bytes::Bytes;

use super::{BOTH, Cloud, plain, requests};
use crate::script::{Answer, header};

const PART: usize = 16 << 20;

fn large() -> Bytes {
    Bytes::from(vec![7; 40 << 20])
}

#[tokio::test]
async fn an_upload_whose_answer_was_lost_finds_its_own_object() {
    for cloud in BOTH {
        let answers = vec![Answer::Reset, cloud.exists(), cloud.described(5)];
        let (store, seen) = cloud.scripted(answers).await;
        let created = store.upload("data/d", "abcde".into()).await.unwrap();
        assert_eq!(created, Create::Created, "{cloud:?}");
        assert_eq!(requests(&seen).len(), 3, "{cloud:?}");
        let (store, _) = cloud
            .scripted(vec![cloud.exists(), cloud.described(6)])
            .await;
        let created = store.upload("data/d", "abcde".into()).await.unwrap();
        assert_eq!(created, Create::Exists, "{cloud:?}: another size");
    }
}

#[tokio::test]
async fn an_upload_that_is_never_answered_is_unknown() {
    for cloud in BOTH {
        let (store, seen) = cloud.scripted(vec![Answer::Reset]).await;
        let error = store.upload("data/d", "abcde".into()).await.unwrap_err();
        assert_eq!(error.effect, Effect::Unknown, "{cloud:?}: {error}");
        assert_eq!(requests(&seen).len(), 5, "{cloud:?}");
    }
}

/// Returns the address of an upload on the server of the test, which the store must take as it is.
fn begun() -> Answer {
    plain("200 OK", "Location: http://LOCAL/upload/session\r\n", "")
}

async fn google(
    answers: Vec<Answer>,
) -> (
    std::sync::Arc<dyn batchweave_store::Store>,
    crate::script::Seen,
) {
    // The address is that of the server, which is known only when it listens.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap().to_string();
    let named = answers.into_iter().map(|answer| match answer {
        Answer::Bytes(bytes) => {
            let text = String::from_utf8(bytes).unwrap().replace("LOCAL", &local);
            Answer::Bytes(text.into_bytes())
        }
        other => other,
    });
    listener.set_nonblocking(true).unwrap();
    let (endpoint, seen) = crate::script::served_on(listener, named.collect());
    (Cloud::Google.at(endpoint).await, seen)
}

fn stored(bytes: usize) -> Answer {
    let range = match bytes {
        0 => String::new(),
        bytes => format!("Range: bytes=0-{}\r\n", bytes - 1),
    };
    plain("308 Resume Incomplete", &range, "")
}

#[tokio::test]
async fn a_resumable_upload_goes_on_behind_what_arrived() {
    let answers = vec![
        begun(),
        stored(PART),
        Answer::Reset,
        // What had arrived of the second part.
        stored(PART + (1 << 20)),
        stored(2 * PART),
        plain("200 OK", "", "{}"),
    ];
    let (store, seen) = google(answers).await;
    let created = store.upload("data/d", large()).await.unwrap();
    assert_eq!(created, Create::Created);
    let seen = seen.lock().unwrap();
    let sent: Vec<_> = seen
        .iter()
        .map(|head| header(head, "content-range"))
        .collect();
    let whole = 40 << 20;
    let part = |from: usize, to: usize| format!("bytes {from}-{}/{whole}", to - 1);
    assert_eq!(
        sent,
        [
            "missing".to_owned(),
            part(0, PART),
            part(PART, 2 * PART),
            format!("bytes */{whole}"),
            part(PART + (1 << 20), 2 * PART + (1 << 20)),
            part(2 * PART, whole),
        ]
    );
}

#[tokio::test]
async fn a_resumable_upload_that_is_gone_begins_again() {
    let gone = || Cloud::Google.refusal("410 Gone", "gone");
    let answers = vec![
        begun(),
        gone(),
        begun(),
        stored(PART),
        stored(2 * PART),
        plain("200 OK", "", "{}"),
    ];
    let (store, seen) = google(answers).await;
    assert_eq!(
        store.upload("data/d", large()).await.unwrap(),
        Create::Created
    );
    assert_eq!(requests(&seen).len(), 6);
}

#[tokio::test]
async fn the_lost_end_of_a_resumable_upload_is_found() {
    let whole = 40 << 20;
    let answers = vec![
        begun(),
        stored(PART),
        stored(2 * PART),
        Answer::Reset,
        plain("200 OK", "", "{}"),
    ];
    let (store, seen) = google(answers).await;
    assert_eq!(
        store.upload("data/d", large()).await.unwrap(),
        Create::Created
    );
    let seen = seen.lock().unwrap();
    let asked = header(&seen[4], "content-range");
    assert_eq!(asked, format!("bytes */{whole}"));
}

#[tokio::test]
async fn a_resumable_upload_without_progress_ends() {
    let (store, seen) = google(vec![begun(), stored(0)]).await;
    let error = store.upload("data/d", large()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.effect),
        (ErrorKind::Timeout, Effect::Unknown),
        "{error}"
    );
    assert_eq!(
        requests(&seen).len(),
        6,
        "one that begins and five without progress"
    );
}

#[tokio::test]
async fn blocks_become_an_object_on_condition_that_there_is_none() {
    let put = || plain("201 Created", "", "");
    let (store, seen) = Cloud::Azure
        .scripted(vec![put(), put(), put(), put()])
        .await;
    assert_eq!(
        store.upload("data/d", large()).await.unwrap(),
        Create::Created
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4, "three blocks and a list");
    let list = seen.last().unwrap();
    assert!(list.contains("comp=blocklist"), "{list}");
    assert_eq!(header(list, "if-none-match"), "*");
    assert!(
        seen[..3]
            .iter()
            .all(|head| head.contains("comp=block&blockid="))
    );
}

#[tokio::test]
async fn the_lost_end_of_an_upload_in_blocks_is_found() {
    let put = || plain("201 Created", "", "");
    let azure = Cloud::Azure;
    let answers = vec![
        put(),
        put(),
        put(),
        Answer::Reset,
        azure.exists(),
        azure.described(40 << 20),
    ];
    let (store, _) = azure.scripted(answers).await;
    assert_eq!(
        store.upload("data/d", large()).await.unwrap(),
        Create::Created
    );
    // The first list made the object, and its blocks are gone with it.
    let gone = azure.refusal("400 Bad Request", "InvalidBlockList");
    let answers = vec![
        put(),
        put(),
        put(),
        gone,
        put(),
        put(),
        put(),
        azure.exists(),
        azure.described(40 << 20),
    ];
    let (store, seen) = azure.scripted(answers).await;
    assert_eq!(
        store.upload("data/d", large()).await.unwrap(),
        Create::Created
    );
    assert_eq!(requests(&seen).len(), 9);
}
