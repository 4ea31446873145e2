//! A file store on a device that is really full: a refused put leaves nothing behind, and succeeds once
//! there is space.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use batchweave_store::file::FileStore;
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError};
use batchweave_tests::tiny_disk;
use bytes::Bytes;

use crate::scene::{MINUTE, Scene};

const STORE_UNAVAILABLE: Option<i32> = Some(69);

/// Fills all but about `free` bytes of a device.
fn fill(device: &Path, free: u64) -> PathBuf {
    let path = device.join("filler");
    let mut file = fs::File::create(&path).unwrap();
    let full = loop {
        if let Err(e) = file.write_all(&[7; 4096]) {
            break e;
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{full}");
    let size = file.metadata().unwrap().len();
    file.set_len(size.saturating_sub(free)).unwrap();
    path
}

/// Uses up all inodes of a device, except `free` of them.
fn fill_names(device: &Path, free: usize) -> PathBuf {
    let folder = device.join("names");
    fs::create_dir(&folder).unwrap();
    let names = (0..).map(|n| folder.join(n.to_string()));
    let made: Vec<_> = names.take_while(|p| fs::File::create(p).is_ok()).collect();
    for path in made.iter().rev().take(free) {
        fs::remove_file(path).unwrap();
    }
    folder
}

async fn put(store: &FileStore, op: Op, key: &str, body: &Bytes) -> Result<Create, StoreError> {
    match op {
        Op::Create => store.create(key, body.clone()).await,
        _ => store.upload(key, body.clone()).await,
    }
}

/// Counts the files below a folder, hidden ones included.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Checks that a put is refused for lack of space and leaves nothing, and succeeds once space is
/// freed.
async fn refused_then_done(root: &Path, op: Op, key: &str, room: impl FnOnce()) {
    let store = FileStore::open(root, false).await.unwrap();
    let body = Bytes::from(vec![9; 64 << 10]);
    let before = files(root);
    let why = put(&store, op, key, &body).await.unwrap_err();
    assert_eq!((why.op, why.kind), (op, ErrorKind::Full), "{why}");
    assert_eq!(why.effect, Effect::DidNot, "{why}");
    let text = why.to_string();
    for part in [key, "No space left on device", "free space on the device"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(store.get(key, u64::MAX).await.unwrap_err().is_not_found());
    assert!(store.head(key).await.unwrap_err().is_not_found());
    let listed = store.list("", None).await.unwrap();
    assert!(listed.objects.iter().all(|o| o.key != key), "{listed:?}");
    assert_eq!(files(root), before, "a draft stayed");
    room();
    let again = put(&store, op, key, &body).await.unwrap();
    assert_eq!(again, Create::Created);
    assert_eq!(store.get(key, u64::MAX).await.unwrap(), body);
}

#[test]
fn a_put_on_a_full_device_is_refused_and_leaves_nothing() {
    let name = "full_disk::a_put_on_a_full_device_is_refused_and_leaves_nothing";
    let Some(device) = tiny_disk::within(name, "size=1m,nr_inodes=128") else {
        return;
    };
    let root = device.join("root");
    fs::create_dir(&root).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for op in [Op::Create, Op::Upload] {
        // No space at all; space for the beginning of the object; folders that exist already.
        for (round, free) in [0, 32 << 10, 0].into_iter().enumerate() {
            let filler = fill(&device, free);
            let key = format!("data/{}/{round}.bin", op.name());
            let room = || fs::remove_file(filler).unwrap();
            runtime.block_on(refused_then_done(&root, op, &key, room));
        }
        // Space for bytes, but no inodes: neither for the temporary file nor for the folder of the
        // key.
        for free in [0, 1] {
            let names = fill_names(&device, free);
            let key = format!("{}-{free}/names.bin", op.name());
            let room = || fs::remove_dir_all(names).unwrap();
            runtime.block_on(refused_then_done(&root, op, &key, room));
        }
    }
}

#[test]
fn a_producer_on_a_full_device_stops_with_one_error_and_goes_on_when_there_is_room() {
    let name = "full_disk::a_producer_on_a_full_device_stops_with_one_error_and_goes_on_when_there_is_room";
    let Some(device) = tiny_disk::within(name, "size=96m") else {
        return;
    };
    let scene = Scene::with_streams_in(&device);
    let calm = scene.producer("calm", "only").wait(MINUTE);
    assert_eq!(calm, Some(0), "{}", scene.log_text("calm-only.log"));
    let filler = fill(&device, 1 << 20);
    let refused = scene.producer("full", "first").wait(MINUTE);
    let log_text = scene.log_text("full-first.log");
    assert_eq!(refused, STORE_UNAVAILABLE, "{log_text}");
    let errors: Vec<_> = log_text
        .lines()
        .filter(|l| l.contains("No space left"))
        .collect();
    assert_eq!(errors.len(), 1, "{log_text}");
    assert!(errors[0].contains("free space on the device"), "{log_text}");
    assert!(scene.records("full") > 1, "it had begun");
    let drafts = fs::read_dir(scene.stream("full").join(".batchweave-tmp"));
    assert_eq!(drafts.unwrap().count(), 0);
    fs::remove_file(filler).unwrap();
    let again = scene.producer("full", "second").wait(MINUTE);
    assert_eq!(again, Some(0), "{}", scene.log_text("full-second.log"));
    assert_eq!(scene.digests("full"), scene.digests("calm"));
}
