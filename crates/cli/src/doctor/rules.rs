//! Bucket rules that would harm a stream: kept versions, expiry and archiving by age, soft deletes, holds.

mod guards;

use batchweave_daemon::Exit;
use batchweave_store::{Bucket, ErrorKind, LifecycleRule, Permission, StoreError, Versioning};

use super::Target;
use super::finding::Finding;

/// Objects that must stay as long as the stream; only reclamation deletes data.
const KEPT: [&str; 3] = ["log/", "stream.json", "data/"];
/// Objects whose loss costs time or safety, though they can be made again.
const USEFUL: [&str; 3] = ["snapshots/", "index/", "jobs/"];
/// Storage classes whose objects must be restored before they can be read.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

pub(super) async fn check(
    target: &Target<'_>,
    bucket: &dyn Bucket,
    versioning: Result<Versioning, StoreError>,
) -> Vec<Finding> {
    let grant = target.grant(Permission::Properties);
    let of_versions = match grant {
        "s3:GetLifecycleConfiguration" => "s3:GetBucketVersioning",
        other => other,
    };
    let mut findings = vec![versions(versioning, of_versions)];
    match bucket.lifecycle().await {
        Ok(Some(rules)) => findings.extend(lifecycle(&rules, bucket.lists_uploads())),
        Ok(None) => findings.push(elsewhere("lifecycle")),
        Err(error) => findings.push(unknown("lifecycle", grant, &error)),
    }
    match bucket.guards().await {
        Ok(Some(guards)) => findings.extend(guards::check(&guards)),
        Ok(None) => {}
        Err(error) => findings.push(unknown("soft delete", grant, &error)),
    }
    findings
}

/// Reports rules that only the account's management interface has.
fn elsewhere(name: &str) -> Finding {
    let why = "could not check: only the account's management interface has these rules";
    let remedy = "look for rules that delete or archive blobs by age: az storage account management-policy show";
    Finding::unchecked(name, why).with_remedy(remedy)
}

fn versions(versioning: Result<Versioning, StoreError>, grant: &str) -> Finding {
    let name = "versioning";
    let detail = match versioning {
        Ok(Versioning::Off) => {
            return Finding::ok(name, "off: reclaimed objects are gone and cost nothing");
        }
        Ok(Versioning::On) => "on: deleted objects are kept and paid for behind delete markers",
        Ok(Versioning::Suspended) => "suspended: versions that were kept are still paid for",
        Err(error) => return unknown(name, grant, &error),
    };
    let remedy = "deny deletes on log/* and stream.json to everybody, and let a lifecycle rule \
                  expire noncurrent versions below data/, intents/, snapshots/ and probe/";
    Finding::warn(name, detail, remedy)
}

/// Reports a missing permission or feature: least-privilege roles may not read the bucket's configuration,
/// and some stores have none.
fn unknown(name: &str, permission: &str, error: &StoreError) -> Finding {
    if error.kind == ErrorKind::Denied {
        let why = format!("could not check: these credentials lack {permission}");
        let remedy = "run doctor once with the bucket owner's credentials";
        return Finding::unchecked(name, why).with_remedy(remedy);
    }
    let why = format!("could not check: {}", error.detail);
    Finding::unchecked(name, why)
}

fn lifecycle(rules: &[LifecycleRule], keeps_uploads: bool) -> Vec<Finding> {
    let name = "lifecycle";
    let harm: Vec<Finding> = rules.iter().filter_map(harm).collect();
    if !harm.is_empty() {
        return harm;
    }
    let detail = match rules.len() {
        0 => "no rule reaches this root".to_owned(),
        _ => format!("{} reach this root, none harms it", rules.len()),
    };
    let fine = Finding::ok(name, detail);
    if !keeps_uploads || rules.iter().any(|rule| rule.aborts_uploads_days.is_some()) {
        return vec![fine];
    }
    let tip = "worth having: a rule that aborts unfinished multipart uploads after 7 days, since \
               a producer that dies in one leaves parts that are paid for";
    vec![fine.with_remedy(tip)]
}

/// Returns the worst effect of a rule on the stream.
fn harm(rule: &LifecycleRule) -> Option<Finding> {
    let name = format!("rule {}", rule.id);
    let reached = |areas: &[&'static str]| areas.iter().copied().find(|area| rule.reaches(area));
    let remedy = format!("limit {name} to a prefix outside this root, or disable it");
    let archive = rule
        .moves_to
        .as_deref()
        .filter(|class| ARCHIVES.contains(class));
    let breaks = reached(&KEPT).and_then(|area| match archive {
        _ if rule.expires => Some(format!(
            "deletes objects below {area} by age: the stream will break"
        )),
        Some(class) => Some(format!(
            "moves {area} to {class}, where nothing can be read"
        )),
        None => None,
    });
    if let Some(detail) = breaks {
        let exit = Exit::StreamRefused;
        return Some(Finding::fail(&name, detail, &remedy, exit));
    }
    let area = reached(&USEFUL).filter(|_| rule.expires || archive.is_some())?;
    let detail = format!("deletes or archives {area} by age: opening gets slow, restarts unsafe");
    Some(Finding::warn(&name, detail, &remedy))
}
