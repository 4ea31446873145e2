//! Tests specific to the file store: roots, leftovers, error kinds.

use super::*;

async fn store(dir: &Path) -> FileStore {
    FileStore::open(dir, false).await.unwrap()
}

#[tokio::test]
async fn a_missing_root_is_made_only_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b");
    let error = FileStore::open(&root, false).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoBucket, "{error}");
    assert!(error.to_string().contains("create the folder"), "{error}");
    let made = FileStore::open(&root, true).await.unwrap();
    assert_eq!(
        made.create("k", Bytes::from_static(b"v")).await.unwrap(),
        Create::Created
    );
}

#[tokio::test]
async fn a_root_that_may_come_later_is_read_when_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b");
    let store = FileStore::open_later(&root).await.unwrap();
    let why = store.get("k", u64::MAX).await.unwrap_err();
    assert_eq!(why.kind, ErrorKind::NoBucket, "{why}");
    let made = FileStore::open(&root, true).await.unwrap();
    let _ = made.create("k", Bytes::from_static(b"v")).await.unwrap();
    let read = store.get("k", u64::MAX).await.unwrap();
    assert_eq!(&read[..], b"v");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(FileStore::open_later(file.path()).await.is_err());
}

#[tokio::test]
async fn a_root_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = FileStore::open(file.path(), true).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.to_string().contains("is not a folder"), "{error}");
}

#[tokio::test]
async fn a_root_that_vanished_is_no_missing_object() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    drop(dir);
    for error in [
        store.get("k", u64::MAX).await.unwrap_err(),
        store.create("k", Bytes::new()).await.unwrap_err(),
        store.list("", None).await.unwrap_err(),
        store.delete("k").await.unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::NoBucket, "{error}");
        assert_eq!(error.effect, Effect::DidNot, "{error}");
    }
}

#[tokio::test]
async fn nothing_is_left_in_the_hidden_folder_and_stale_drafts_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let hidden = dir.path().join(HIDDEN);
    let first = store(dir.path()).await;
    for _ in 0..2 {
        let _ = first.create("k", Bytes::from_static(b"v")).await.unwrap();
    }
    assert_eq!(fs::read_dir(&hidden).unwrap().count(), 0);
    let (old, young) = (
        hidden.join("1-00000000000000aa"),
        hidden.join("1-00000000000000bb"),
    );
    let foreign = hidden.join("notes.txt");
    File::create(&young).unwrap();
    for path in [&old, &foreign] {
        File::create(path)
            .unwrap()
            .set_modified(two_days_ago())
            .unwrap();
    }
    let again = store(dir.path()).await;
    assert_eq!(again.get("k", 9).await.unwrap(), "v");
    assert_eq!(again.unfinished("").await.unwrap().len(), 1);
    assert!(old.exists(), "who reads deletes nothing");
    let _ = again.create("k", Bytes::new()).await.unwrap();
    assert!(!old.exists() && young.exists() && foreign.exists());
    let listed = again.list("", None).await.unwrap();
    assert_eq!(
        listed.objects.len(),
        1,
        "hidden files are listed: {listed:?}"
    );
    let error = again
        .get(".batchweave-tmp/1-00000000000000bb", u64::MAX)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
}

fn two_days_ago() -> std::time::SystemTime {
    std::time::SystemTime::now() - std::time::Duration::from_hours(48)
}

/// Links, pipes and devices in a shared folder lead nowhere and block nobody.
#[tokio::test]
async fn links_and_pipes_are_no_objects() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "TOP-SECRET").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let _ = store
        .create("log/0", Bytes::from_static(b"v"))
        .await
        .unwrap();
    let link = std::os::unix::fs::symlink::<&std::path::Path, std::path::PathBuf>;
    link(&secret, dir.path().join("log/1")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.path().join("log/2"))
        .status();
    assert!(made.unwrap().success());
    link(outside.path(), dir.path().join("away")).unwrap();
    for key in ["log/1", "log/2", "away/secret"] {
        for error in [
            store.get(key, 1 << 20).await.unwrap_err(),
            store.head(key).await.unwrap_err(),
            store.get_range(key, 0..1).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::Invalid, "{key}: {error}");
            assert!(error.to_string().contains("remove it"), "{error}");
        }
    }
    for prefix in ["away/", "away/s"] {
        let error = store.list(prefix, None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{prefix}: {error}");
    }
    assert_eq!(store.list("", None).await.unwrap().objects.len(), 1);
    assert!(store.delete("away/secret").await.is_err());
    store.delete("log/1").await.unwrap();
    assert!(secret.exists() && !dir.path().join("log/1").exists());
}

