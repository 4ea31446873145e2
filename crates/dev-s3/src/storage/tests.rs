//! Tests of the storage: conditions, restarts, listings.

use std::path::Path;

use super::*;

fn headers(body: &[u8]) -> Headers {
    Headers {
        etag: crate::checksum::etag(body, None).unwrap(),
        size: body.len() as u64,
        ..Headers::default()
    }
}

async fn put(
    bucket: &Arc<Bucket>,
    key: &str,
    body: &'static [u8],
    condition: Condition,
) -> S3Result<Arc<Object>> {
    bucket
        .put(key, headers(body), Bytes::from_static(body), condition)
        .await
}

/// Opens a storage and creates its bucket, unless its folder has it.
fn opened(dir: Option<&Path>) -> (Storage, Arc<Bucket>) {
    let storage = Storage::open(dir.map(Path::to_path_buf)).unwrap();
    storage.create_bucket("bucket").unwrap();
    let bucket = storage.bucket("bucket").unwrap();
    (storage, bucket)
}

fn absent() -> Condition {
    Condition {
        if_none_match: Some(ETagCondition::Any),
        ..Condition::default()
    }
}

async fn content(object: &Arc<Object>) -> Vec<u8> {
    use futures::TryStreamExt;
    let chunks: Vec<Bytes> = read(object, 0..object.headers.size)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    chunks.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_racer_creates_a_key() {
    let dir = tempfile::tempdir().unwrap();
    for dir in [None, Some(dir.path())] {
        let (_storage, bucket) = opened(dir);
        for round in 0..20 {
            let racers: Vec<_> = (0..16)
                .map(|_| {
                    let bucket = Arc::clone(&bucket);
                    tokio::spawn(async move {
                        put(&bucket, &format!("k{round}"), b"x", absent())
                            .await
                            .is_ok()
                    })
                })
                .collect();
            let mut winners = 0;
            for racer in racers {
                winners += u32::from(racer.await.unwrap());
            }
            assert_eq!(winners, 1, "round {round}");
        }
    }
}

#[tokio::test]
async fn if_match_compares_the_etag() {
    let (_storage, bucket) = opened(None);
    let first = put(&bucket, "k", b"one", Condition::default())
        .await
        .unwrap();
    let matching = Condition {
        if_match: Some(ETagCondition::ETag(first.headers.etag())),
        ..Condition::default()
    };
    put(&bucket, "k", b"two", matching.clone()).await.unwrap();
    let stale = put(&bucket, "k", b"three", matching.clone())
        .await
        .unwrap_err();
    assert_eq!(stale.code(), &s3s::S3ErrorCode::PreconditionFailed);
    let missing = put(&bucket, "other", b"x", matching).await.unwrap_err();
    assert_eq!(missing.code(), &s3s::S3ErrorCode::NoSuchKey);
    assert_eq!(content(&bucket.get("k").unwrap()).await, b"two");
}

#[tokio::test]
async fn files_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (_storage, bucket) = opened(Some(dir.path()));
        put(&bucket, "a/b", b"old", Condition::default())
            .await
            .unwrap();
        put(&bucket, "a/b", b"new", Condition::default())
            .await
            .unwrap();
        put(&bucket, "gone", b"x", Condition::default())
            .await
            .unwrap();
        bucket.delete("gone").unwrap();
        let second = Storage::open(Some(dir.path().to_owned())).unwrap_err();
        assert!(
            second.to_string().contains("another dev-s3 server"),
            "{second}"
        );
    }
    std::fs::write(dir.path().join("bucket/00000000000000ff.tmp"), b"half").unwrap();
    let (_storage, bucket) = opened(Some(dir.path()));
    assert_eq!(content(&bucket.get("a/b").unwrap()).await, b"new");
    assert!(bucket.get("gone").is_err());
    assert_eq!(
        std::fs::read_dir(dir.path().join("bucket"))
            .unwrap()
            .count(),
        1
    );
    assert!(put(&bucket, "a/b", b"again", absent()).await.is_err());
}

/// Writes the file of `key`, which does not appear yet.
fn draft(bucket: &Bucket, key: &str, body: &[u8]) -> disk::Draft {
    let folder = bucket.folder.as_ref().unwrap();
    folder.write_draft(key, &headers(body), body).unwrap()
}

