//! Properties of a bucket, with the embedded server and with scripted answers.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use batchweave_dev_s3::Options;
use batchweave_store::{
    Bucket, Create, ErrorKind, LifecycleRule, PendingUpload, StoreError, Versioning,
    probe_completions,
};
use bytes::Bytes;

use super::served;
use crate::script::{ok, refusal, scripted};

#[tokio::test]
async fn the_embedded_server_answers_every_question() {
    let (server, store) = served(Options::default(), "p").await;
    let inspect = store.inspect().unwrap();
    let bucket = inspect.bucket().unwrap();
    assert_eq!(bucket.endpoint(), server.endpoint());
    inspect.may_create("log/x").await.unwrap();
    assert_eq!(bucket.versioning().await.unwrap(), Versioning::Off);
    assert_eq!(bucket.lifecycle().await.unwrap().unwrap(), []);
    assert!(bucket.refuses_wrong_checksum("probe/sum").await.unwrap());
    let time = bucket.time("probe/absent").await.unwrap();
    let apart = match SystemTime::now().duration_since(time) {
        Ok(apart) => apart,
        Err(error) => error.duration(),
    };
    assert!(apart < Duration::from_mins(1), "{apart:?}");
    assert!(store.list("", None).await.unwrap().objects.is_empty());
}

#[tokio::test]
async fn one_completion_wins_and_nothing_stays() {
    let (_server, store) = served(Options::default(), "p").await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    let seen = probe_completions(&*store, bucket, 7, 3).await.unwrap();
    assert_eq!((seen.rounds, seen.unclear_answers), (3, 0));
    assert!(store.list("", None).await.unwrap().objects.is_empty());
}

#[tokio::test]
async fn unfinished_uploads_are_tidied_away() {
    let (_server, store) = served(Options::default(), "p").await;
    let inspect = store.inspect().unwrap();
    let bucket = inspect.bucket().unwrap();
    let kept = bucket.begin_upload("probe/x/kept", "1".into()).await;
    inspect.tidy("probe/x/").await.unwrap();
    let gone = bucket.complete_upload(&kept.unwrap()).await.unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
}

/// A bucket in which every completion succeeds.
struct Careless<'a>(&'a dyn Bucket);

#[async_trait]
impl Bucket for Careless<'_> {
    fn parts_above(&self) -> u64 {
        self.0.parts_above()
    }

    fn endpoint(&self) -> &str {
        self.0.endpoint()
    }
    async fn versioning(&self) -> Result<Versioning, StoreError> {
        self.0.versioning().await
    }
    async fn lifecycle(&self) -> Result<Option<Vec<LifecycleRule>>, StoreError> {
        self.0.lifecycle().await
    }
    async fn time(&self, key: &str) -> Result<SystemTime, StoreError> {
        self.0.time(key).await
    }
    async fn refuses_wrong_checksum(&self, key: &str) -> Result<bool, StoreError> {
        self.0.refuses_wrong_checksum(key).await
    }
    async fn begin_upload(&self, key: &str, body: Bytes) -> Result<PendingUpload, StoreError> {
        self.0.begin_upload(key, body).await
    }
    async fn complete_upload(&self, upload: &PendingUpload) -> Result<Create, StoreError> {
        self.0
            .complete_upload(upload)
            .await
            .map(|_| Create::Created)
    }
    async fn abort_upload(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.0.abort_upload(upload).await
    }
}

#[tokio::test]
async fn completions_that_are_not_exclusive_are_found() {
    let (_server, store) = served(Options::default(), "p").await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    let error = probe_completions(&*store, &Careless(bucket), 7, 1)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Contract, "{error}");
    let text = error.to_string();
    assert!(text.contains("8 of 8 concurrent completions"), "{text}");
    assert!(store.list("", None).await.unwrap().objects.is_empty());
}

#[tokio::test]
async fn rules_are_read_as_s3_writes_them() {
    let xml = |what: &str| vec![ok("Content-Type: application/xml\r\n", what)];
    for (status, versioning) in [
        ("Enabled", Versioning::On),
        ("Suspended", Versioning::Suspended),
    ] {
        let body =
            format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        let (store, _) = scripted(xml(&body)).await;
        let bucket = store.inspect().unwrap().bucket().unwrap();
        assert_eq!(bucket.versioning().await.unwrap(), versioning);
    }
    let rules = "<LifecycleConfiguration>\
        <Rule><ID>old</ID><Filter><Prefix>p/log/</Prefix></Filter><Status>Enabled</Status>\
        <Expiration><Days>30</Days></Expiration></Rule>\
        <Rule><ID>elsewhere</ID><Filter><Prefix>q/</Prefix></Filter><Status>Enabled</Status>\
        <Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";
    let (store, _) = scripted(xml(rules)).await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    let found = bucket.lifecycle().await.unwrap().unwrap();
    let expected = LifecycleRule {
        id: "old".to_owned(),
        prefix: "log/".to_owned(),
        expires: true,
        ..LifecycleRule::default()
    };
    assert_eq!(found, [expected]);
}

#[tokio::test]
async fn refusals_are_told_from_absent_rules() {
    let (store, _) = scripted(vec![refusal("403 Forbidden", "AccessDenied", "")]).await;
    let inspect = store.inspect().unwrap();
    let bucket = inspect.bucket().unwrap();
    for error in [
        inspect.may_create("log/x").await.unwrap_err(),
        bucket.versioning().await.unwrap_err(),
        bucket.lifecycle().await.unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    }
    let none = refusal("404 Not Found", "NoSuchLifecycleConfiguration", "");
    let (store, _) = scripted(vec![none]).await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    assert_eq!(bucket.lifecycle().await.unwrap().unwrap(), []);
    let (store, _) = scripted(vec![refusal("404 Not Found", "NoSuchBucket", "")]).await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    assert_eq!(
        bucket.lifecycle().await.unwrap_err().kind,
        ErrorKind::NoBucket
    );
}

#[tokio::test]
async fn a_clock_that_is_off_is_seen_in_the_date() {
    let date = "Date: Sat, 21 Nov 2026 08:00:00 GMT\r\n";
    let (store, _) = scripted(vec![refusal("404 Not Found", "NoSuchKey", date)]).await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    let time = bucket.time("probe/absent").await.unwrap();
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 1_795_248_000);
    let (store, _) = scripted(vec![refusal("404 Not Found", "NoSuchKey", "")]).await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    let error = bucket.time("probe/absent").await.unwrap_err();
    assert!(error.to_string().contains("no Date"), "{error}");
}

#[tokio::test]
async fn checksums_that_are_ignored_are_seen() {
    let (store, seen) = scripted(vec![ok("", "")]).await;
    let bucket = store.inspect().unwrap().bucket().unwrap();
    assert!(!bucket.refuses_wrong_checksum("probe/sum").await.unwrap());
    let heads = seen.lock().unwrap();
    assert!(
        heads[0].contains("x-amz-checksum-crc32c: aaaaaa=="),
        "{heads:?}"
    );
}
