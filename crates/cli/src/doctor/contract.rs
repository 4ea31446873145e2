//! Findings of the store's own checks: exclusive creates, reads and listings that see earlier writes, exact ranges.

use std::fmt::Write as _;

use batchweave_console::output::count;
use batchweave_store::{Access, Bucket, ErrorKind, Permission, ProbeReport, Stopped, StoreError};

use super::Target;
use super::finding::Finding;

const VISIBILITY_ROUNDS: usize = 8;

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

async fn visibility(target: &Target<'_>) -> Vec<Finding> {
    let folder = target.folder();
    let (unseen, ended) =
        batchweave_store::probe_visibility(target.store(), &folder, VISIBILITY_ROUNDS).await;
    let deleted = match ended {
        Ok(()) if unseen.undeleted == 0 => {
            Finding::ok("delete", "a deleted object is neither read nor listed")
        }
        Ok(()) => {
            let missed = unseen.undeleted;
            let detail = format!("{missed} of {VISIBILITY_ROUNDS} deleted objects were still seen");
            Finding::broken("delete", detail)
        }
        Err(Stopped::Create(error)) => return vec![not_created(target, &error)],
        Err(Stopped::Delete(error)) => {
            let remedy = &format!(
                "grant {} on probe/*, intents/*, snapshots/* and data/*: announcements, old snapshots and \
                 reclaimed data are deleted",
                target.grant(Permission::Delete)
            );
            let detail = format!("refused: {}", error.detail);
            Finding::warn("delete", detail, remedy)
        }
    };
    vec![
        after_write("read after write", unseen.unread),
        after_write("list after write", unseen.unlisted),
        deleted,
    ]
}

fn not_created(target: &Target<'_>, error: &StoreError) -> Finding {
    let finding = Finding::failed("create", error);
    match error.kind {
        ErrorKind::Denied => finding.with_remedy(format!(
            "grant {} on probe/* (and see the permissions that streams need); consumers may check with \
             --read-only",
            target.grant(Permission::Create)
        )),
        _ => finding,
    }
}

fn after_write(name: &str, missed: usize) -> Finding {
    if missed == 0 {
        return Finding::ok(name, "an object is seen as soon as it is made");
    }
    let detail = format!("{missed} of {VISIBILITY_ROUNDS} new objects were not seen at once");
    Finding::broken(name, detail)
}

async fn ranges(target: &Target<'_>) -> Finding {
    let name = "ranged read";
    let outcome = batchweave_store::probe_ranges(target.store(), &target.key("ranges")).await;
    match outcome {
        Ok(None) => Finding::ok(name, "exact bytes; beyond the end is refused"),
        Ok(Some(wrong)) => Finding::broken(name, wrong),
        Err(error) => Finding::failed(name, &error),
    }
}

/// Checks that the store verifies checksums. Without that, damage is found later, by the frames' own
/// checksums.
async fn checksums(bucket: &dyn Bucket, key: &str) -> Finding {
    let name = "checksums";
    match bucket.refuses_wrong_checksum(key).await {
        Ok(true) => Finding::ok(name, "a body that does not match its checksum is refused"),
        Ok(false) => {
            let detail = "the store accepts bodies that do not match their checksum";
            let remedy = "no action needed: every frame carries a checksum of its own, but damage \
                          during an upload is found only when it is read";
            Finding::warn(name, detail, remedy)
        }
        Err(error) => Finding::unchecked(name, error.detail),
    }
}