#[tokio::test]
async fn of_two_files_of_a_key_the_one_that_appeared_last_counts() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (_storage, bucket) = opened(Some(dir.path()));
        // The first to be written appears last, and the server is killed before it removes the other.
        let (first, second) = (draft(&bucket, "k", b"one"), draft(&bucket, "k", b"two"));
        let folder = bucket.folder.as_ref().unwrap();
        folder.publish(second, headers(b"two")).unwrap();
        folder.publish(first, headers(b"one")).unwrap();
    }
    let (_storage, bucket) = opened(Some(dir.path()));
    assert_eq!(content(&bucket.get("k").unwrap()).await, b"one");
}

#[tokio::test]
async fn an_object_whose_file_stays_is_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (_storage, bucket) = opened(Some(dir.path()));
    let object = put(&bucket, "k", b"x", absent()).await.unwrap();
    let files = std::fs::read_dir(dir.path().join("bucket")).unwrap();
    let path = files.last().unwrap().unwrap().path();
    // A folder in its place can't be unlinked, by root neither.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let why = bucket.delete("k").unwrap_err();
    assert_eq!(why.message(), Some("cannot remove the file of k"));
    assert!(Arc::ptr_eq(&object, &bucket.get("k").unwrap()));
    std::fs::remove_dir(&path).unwrap();
    bucket.delete("k").unwrap();
    assert!(bucket.get("k").is_err());
}

#[tokio::test]
async fn a_write_to_a_deleted_bucket_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for dir in [None, Some(dir.path())] {
        let (storage, bucket) = opened(dir);
        storage.delete_bucket("bucket").unwrap();
        put(&bucket, "k", b"x", absent()).await.unwrap_err();
        assert!(bucket.get("k").is_err());
    }
}

#[tokio::test]
async fn a_damaged_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("bucket")).unwrap();
    std::fs::write(
        dir.path().join("bucket/0000000000000000.obj"),
        b"not one of ours",
    )
    .unwrap();
    let error = Storage::open(Some(dir.path().to_owned()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("0000000000000000.obj") && error.contains("wrong first bytes"),
        "{error}"
    );
}

fn names(
    objects: &BTreeMap<String, Arc<Object>>,
    delimiter: &str,
    limit: usize,
    order: Order,
) -> Vec<Vec<String>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let query = Query {
            prefix: "p/",
            delimiter,
            after: after.as_deref(),
            limit,
        };
        let page = list::page(objects, &query, order);
        let mut names = page.prefixes;
        names.extend(page.objects.into_iter().map(|(key, _)| key));
        pages.push(names);
        let Some(next) = page.next else { return pages };
        after = Some(next);
    }
}

#[test]
fn pages_cover_every_entry_once() {
    let keys = ["p/a", "p/b/1", "p/b/2", "p/c", "p/d/1/x", "p/e", "q", "a"];
    let object = Arc::new(Object::in_memory(Headers::default(), Bytes::new()));
    let objects: BTreeMap<_, _> = keys
        .iter()
        .map(|key| ((*key).to_owned(), Arc::clone(&object)))
        .collect();
    for (delimiter, wanted) in [
        ("", vec!["p/a", "p/b/1", "p/b/2", "p/c", "p/d/1/x", "p/e"]),
        ("/", vec!["p/a", "p/b/", "p/c", "p/d/", "p/e"]),
    ] {
        for limit in 1..7 {
            for order in [Order::Sorted, Order::Shuffled(1), Order::Shuffled(2)] {
                let pages = names(&objects, delimiter, limit, order);
                assert!(pages.iter().all(|page| page.len() <= limit), "{pages:?}");
                assert!(
                    pages.iter().rev().skip(1).all(|page| page.len() == limit),
                    "{pages:?}"
                );
                let mut all = pages.concat();
                all.sort();
                assert_eq!(
                    all, wanted,
                    "delimiter `{delimiter}`, limit {limit}, {order:?}"
                );
            }
        }
    }
}

#[test]
fn a_shuffled_listing_is_not_sorted() {
    let object = Arc::new(Object::in_memory(Headers::default(), Bytes::new()));
    let objects: BTreeMap<_, _> = (0..100)
        .map(|n| (format!("p/{n:03}"), Arc::clone(&object)))
        .collect();
    let listed = names(&objects, "", 100, Order::Shuffled(7)).concat();
    assert!(!listed.is_sorted());
    assert_eq!(listed, names(&objects, "", 9, Order::Shuffled(7)).concat());
}
