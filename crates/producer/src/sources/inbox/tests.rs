//! Polls inboxes in local folders and in a store that counts requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use batchweave_core::inbox::file_name;
use batchweave_core::inputs::PinnedFile;
use batchweave_store::layer::Intercept;
use batchweave_store::memory::MemoryStore;
use batchweave_store::{ListPage, ObjectMeta, Store, StoreError};
use futures::FutureExt;

use super::owner::foreign;
use super::*;
use crate::sources::Location;

fn open() -> Box<OpenStore> {
    Box::new(|_| async { panic!("a local folder needs no store") }.boxed())
}

async fn inboxes(path: &Path, share: Portion) -> Inboxes {
    let paths = [path.display().to_string()];
    Inboxes::open(&paths, share, &open(), &InputList::default())
        .await
        .unwrap()
}

fn put(folder: &Path, name: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, name).unwrap();
}

fn numbered_file(writer: &str, number: u64) -> String {
    format!("{writer}/{}", file_name(number))
}

/// Looks once, and lets what is found join; returns the files below the inbox.
async fn poll_files(inboxes: &mut Inboxes, path: &Path) -> Vec<String> {
    let files = inboxes.poll().await.unwrap();
    inboxes.report();
    inboxes.joined(&files);
    let root = format!("{}/", path.display());
    let names = files.iter().map(|file| file.pin.name.strip_prefix(&root));
    names.map(|name| name.unwrap().to_owned()).collect()
}

#[tokio::test]
async fn each_poll_finds_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inbox");
    let mut own = inboxes(&path, Portion::ALL).await;
    assert!(
        poll_files(&mut own, &path).await.is_empty(),
        "no folder yet"
    );
    for name in [
        numbered_file("b", 0),
        numbered_file("a", 0),
        numbered_file("a", 1),
        "a/note.txt".into(),
        "top.txt".into(),
    ] {
        put(&path, &name);
    }
    put(&path, "_temporary/x.parquet");
    assert_eq!(
        poll_files(&mut own, &path).await,
        [
            numbered_file("a", 0),
            numbered_file("a", 1),
            numbered_file("b", 0)
        ]
    );
    assert!(poll_files(&mut own, &path).await.is_empty());
    put(&path, &numbered_file("a", 2));
    std::fs::remove_file(path.join(numbered_file("a", 0))).unwrap();
    std::fs::remove_file(path.join(numbered_file("a", 1))).unwrap();
    assert_eq!(poll_files(&mut own, &path).await, [numbered_file("a", 2)]);
    // A restart knows from its list what was read.
    let files = inboxes(&path, Portion::ALL).await.poll().await.unwrap();
    let list = InputList::of(files);
    put(&path, &numbered_file("b", 1));
    let paths = [path.display().to_string()];
    let mut again = Inboxes::open(&paths, Portion::ALL, &open(), &list)
        .await
        .unwrap();
    assert_eq!(poll_files(&mut again, &path).await, [numbered_file("b", 1)]);
}

#[tokio::test]
async fn the_folder_of_a_writer_is_no_inbox() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &numbered_file("a", 0));
    let mut own = inboxes(&folder.path().join("a"), Portion::ALL).await;
    let why = own.poll().await.unwrap_err().to_string();
    let expected = "a: it is the folder of a writer: set source.paths to the folder above it";
    assert!(why.contains(expected), "{why}");
    let store: Arc<dyn Store> = MemoryStore::new();
    let _ = store.create(&file_name(0), "x".into()).await.unwrap();
    let open: Box<OpenStore> = Box::new(move |_| {
        let store = store.clone();
        async move { Ok(store) }.boxed()
    });
    let paths = ["s3://bucket/inbox/a".to_owned()];
    let list = InputList::default();
    let mut remote = Inboxes::open(&paths, Portion::ALL, &open, &list)
        .await
        .unwrap();
    let why = remote.poll().await.unwrap_err().to_string();
    assert!(why.contains("it is the folder of a writer"), "{why}");
}

#[tokio::test]
async fn writers_have_ended_when_a_second_poll_finds_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut own = inboxes(path, Portion::ALL).await;
    let both = ["a".to_owned(), "b".to_owned()];
    put(path, &numbered_file("a", 0));
    put(path, "a/end");
    put(path, "b/end");
    poll_files(&mut own, path).await;
    assert!(!own.ended(&both));
    // Stored before `end`, first listed after it.
    put(path, &numbered_file("a", 1));
    assert_eq!(poll_files(&mut own, path).await, [numbered_file("a", 1)]);
    assert!(!own.ended(&both) && own.ended(&both[1..]));
    poll_files(&mut own, path).await;
    assert!(own.ended(&both) && !own.ended(&[]));
    assert!(!own.ended(&["c".to_owned()]));
}