#[tokio::test]
async fn the_hidden_folder_is_never_another_ones() {
    let outside = tempfile::tempdir().unwrap();
    let theirs = outside.path().join("1-00000000000000aa");
    File::create(&theirs)
        .unwrap()
        .set_modified(two_days_ago())
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join(HIDDEN)).unwrap();
    let store = store(dir.path()).await;
    assert!(store.unfinished("").await.unwrap().is_empty());
    let error = store.create("k", Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("is not a folder"), "{error}");
    for id in ["notes.txt", "1-00000000000000aa"] {
        let upload = PendingUpload {
            id: id.into(),
            ..PendingUpload::default()
        };
        assert!(store.abort(&upload).await.is_err(), "{id}");
    }
    assert!(theirs.exists());
}

#[test]
fn system_errors_have_kinds() {
    use rustix::io::Errno;
    let cases = [
        (Errno::NOSPC, ErrorKind::Full),
        (Errno::DQUOT, ErrorKind::Full),
        (Errno::ACCESS, ErrorKind::Denied),
        (Errno::PERM, ErrorKind::Denied),
        (Errno::ROFS, ErrorKind::Denied),
        (Errno::NOENT, ErrorKind::NotFound),
        (Errno::NOTDIR, ErrorKind::NotFound),
        (Errno::NAMETOOLONG, ErrorKind::Invalid),
        (Errno::STALE, ErrorKind::Timeout),
        (Errno::IO, ErrorKind::Other),
    ];
    for (errno, kind) in cases {
        assert_eq!(
            kind_of(&io::Error::from_raw_os_error(errno.raw_os_error())),
            kind,
            "{errno:?}"
        );
    }
}

#[tokio::test]
async fn a_file_in_the_way_of_a_folder_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    assert_eq!(
        store.create("a", Bytes::new()).await.unwrap(),
        Create::Created
    );
    let error = store.create("a/b", Bytes::new()).await.unwrap_err();
    assert_eq!(error.effect, Effect::DidNot, "{error}");
    assert!(store.get("a/b", u64::MAX).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn it_knows_where_files_may_be_made_and_tidies_folders() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), false).await.unwrap();
    let inspect = store.inspect().unwrap();
    inspect.may_create("log/1").await.unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let _ = store.create("a/b/c", "1".into()).await.unwrap();
    inspect.tidy("a/b/").await.unwrap();
    assert!(dir.path().join("a/b/c").exists());
    store.delete("a/b/c").await.unwrap();
    inspect.tidy("a/b/").await.unwrap();
    assert!(!dir.path().join("a").exists() && dir.path().exists());
}

#[tokio::test]
async fn a_deletion_leaves_no_empty_folders() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    for key in ["a/b/c/x", "a/b/y"] {
        let _ = store.create(key, Bytes::new()).await.unwrap();
    }
    store.delete("a/b/c/x").await.unwrap();
    assert!(!dir.path().join("a/b/c").exists());
    assert!(dir.path().join("a/b/y").exists());
    store.delete("a/b/y").await.unwrap();
    store.delete("a/b/y").await.unwrap();
    assert!(!dir.path().join("a").exists());
    assert!(dir.path().exists(), "the root stays");
}

#[tokio::test]
async fn objects_have_the_time_of_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let _ = store.create("a/x", Bytes::from_static(b"v")).await.unwrap();
    let written = std::fs::metadata(dir.path().join("a/x")).unwrap();
    let modified = Some(written.modified().unwrap());
    assert_eq!(store.head("a/x").await.unwrap().modified, modified);
    let page = store.list("a/", None).await.unwrap();
    assert_eq!(page.objects[0].modified, modified);
}

/// Creations succeed although concurrent deletions remove their folders.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deletions_and_creations_in_one_folder_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..100 {
                    let key = format!("a/b/{task}-{round}");
                    let made = store.create(&key, Bytes::from_static(b"v")).await;
                    assert_eq!(made.unwrap(), Create::Created);
                    assert_eq!(store.get(&key, u64::MAX).await.unwrap(), "v");
                    store.delete(&key).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(!dir.path().join("a").exists());
}

#[tokio::test]
async fn a_file_that_gets_shorter_is_an_error_and_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let _ = store
        .create("k", Bytes::from_static(b"12345"))
        .await
        .unwrap();
    let mut body = store.open_range("k", 1..5, false).await.unwrap();
    let file = body.file().unwrap();
    fs::File::options()
        .write(true)
        .open(dir.path().join("k"))
        .unwrap()
        .set_len(3)
        .unwrap();
    let mut all = [0; 8];
    assert_eq!(file.read_at(1, &mut all).unwrap(), 2);
    assert_eq!(body.read(&mut all).await.unwrap(), 2);
    let why = file.read_at(3, &mut all).unwrap_err();
    assert_eq!((why.op, why.effect), (Op::GetRange, Effect::DidNot));
    assert!(why.to_string().contains("/k"), "{why}");
    body.read(&mut all).await.unwrap_err();
}
