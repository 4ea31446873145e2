//! `describe`: the stream's tokenizer for clients that ask, with the stored file in sealed memory.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use batchweave_arena::Interest;
use batchweave_core::keys;
use batchweave_store::counting::Counted;
use batchweave_store::memory::MemoryStore;
use batchweave_store::{Create, Op, Store};
use batchweave_wire::{ClientMessage, DaemonMessage, ErrorName, MESSAGE_BYTES_MAX, StreamInfo};
use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::rude::Rude;
use crate::serving::TIMEOUT;
use crate::support::{Daemon, Stream, TOKENIZER, consumer};

/// Asks on a connection of its own, which the daemon ends.
fn describe(path: &Path) -> (StreamInfo, Option<OwnedFd>) {
    let client = Rude::connect(path);
    client.say(&ClientMessage::Describe);
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        assert!(client.socket.wait(Interest::Readable, TIMEOUT).unwrap());
        let packet = client.socket.recv(&mut buffer).unwrap().unwrap();
        match DaemonMessage::decode(&buffer[..packet.bytes]).unwrap() {
            DaemonMessage::StreamInfo(info) => return (info, packet.fd),
            DaemonMessage::Waiting(_) => assert!(packet.fd.is_none()),
            other => panic!("{other:?}"),
        }
    }
}

/// A daemon on a stream in memory, and the counts of its requests.
async fn serving(dir: &Path, file: Option<&'static [u8]>) -> (Daemon, Counted, Stream) {
    let mut stream = Stream::new(2).await;
    stream.commit(2, 1).await;
    if let Some(file) = file {
        store_file(&stream.store, &stream, file).await;
    }
    let counted = Counted::with_classes(stream.store.clone(), &keys::CLASSES);
    let daemon = Daemon::start(Arc::new(counted.clone()), consumer(dir));
    (daemon, counted, stream)
}

async fn store_file(store: &MemoryStore, stream: &Stream, file: &'static [u8]) {
    let key = keys::tokenizer(&stream.config.tokenizer.fingerprint);
    let created = store.create(&key, Bytes::from_static(file)).await;
    assert_eq!(created.unwrap(), Create::Created);
}

fn reads(counted: &Counted) -> u64 {
    let classes = counted.by_class();
    let all = classes.iter().filter(|(class, _)| *class == "tokenizers");
    all.map(|(_, counts)| counts.of(Op::Get).requests).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stored_file_is_handed_over_sealed_and_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, counted, stream) = serving(dir.path(), Some(TOKENIZER)).await;
    let path = daemon.socket.clone();
    for _ in 0..3 {
        let path = path.clone();
        let (info, fd) = spawn_blocking(move || describe(&path)).await.unwrap();
        assert_eq!(info.stream, stream.config.stream_id.to_string());
        assert_eq!((info.slices, info.tokenizer.vocabulary), (2, Some(8)));
        assert_eq!(info.tokenizer.file_bytes, Some(TOKENIZER.len() as u64));
        assert_eq!(info.tokenizer.missing, None);
        let mut file = std::fs::File::from(fd.unwrap());
        // All descriptors share one position.
        let mut found = vec![0; TOKENIZER.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, TOKENIZER);
        assert!(std::io::Write::write(&mut file, b"x").is_err());
        assert!(file.set_len(0).is_err(), "sealed");
    }
    assert_eq!(reads(&counted), 1);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_or_damaged_file_is_named_and_seldom_asked_for() {
    for (file, why, reads_of_one) in [
        (None, "keeps no file of its tokenizer", 1),
        (Some(&b"{}"[..]), "damaged, or another tokenizer", 3),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (daemon, counted, _stream) = serving(dir.path(), file).await;
        let (path, began) = (daemon.socket.clone(), Instant::now());
        let asks = spawn_blocking(move || {
            for _ in 0..20 {
                let (info, fd) = describe(&path);
                let said = info.tokenizer.missing.unwrap();
                assert!(said.contains(why), "{said}");
                assert!(fd.is_none() && info.tokenizer.vocabulary.is_none());
            }
        });
        asks.await.unwrap();
        // One look at the object in each ten seconds, however slow this machine is.
        let times = 1 + began.elapsed().as_secs() / 10;
        let found = reads(&counted);
        assert!(
            (reads_of_one..=times * reads_of_one).contains(&found),
            "{found}"
        );
        daemon.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describe_has_a_connection_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, ..) = serving(dir.path(), None).await;
    let path = daemon.socket.clone();
    let asks = spawn_blocking(move || {
        let mut session = Rude::greeted(&path);
        drop(session.batch());
        session.say(&ClientMessage::Describe);
        loop {
            if let DaemonMessage::Error(fault) = session.hear().unwrap() {
                break fault;
            }
        }
    });
    let fault = asks.await.unwrap();
    assert_eq!(fault.known_name(), Some(ErrorName::BadMessage));
    assert!(fault.message.contains("describe in a session"), "{fault}");
    daemon.stop().await.unwrap();
}