#[tokio::test]
async fn producers_divide_the_writers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let names: Vec<String> = (0..20).map(|n| format!("w{n}")).collect();
    for name in &names {
        put(path, &numbered_file(name, 0));
        put(path, &numbered_file(name, 1));
    }
    let mut all = Vec::new();
    for index in 0..3 {
        let share = Portion { index, of: 3 };
        let own = poll_files(&mut inboxes(path, share).await, path).await;
        let mut writers: Vec<String> = own
            .iter()
            .map(|f| f.split_once('/').unwrap().0.to_owned())
            .collect();
        assert_eq!(own.len() % 2, 0);
        writers.dedup();
        assert_eq!(
            writers.len() * 2,
            own.len(),
            "a writer's files stay together"
        );
        assert!(!own.is_empty());
        all.extend(writers);
    }
    all.sort();
    let mut names = names;
    names.sort();
    assert_eq!(all, names);
}

#[tokio::test]
async fn a_job_counts_with_its_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut own = inboxes(path, Portion::ALL).await;
    for name in [
        "part-000000-a.parquet",
        "part-000000-b.parquet",
        "part-000001-a.parquet",
    ] {
        put(path, &format!("job/{name}"));
    }
    assert!(poll_files(&mut own, path).await.is_empty());
    let commit = serde_json::json!({"format": 1, "files": [
        {"name": "part-000001-a.parquet", "rows": 1}, {"name": "part-000000-b.parquet", "rows": 1}]});
    std::fs::write(path.join("job/commit.json"), commit.to_string()).unwrap();
    let files = ["job/part-000001-a.parquet", "job/part-000000-b.parquet"];
    assert_eq!(poll_files(&mut own, path).await, files);
    assert!(poll_files(&mut own, path).await.is_empty());
    assert!(own.ended(&["job".to_owned()]));
    let commit = serde_json::json!({"format": 1, "files": [{"name": "gone.parquet", "rows": 1}]});
    put(path, "bad/x");
    std::fs::write(path.join("bad/commit.json"), commit.to_string()).unwrap();
    let why = refused(&mut own).await;
    assert!(why.contains("bad/gone.parquet, which is missing"), "{why}");
}

#[tokio::test]
async fn an_inbox_that_was_set_back_is_refused_with_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut own = inboxes(path, Portion::ALL).await;
    put(path, &numbered_file("a", 0));
    put(path, &numbered_file("a", 1));
    poll_files(&mut own, path).await;
    std::fs::remove_file(path.join(numbered_file("a", 1))).unwrap();
    let why = refused(&mut own).await;
    assert!(
        why.starts_with(&format!(
            "{}/a/: file 1, which was read, is gone",
            path.display()
        )),
        "{why}"
    );
    std::fs::remove_dir_all(path.join("a")).unwrap();
    let why = refused(&mut own).await;
    assert!(why.contains("its files are gone"), "{why}");
}

/// Looks once, and returns why no folder can be read.
async fn refused(inboxes: &mut Inboxes) -> String {
    assert!(inboxes.poll().await.unwrap().is_empty());
    inboxes.check().unwrap_err().to_string()
}

#[tokio::test]
async fn a_bad_folder_is_named_and_the_others_are_read() {
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), "secret");
    put(outside.path(), &numbered_file("far", 0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    put(path, &numbered_file("good", 0));
    for writer in [
        "c-pipe", "c-link", "c-huge", "c-folder", "f-pipe", "f-link", "gap",
    ] {
        std::fs::create_dir(path.join(writer)).unwrap();
    }
    let link = std::os::unix::fs::symlink::<PathBuf, PathBuf>;
    let pipe = |name: String| {
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join(name), 0o600.into()).unwrap();
    };
    pipe("c-pipe/commit.json".to_owned());
    link("/dev/zero".into(), path.join("c-link/commit.json")).unwrap();
    let huge = std::fs::File::create(path.join("c-huge/commit.json")).unwrap();
    huge.set_len(6 << 30).unwrap();
    std::fs::create_dir(path.join("c-folder/commit.json")).unwrap();
    pipe(numbered_file("f-pipe", 0));
    link(
        outside.path().join("secret"),
        path.join(numbered_file("f-link", 0)),
    )
    .unwrap();
    link(outside.path().join("far"), path.join("far")).unwrap();
    put(path, &numbered_file("gap", 0));
    put(path, &numbered_file("gap", 2));
    let mut own = inboxes(path, Portion::ALL).await;
    assert_eq!(poll_files(&mut own, path).await, [numbered_file("good", 0)]);
    assert_eq!(own.report(), 8);
    put(path, &numbered_file("good", 1));
    put(path, &numbered_file("gap", 1));
    std::fs::remove_file(path.join("far")).unwrap();
    let mended = [
        numbered_file("gap", 0),
        numbered_file("gap", 1),
        numbered_file("gap", 2),
        numbered_file("good", 1),
    ];
    assert_eq!(poll_files(&mut own, path).await, mended);
    assert_eq!(own.report(), 6);
    own.check().unwrap();
}

