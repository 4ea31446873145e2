//! Checks the guarantees that streams rely on: exclusive creates, reads and listings that see earlier
//! writes, exact ranges.

use std::fmt::Write as _;

use batchweave_console::context;
use batchweave_console::output::count;
use batchweave_core::keys;
use batchweave_store::{Access, Bucket, Create, ErrorKind, ProbeReport, Store, StoreError, found};
use bytes::Bytes;
use futures::TryStreamExt;

use super::Target;
use super::finding::Finding;

const VISIBILITY_ROUNDS: usize = 8;
const RANGED_BYTES: usize = 256 * 1024;

pub(super) async fn check(target: &Target<'_>) -> Vec<Finding> {
    if target.args.read_only {
        return vec![Finding::unchecked(
            "creates",
            "needs to write (--read-only)",
        )];
    }
    let (store, rounds) = (target.store(), target.args.rounds);
    let mut findings = visibility(target).await;
    if findings.iter().any(|f| f.name == "create") {
        return findings;
    }
    let races = batchweave_store::probe_long(store, target.random, rounds, Access::Write).await;
    findings.insert(0, raced("exclusive create", 16, "creates", races));
    if let Some(bucket) = target.bucket() {
        let rounds = rounds.div_ceil(4);
        let races = batchweave_store::probe_completions(store, bucket, target.random, rounds);
        findings.insert(
            1,
            raced("exclusive upload", 8, "multipart uploads", races.await),
        );
    }
    findings.push(ranges(target).await);
    if let Some(bucket) = target.bucket() {
        findings.push(checksums(bucket, &target.key("checksum")).await);
    }
    findings
}

fn raced(name: &str, racers: u32, what: &str, seen: Result<ProbeReport, StoreError>) -> Finding {
    match seen {
        Ok(seen) => {
            let races = count(seen.rounds as u64, "race");
            let mut detail = format!("one winner in each of {races} of {racers} {what}");
            if seen.late_bodies > 0 {
                detail.push_str("; a late body replaced nothing");
            }
            if seen.unclear_answers > 0 {
                let unclear = count(seen.unclear_answers as u64, "loser");
                let _ = write!(detail, "; {unclear} got no clear answer and must read");
            }
            Finding::ok(name, detail)
        }
        Err(error) => Finding::failed(name, &error),
    }
}

/// Failures of visibility after writes and deletions, counted over all rounds.
#[derive(Default)]
struct Seen {
    unread: usize,
    unlisted: usize,
    undeleted: usize,
}

async fn visibility(target: &Target<'_>) -> Vec<Finding> {
    let mut seen = Seen::default();
    for round in 0..VISIBILITY_ROUNDS {
        let key = target.key(&format!("visible-{round}"));
        if let Err(error) = write_and_look(target, &key, &mut seen).await {
            let finding = Finding::failed("create", &error);
            return vec![match error.kind {
                ErrorKind::Denied => finding.with_remedy(
                    "grant s3:PutObject on probe/* (and see the permissions that streams need); \
                     consumers may check with --read-only",
                ),
                _ => finding,
            }];
        }
        if let Err(error) = delete_and_look(target, &key, &mut seen).await {
            let remedy = "grant s3:DeleteObject on probe/*, intents/*, snapshots/* and data/*: \
                          announcements, old snapshots and reclaimed data are deleted";
            let detail = format!("refused: {}", error.detail);
            return vec![
                after_write("read after write", seen.unread),
                after_write("list after write", seen.unlisted),
                Finding::warn("delete", detail, remedy),
            ];
        }
    }
    vec![
        after_write("read after write", seen.unread),
        after_write("list after write", seen.unlisted),
        match seen.undeleted {
            0 => Finding::ok("delete", "a deleted object is neither read nor listed"),
            missed => {
                let detail =
                    format!("{missed} of {VISIBILITY_ROUNDS} deleted objects were still seen");
                Finding::broken("delete", detail)
            }
        },
    ]
}

fn after_write(name: &str, missed: usize) -> Finding {
    if missed == 0 {
        return Finding::ok(name, "an object is seen as soon as it is made");
    }
    let detail = format!("{missed} of {VISIBILITY_ROUNDS} new objects were not seen at once");
    Finding::broken(name, detail)
}

async fn write_and_look(target: &Target<'_>, key: &str, seen: &mut Seen) -> Result<(), StoreError> {
    let store = target.store();
    let body = Bytes::from_static(b"made by `batchweave doctor`; may be deleted\n");
    let created = store.create(key, body.clone()).await?;
    let read = found(store.get(key, keys::bytes_max(key)).await)?;
    let size = found(store.head(key).await)?.map(|head| head.size);
    let whole = read.as_ref() == Some(&body) && size == Some(body.len() as u64);
    seen.unread += usize::from(created == Create::Exists || !whole);
    seen.unlisted += usize::from(!listed(target, key).await?);
    Ok(())
}

async fn delete_and_look(
    target: &Target<'_>,
    key: &str,
    seen: &mut Seen,
) -> Result<(), StoreError> {
    target.store().delete(key).await?;
    let read = found(target.store().get(key, keys::bytes_max(key)).await)?;
    seen.undeleted += usize::from(read.is_some() || listed(target, key).await?);
    Ok(())
}

async fn listed(target: &Target<'_>, key: &str) -> Result<bool, StoreError> {
    let listed = context::list(target.store(), &target.folder()).await?;
    Ok(listed.iter().any(|object| object.key == key))
}

async fn ranges(target: &Target<'_>) -> Finding {
    let name = "ranged read";
    let key = target.key("ranges");
    let outcome = read_ranges(target.store(), &key).await;
    let _ = target.store().delete(&key).await;
    match outcome {
        Ok(None) => Finding::ok(name, "exact bytes; beyond the end is refused"),
        Ok(Some(wrong)) => Finding::broken(name, wrong),
        Err(error) => Finding::failed(name, &error),
    }
}

/// Returns the fault of a ranged read, if there is any.
async fn read_ranges(store: &dyn Store, key: &str) -> Result<Option<String>, StoreError> {
    let body: Bytes = (0..RANGED_BYTES).map(|at| (at % 251) as u8).collect();
    let _ = store.upload(key, body.clone()).await?;
    let end = RANGED_BYTES;
    for (first, last) in [
        (0, 1),
        (0, end),
        (end - 1, end),
        (1000, 70_000),
        (131_072, 131_073),
    ] {
        let chunks: Vec<Bytes> = store
            .get_range(key, first as u64..last as u64)
            .await?
            .try_collect()
            .await?;
        if chunks.concat() != body[first..last] {
            let why = format!("bytes {first}..{last} of {end} came back with other contents");
            return Ok(Some(why));
        }
    }
    let beyond = store.get_range(key, end as u64 - 1..end as u64 + 1).await;
    match beyond.map(drop) {
        Err(error) if error.kind == ErrorKind::Range => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(Some("a range beyond the end was not refused".to_owned())),
    }
}

/// Checks that the store verifies checksums. Without that, damage is found later, by the frames' own
/// checksums.
async fn checksums(bucket: &dyn Bucket, key: &str) -> Finding {
    let name = "checksums";
    match bucket.refuses_wrong_checksum(key).await {
        Ok(true) => Finding::ok(name, "a body that does not match its CRC32C is refused"),
        Ok(false) => {
            let detail = "the store accepts bodies that do not match their CRC32C";
            let remedy = "no action needed: every frame carries a checksum of its own, but damage \
                          during an upload is found only when it is read";
            Finding::warn(name, detail, remedy)
        }
        Err(error) => Finding::unchecked(name, error.detail),
    }
}
