//! Doctor's findings on stores that lack a permission, break a guarantee, or have harmful rules.

mod scripted;

use std::sync::Arc;

use batchweave_store::{LifecycleRule, Op};

use super::*;
use scripted::Scripted;

/// Returns the findings of all groups but the stream's.
async fn examined(scripted: Scripted, read_only: bool) -> (Vec<Finding>, Arc<Scripted>) {
    let scripted = Arc::new(scripted);
    let store: Arc<dyn Store> = Arc::clone(&scripted) as _;
    let args = DoctorArgs {
        read_only,
        rounds: 2,
        samples: 3,
    };
    let target = Target {
        store: &store,
        args: &args,
        random: 7,
    };
    let mut findings = access::check(&target).await;
    findings.extend(contract::check(&target).await);
    let versioning = versioning(&target).await;
    findings.extend(permissions::check(&target, versioning.as_ref()).await);
    let bucket = target.bucket().unwrap();
    findings.extend(rules::check(&target, bucket, versioning.unwrap()).await);
    findings.extend(latency::measure(&target).await.1);
    findings.extend(clean(&target).await);
    (findings, scripted)
}

#[track_caller]
fn finding<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
    let found = findings.iter().find(|f| f.name == name);
    found.unwrap_or_else(|| panic!("no {name:?} in {findings:#?}"))
}