#[tokio::test]
async fn a_folder_that_was_set_back_stays_out_while_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut own = inboxes(path, Portion::ALL).await;
    for writer in ["a", "b"] {
        put(path, &numbered_file(writer, 0));
    }
    poll_files(&mut own, path).await;
    std::fs::remove_file(path.join(numbered_file("a", 0))).unwrap();
    assert!(poll_files(&mut own, path).await.is_empty());
    // A replacement of equal size and number: its rows were never read, and it looks as if they were.
    put(path, &numbered_file("a", 0));
    put(path, &numbered_file("a", 1));
    put(path, &numbered_file("b", 1));
    assert_eq!(poll_files(&mut own, path).await, [numbered_file("b", 1)]);
    assert_eq!(own.report(), 1);
}

#[tokio::test]
async fn the_last_number_that_there_is_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    put(path, &numbered_file("a", u64::MAX));
    let mut own = inboxes(path, Portion::ALL).await;
    assert_eq!(
        poll_files(&mut own, path).await,
        [numbered_file("a", u64::MAX)]
    );
    assert!(poll_files(&mut own, path).await.is_empty());
}

#[test]
fn a_file_of_another_place_is_refused() {
    let name = format!("s3://b/inbox/{}", numbered_file("w0", 7));
    assert_eq!(foreign(&name, Some("w0"), Some("7")), None);
    assert_eq!(foreign(&name, None, None), None);
    let why = foreign(&name, Some("w1"), Some("7")).unwrap();
    assert_eq!(
        why,
        "it is a file of writer \"w1\", and lies in the folder of \"w0\""
    );
    let why = foreign(&name, Some("w0"), Some("6")).unwrap();
    assert_eq!(why, "it is file 6 of its writer, under the name of file 7");
    assert_eq!(
        foreign("inbox/job/part-0-a.parquet", Some("job"), None),
        None
    );
}

/// A store with an inbox of one writer with this number of files, which lists 1,000 at a time.
#[derive(Debug)]
struct LongInbox {
    inner: Arc<MemoryStore>,
    files: u64,
    requests: AtomicU64,
}

#[async_trait]
impl Intercept for LongInbox {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn folders(&self, _prefix: &str) -> Result<Vec<String>, StoreError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(vec!["w0".to_owned()])
    }

    async fn list_after(&self, _prefix: &str, after: &str) -> Result<ListPage, StoreError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let after = after
            .strip_prefix("w0/")
            .and_then(|name| match Object::named(name) {
                Object::File(number) => Some(number + 1),
                _ => None,
            });
        let first = after.unwrap_or(0);
        let numbers = first..self.files.min(first + 1000);
        let more = numbers.end < self.files;
        let object = |n| ObjectMeta {
            etag: Some("x".to_owned()),
            ..ObjectMeta::new(numbered_file("w0", n), 7)
        };
        let objects: Vec<ObjectMeta> = numbers.map(object).collect();
        let next = objects.last().filter(|_| more).map(|last| last.key.clone());
        Ok(ListPage { objects, next })
    }
}

#[tokio::test]
async fn polling_costs_the_same_requests_for_any_number_of_files() {
    let requests = async |files: u64| {
        let store = Arc::new(LongInbox {
            inner: MemoryStore::new(),
            files,
            requests: AtomicU64::new(0),
        });
        let opened: Arc<dyn Store> = store.clone();
        let open: Box<OpenStore> = Box::new(move |_| {
            let opened = opened.clone();
            async move { Ok(opened) }.boxed()
        });
        let mut pin = PinnedFile::new(
            format!("s3://b/inbox/{}", numbered_file("w0", files - 3)),
            7,
            b"",
            b"",
        );
        pin.fingerprint = "etag x".to_owned();
        let location = Location::Local(pin.name.clone().into());
        let list = InputList {
            files: vec![InputFile { pin, location }],
            ..InputList::default()
        };
        let paths = ["s3://b/inbox/".to_owned()];
        let mut own = Inboxes::open(&paths, Portion::ALL, &open, &list)
            .await
            .unwrap();
        assert_eq!(own.poll().await.unwrap().len(), 2);
        store.requests.load(Ordering::Relaxed)
    };
    assert_eq!((requests(100).await, requests(1_000_000).await), (2, 2));
}
