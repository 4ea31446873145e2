//! Answers that are not S3's: a proxy's page, a TLS port, a document of another kind. Each error
//! shows the answer in one printable line.

use batchweave_store::{Effect, ErrorKind};
use bytes::Bytes;

use crate::script::{Answer, ok, refusal, scripted};

fn page(status: &str, body: &str) -> Answer {
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    Answer::Bytes(text.into_bytes())
}

#[tokio::test]
async fn the_first_words_of_a_foreign_body_are_shown() {
    let tls = "Client sent an HTTP request to an HTTPS server.\n";
    let html = format!("<html>\n<b>\u{1b}[31m\u{202e}down</b>{}", "x".repeat(9000));
    for (status, body, words) in [
        (
            "400 Bad Request",
            tls,
            "\"Client sent an HTTP request to an HTTPS server.\"",
        ),
        ("502 Bad Gateway", &html, "\"<html> <b>[31mdown</b>xxx"),
    ] {
        let (store, _) = scripted(vec![page(status, body)]).await;
        let create = store.create("k", Bytes::new()).await.unwrap_err();
        assert_eq!(store.get("k", 9).await.unwrap_err().kind, create.kind);
        let lean = store.open_range("k", 0..4, false).await.err().unwrap();
        for error in [create, lean] {
            let text = error.to_string();
            assert!(text.contains(words), "{text}");
            assert!(
                text.len() < 400 && !text.contains(['\u{1b}', '\u{202e}', '\n']),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_proxys_page_leaves_a_write_open() {
    let (store, seen) = scripted(vec![page("502 Bad Gateway", "<html>")]).await;
    let error = store.create("k", Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Server, "{error}");
    assert_eq!(error.effect, Effect::Unknown, "{error}");
    assert_eq!(seen.lock().unwrap().len(), 1, "a create was repeated");
}

/// Success with another document: the effect is unknown, and "HTTP 200" alone would explain nothing.
#[tokio::test]
async fn a_good_answer_that_can_not_be_read_is_named() {
    let (store, _) = scripted(vec![ok("", "<html>welcome</html>")]).await;
    let error = store.list("log/", None).await.unwrap_err().to_string();
    for part in [
        "list s3://batchweave/p/log/",
        "cannot read the store's answer (HTTP 200): ",
        "its body begins with \"<html>welcome</html>\"",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_listing_that_is_too_long_or_never_ends_is_left() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult>".to_vec();
    let endless = Answer::Endless(head, vec![b' '; 1 << 16]);
    let (store, seen) = scripted(vec![endless]).await;
    let error = store.list("log/", None).await.unwrap_err();
    assert!(error.to_string().contains("length limit"), "{error}");
    assert!(
        seen.lock().unwrap().len() <= 5,
        "it was asked for again and again"
    );

    let again = "<ListBucketResult><IsTruncated>true</IsTruncated>\
                 <NextContinuationToken>x</NextContinuationToken></ListBucketResult>";
    let (store, _) = scripted(vec![ok("", again)]).await;
    let page = store.list("log/", None).await.unwrap();
    let error = store.list("log/", page.next).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Contract, "{error}");
}

/// XML cannot express some keys: with one of them in a bucket, its listing would be unreadable.
#[tokio::test]
async fn listings_are_asked_for_in_an_encoding_that_can_write_every_key() {
    let keys = ["p/log/%01", "p/log/a%40b.json", "p/log/c+d", "%70/log/e"];
    let row = |key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
    let rows: String = keys.into_iter().map(row).collect();
    let body = |encoding: &str| {
        format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{encoding}{rows}</ListBucketResult>"
        )
    };
    let said = body("<EncodingType>url</EncodingType>");
    let (store, seen) = scripted(vec![ok("", &said), ok("", &body(""))]).await;
    let listed = async || {
        let page = store.list("log/", None).await.unwrap();
        page.objects
            .into_iter()
            .map(|object| object.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["log/a@b.json", "log/e"]);
    assert_eq!(
        listed().await,
        Vec::<String>::new(),
        "not said to be encoded"
    );
    let seen = seen.lock().unwrap();
    assert!(
        seen.iter().all(|head| head.contains("encoding-type=url")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn no_listing_of_unfinished_uploads_means_none() {
    let (store, _) = scripted(vec![page("404 Not Found", "404 page not found")]).await;
    assert!(store.unfinished("data/").await.unwrap().is_empty());
    let (store, _) = scripted(vec![refusal("403 Forbidden", "AccessDenied", "")]).await;
    let error = store.unfinished("data/").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.to_string().contains("p/data/?uploads"), "{error}");
    let (store, _) = scripted(vec![refusal("404 Not Found", "NoSuchBucket", "")]).await;
    assert_eq!(
        store.unfinished("data/").await.unwrap_err().kind,
        ErrorKind::NoBucket
    );
}