#[tokio::test]
async fn a_good_store_is_good_and_stays_clean() {
    let denied = vec![(Op::Delete, "log/")];
    let (findings, store) = examined(
        Scripted {
            denied,
            ..Scripted::new()
        },
        false,
    )
    .await;
    for finding in &findings {
        assert_eq!(finding.verdict, Level::Ok, "{finding:?}");
    }
    assert!(
        finding(&findings, "log/ delete")
            .detail
            .contains("as it should be")
    );
    assert_eq!(finding(&findings, "data/").detail, "put, get, list, delete");
    assert_eq!(store.inner.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn nothing_that_a_stream_uses_is_touched() {
    let scripted = Scripted::new();
    let kept = [
        "log/00000000000000000000.json",
        "stream.json",
        "data/p/1-0/x.tgb",
    ];
    for key in kept {
        scripted.inner.overwrite(key, "kept".into());
    }
    let (_, store) = examined(scripted, false).await;
    let mut sorted = kept.to_vec();
    sorted.sort_unstable();
    assert_eq!(store.inner.keys(), sorted);
    let deleted = store.deleted.lock().unwrap();
    for key in deleted.iter() {
        let ours = key.starts_with("probe/0000000000000007/") || key.contains("/doctor-");
        assert!(ours, "{key} was deleted");
    }
}

#[tokio::test]
async fn each_refusal_names_what_to_grant() {
    for (op, prefix, name, level, grant) in [
        (
            Op::Upload,
            "log/",
            "log/",
            Level::Fail,
            "s3:PutObject on log/*",
        ),
        (
            Op::Upload,
            "data/",
            "data/",
            Level::Fail,
            "s3:PutObject on data/*",
        ),
        (
            Op::Upload,
            "jobs/",
            "jobs/",
            Level::Warn,
            "s3:PutObject on jobs/*",
        ),
        (
            Op::Upload,
            "stream.json",
            "stream.json",
            Level::Warn,
            "s3:PutObject on stream.json",
        ),
        (
            Op::Get,
            "index/",
            "index/",
            Level::Fail,
            "s3:GetObject on index/*",
        ),
        (
            Op::List,
            "intents/",
            "intents/",
            Level::Warn,
            "s3:ListBucket on intents/*",
        ),
        (
            Op::Delete,
            "data/",
            "data/",
            Level::Warn,
            "s3:DeleteObject on data/*",
        ),
        (
            Op::Create,
            "probe/",
            "create",
            Level::Fail,
            "s3:PutObject on probe/*",
        ),
        (
            Op::Delete,
            "probe/",
            "delete",
            Level::Warn,
            "s3:DeleteObject on probe/*",
        ),
    ] {
        let denied = vec![(op, prefix)];
        let (findings, _) = examined(
            Scripted {
                denied,
                ..Scripted::new()
            },
            false,
        )
        .await;
        let found = finding(&findings, name);
        assert_eq!(found.verdict, level, "{op:?} {prefix}: {found:?}");
        let remedy = found.remedy.as_deref().unwrap_or_default();
        assert!(remedy.contains(grant), "{op:?} {prefix}: {remedy}");
        assert!(found.detail.contains("AccessDenied"), "{found:?}");
        if level == Level::Fail {
            assert_eq!(found.exit, Exit::StoreUnavailable, "{found:?}");
        }
    }
}

#[tokio::test]
async fn broken_promises_fail() {
    let overwriting = Scripted {
        overwrites: true,
        ..Scripted::new()
    };
    let (findings, store) = examined(overwriting, false).await;
    for name in ["exclusive create", "exclusive upload"] {
        let found = finding(&findings, name);
        assert_eq!(
            (found.verdict, found.exit),
            (Level::Fail, Exit::StreamRefused),
            "{found:?}"
        );
        assert!(
            found
                .remedy
                .as_deref()
                .unwrap_or_default()
                .contains("If-None-Match")
        );
    }
    assert_eq!(store.inner.keys(), Vec::<String>::new());
    let forgetful = Scripted {
        forgetful_list: true,
        ..Scripted::new()
    };
    let (findings, _) = examined(forgetful, false).await;
    let found = finding(&findings, "list after write");
    assert_eq!(
        (found.verdict, found.exit),
        (Level::Fail, Exit::StreamRefused),
        "{found:?}"
    );
}

#[tokio::test]
async fn deletes_below_the_log_are_tried_only_without_versions() {
    let (findings, store) = examined(Scripted::new(), false).await;
    assert_eq!(finding(&findings, "log/ delete").verdict, Level::Warn);
    assert!(
        store
            .deleted
            .lock()
            .unwrap()
            .contains("log/doctor-0000000000000007")
    );
    for versioning in [None, Some(Versioning::On), Some(Versioning::Suspended)] {
        let scripted = Scripted {
            versioning,
            ..Scripted::new()
        };
        let (findings, store) = examined(scripted, false).await;
        let found = finding(&findings, "log/ delete");
        assert_eq!(found.verdict, Level::NotChecked, "{found:?}");
        let deleted = store.deleted.lock().unwrap();
        assert!(
            !deleted.iter().any(|key| key.starts_with("log/")),
            "{deleted:?}"
        );
    }
}

#[tokio::test]
async fn rules_that_hurt_are_named() {
    let rule = |id: &str, prefix: &str, expires, moves_to: Option<&str>| LifecycleRule {
        id: id.to_owned(),
        prefix: prefix.to_owned(),
        expires,
        moves_to: moves_to.map(str::to_owned),
        aborts_uploads_days: None,
    };
    let scripted = Scripted {
        versioning: Some(Versioning::On),
        rules: vec![
            rule("all", "", true, None),
            rule("cold", "data/", false, Some("GLACIER")),
            rule("marks", "jobs/", true, None),
            rule("cheap", "data/", false, Some("STANDARD_IA")),
            rule("hints", "intents/", true, None),
        ],
        ..Scripted::new()
    };
    let (findings, _) = examined(scripted, false).await;
    assert_eq!(finding(&findings, "versioning").verdict, Level::Warn);
    let all = finding(&findings, "rule all");
    assert_eq!((all.verdict, all.exit), (Level::Fail, Exit::StreamRefused));
    assert!(all.detail.contains("log/"), "{all:?}");
    let cold = finding(&findings, "rule cold");
    assert!(
        cold.verdict == Level::Fail && cold.detail.contains("GLACIER"),
        "{cold:?}"
    );
    assert_eq!(finding(&findings, "rule marks").verdict, Level::Warn);
    for harmless in ["rule cheap", "rule hints", "lifecycle"] {
        assert!(!findings.iter().any(|f| f.name == harmless), "{harmless}");
    }
}

#[tokio::test]
async fn what_may_not_be_asked_is_not_checked_in_plain_words() {
    let (findings, _) = examined(
        Scripted {
            versioning: None,
            ..Scripted::new()
        },
        false,
    )
    .await;
    for (name, permission) in [
        ("versioning", "s3:GetBucketVersioning"),
        ("lifecycle", "s3:GetLifecycleConfiguration"),
    ] {
        let found = finding(&findings, name);
        assert_eq!(found.verdict, Level::NotChecked, "{found:?}");
        assert!(found.detail.contains("could not check"), "{found:?}");
        assert!(found.detail.contains(permission), "{found:?}");
    }
}

#[tokio::test]
async fn read_only_makes_and_deletes_nothing() {
    let (findings, store) = examined(Scripted::new(), true).await;
    assert_eq!(finding(&findings, "creates").verdict, Level::NotChecked);
    assert_eq!(finding(&findings, "log/").detail, "get");
    assert!(store.deleted.lock().unwrap().is_empty());
    assert_eq!(store.inner.keys(), Vec::<String>::new());
}
