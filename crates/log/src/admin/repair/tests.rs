//! An unreadable record: when a repair may make it void, and when it must be restored.

use batchweave_core::manifest::Record;
use bytes::Bytes;

use crate::admin::repair::{Damage, Remedy, Repaired, damage, repair};
use crate::testing::prelude::*;

/// A stream whose newest record, version 2, is `bytes`; the memory store and its producer.
async fn damaged(bytes: &'static str) -> (Arc<MemoryStore>, Arc<dyn Store>, Committer) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    let mut producer = opened(&store, "p0", 1).await;
    let _ = commit(&mut producer, 2).await;
    let _ = store.create(&keys::log(2), bytes.into()).await.unwrap();
    (memory, store, producer)
}

async fn found(store: &Arc<dyn Store>) -> Damage {
    damage(store, &options(9)).await.unwrap().unwrap()
}

/// Returns a record of version 3 by a writer that has read `before` at version 2.
fn follows(producer: &Committer, before: &[u8]) -> Bytes {
    let record = Record {
        format: 1,
        stream: producer.log().manifest().stream_id(),
        version: 3,
        prev: Hash::sha256(before),
        view: Hash::sha256(b"a view"),
        commit: batchweave_core::ids::CommitId([3; 16]),
        writer: batchweave_core::manifest::Writer {
            name: "other".into(),
            epoch: 0,
        },
        hints: batchweave_core::manifest::Hints::default(),
        entries: Vec::new(),
    };
    record.to_json().into()
}

#[tokio::test]
async fn the_newest_record_is_repaired_once_and_all_go_on() {
    let (_, store, mut producer) = damaged("garbage").await;
    let next = item(&producer, 2, 1);
    let stopped = producer.try_commit(next.tgbs, next.cursor).await;
    let text = stopped.unwrap_err().to_string();
    for part in ["version 2", &keys::log(2), "`batchweave repair`"] {
        assert!(text.contains(part), "{text}");
    }
    let hurt = found(&store).await;
    assert_eq!((hurt.version, hurt.bytes), (2, 7));
    assert_eq!(hurt.remedy, Remedy::Repair);
    let done = repair(&store, &hurt, "a proxy", &options(9)).await.unwrap();
    assert_eq!(done, Repaired::Now);
    let again = repair(&store, &hurt, "me too", &options(9)).await.unwrap();
    let reason = "a proxy".to_owned();
    assert_eq!(again, Repaired::Before { reason });
    assert!(damage(&store, &options(9)).await.unwrap().is_none());
    assert_eq!(commit(&mut producer, 1).await, Commit::Lost);
    let done = commit(&mut producer, 1).await;
    assert!(matches!(done, Commit::Committed { version: 3, .. }));
    let log = Log::open(store, &options(2)).await.unwrap();
    assert_eq!(log.manifest().void_records(), 1);
    assert_eq!(log.manifest().next_step(), 3);
}

#[tokio::test]
async fn a_record_that_was_altered_later_is_restored_not_repaired() {
    let (_, store, producer) = damaged("garbage").await;
    let hurt = found(&store).await;
    let later = keys::log(3);
    let body = follows(&producer, b"what was there");
    let _ = store.create(&later, body).await.unwrap();
    let held = Some(Hash::sha256(b"what was there"));
    let remedy = Remedy::Restore { later, held };
    assert_eq!(found(&store).await.remedy, remedy);
    let refused = repair(&store, &hurt, "x", &options(9)).await.unwrap();
    assert_eq!(refused, Repaired::Refused(remedy), "it looks once more");
    let absent = store.get(&keys::repair(2), u64::MAX).await.unwrap_err();
    assert!(absent.is_not_found());
}

#[tokio::test]
async fn a_later_record_that_cannot_be_read_either_forbids_a_repair() {
    let (_, store, _) = damaged("garbage").await;
    let later = keys::log(3);
    let _ = store.create(&later, "garbage too".into()).await.unwrap();
    let remedy = Remedy::Restore { later, held: None };
    assert_eq!(found(&store).await.remedy, remedy);
}

#[tokio::test]
async fn what_a_newer_program_reads_is_not_made_void() {
    let (_, store, producer) = damaged(r#"{"format":3}"#).await;
    assert_eq!(found(&store).await.remedy, Remedy::Upgrade);
    let later = keys::log(3);
    let body = follows(&producer, br#"{"format":3}"#);
    let _ = store.create(&later, body).await.unwrap();
    assert_eq!(found(&store).await.remedy, Remedy::UpgradeToo { later });
}

#[tokio::test]
async fn a_repair_counts_for_the_bytes_that_it_names_alone() {
    let (memory, store, _) = damaged("garbage").await;
    let hurt = found(&store).await;
    memory.overwrite(&keys::log(2), "other garbage".into());
    let refused = repair(&store, &hurt, "x", &options(9)).await.unwrap();
    assert_eq!(refused, Repaired::Refused(Remedy::Unsteady));
    memory.overwrite(&keys::log(2), "garbage".into());
    assert_eq!(
        repair(&store, &hurt, "x", &options(9)).await.unwrap(),
        Repaired::Now
    );
    memory.overwrite(&keys::log(2), "other garbage".into());
    let remedy = Remedy::RepairedOther {
        repair: keys::repair(2),
        held: Hash::sha256(b"garbage"),
    };
    assert_eq!(found(&store).await.remedy, remedy);
}

#[tokio::test]
async fn a_sound_log_needs_no_repair_and_a_gap_has_its_own_error() {
    let (memory, store, _) = damaged("garbage").await;
    memory.overwrite(&keys::log(1), "garbage".into());
    assert_eq!(found(&store).await.version, 1);
    store.delete(&keys::log(1)).await.unwrap();
    let error = damage(&store, &options(9)).await.unwrap_err();
    assert!(matches!(error, LogError::Gap { .. }), "{error}");
    store.delete(&keys::log(2)).await.unwrap();
    assert!(damage(&store, &options(9)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_command_may_find_its_work_done_after_a_lost_race() {
    let store = stream(&[]).await;
    let mut admin = Log::open(Arc::clone(&store), &options(2)).await.unwrap();
    let request = admin.new_request();
    let mut calls = 0;
    let _other = opened(&store, "p0", 1).await;
    let none = admin
        .commit_if("test", |m| {
            calls += 1;
            assert_eq!(m.next_version(), 1, "the other's record is folded first");
            Ok::<_, LogError>(None)
        })
        .await;
    assert_eq!((none.unwrap(), calls), (None, 1));
    let refused = admin.commit_if("test", |_| Err(LogError::Stopped("no".into())));
    assert!(matches!(refused.await, Err(LogError::Stopped(_))));
    let seal = |reason: &str| {
        let reason = reason.to_owned();
        Entry::Sealed(Sealed { request, reason })
    };
    assert_eq!(
        admin
            .commit_entry("test", |_| seal("enough"))
            .await
            .unwrap(),
        Some(1)
    );
    assert_eq!(
        admin.commit_entry("test", |_| seal("again")).await.unwrap(),
        None
    );
}
