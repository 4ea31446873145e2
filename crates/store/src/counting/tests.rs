//! The counts of each operation and class.

use super::*;
use crate::file::FileStore;
use crate::memory::MemoryStore;

#[tokio::test]
async fn requests_errors_and_bytes() {
    let store = Counted::new(MemoryStore::new());
    let _ = store
        .create("a", Bytes::from_static(b"12345"))
        .await
        .unwrap();
    store.get("a", u64::MAX).await.unwrap();
    store.get("b", u64::MAX).await.unwrap_err();
    let chunks = store.clone().get_range("a", 1..4).await.unwrap();
    chunks.collect::<Vec<_>>().await;
    assert!(store.get_range("a", 4..9).await.is_err());
    let mut body = store.open_range("a", 0..2, false).await.unwrap();
    let mut two = [0; 8];
    assert_eq!(
        (body.read(&mut two).await.unwrap(), &two[..2]),
        (2, &b"12"[..])
    );
    assert_eq!(body.read(&mut two).await.unwrap(), 0);
    let counts = store.counts();
    let expect = |requests, errors, bytes| OpCount {
        requests,
        errors,
        bytes,
    };
    assert_eq!(counts.of(Op::Create), expect(1, 0, 5));
    assert_eq!(counts.of(Op::Get), expect(2, 0, 5));
    assert_eq!(counts.of(Op::GetRange), expect(3, 1, 5));
    assert_eq!(
        (
            counts.requests(),
            counts.bytes_read(),
            counts.bytes_written()
        ),
        (6, 10, 5)
    );
}

#[tokio::test]
async fn a_bulk_delete_is_one_request() {
    let store = Counted::with_classes(MemoryStore::new(), &["data"]);
    let keys: Vec<_> = (0..9).map(|n| format!("data/{n}")).collect();
    for key in &keys {
        let _ = store.create(key, "1".into()).await.unwrap();
    }
    assert!(store.delete_many(&keys).await.unwrap().is_empty());
    assert_eq!(store.counts().of(Op::Delete).requests, 1);
    assert!(store.list("data/", None).await.unwrap().objects.is_empty());
}

#[tokio::test]
async fn classes_are_told_apart_and_add_up() {
    let store = Counted::with_classes(MemoryStore::new(), &["log", "stream"]);
    for (key, body) in [
        ("log/7.json", "12"),
        ("stream.json", "345"),
        ("logs/1", "6"),
    ] {
        let _ = store.create(key, body.into()).await.unwrap();
    }
    store.list("log/", None).await.unwrap();
    store.list("", None).await.unwrap();
    let before = store.counts();
    store.get("log/7.json", u64::MAX).await.unwrap();
    store.get("log/8.json", u64::MAX).await.unwrap_err();
    let seen: Vec<_> = store
        .by_class()
        .into_iter()
        .map(|(class, c)| (class, c.requests(), c.bytes_written(), c.bytes_read()))
        .collect();
    let expected = [("log", 4, 2, 2), ("stream", 1, 3, 0), (OTHER, 2, 1, 0)];
    assert_eq!(seen, expected);
    let since = store.counts().since(&before);
    assert_eq!((since.requests(), since.of(Op::Get).errors), (2, 0));
}

#[tokio::test]
async fn the_bytes_of_a_local_file_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path(), true).await.unwrap();
    let store = Counted::new(Arc::new(store));
    let _ = store
        .create("a", Bytes::from_static(b"12345"))
        .await
        .unwrap();
    let body = store.open_range("a", 1..4, false).await.unwrap();
    let file = body.file().unwrap();
    let mut all = [0; 8];
    assert_eq!(
        (file.read_at(1, &mut all).unwrap(), &all[..3]),
        (3, &b"234"[..])
    );
    assert_eq!(file.read_at(4, &mut all).unwrap(), 0);
    assert_eq!(store.counts().of(Op::GetRange).bytes, 3);
}
