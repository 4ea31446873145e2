//! Bucket rules that would harm a stream: kept versions, expiry and archiving by age.

use batchweave_daemon::Exit;
use batchweave_store::{Bucket, ErrorKind, LifecycleRule, StoreError, Versioning};

use super::finding::Finding;

/// Objects that must stay as long as the stream; only reclamation deletes data.
const KEPT: [&str; 3] = ["log/", "stream.json", "data/"];
/// Objects whose loss costs time or safety, though they can be made again.
const USEFUL: [&str; 3] = ["snapshots/", "index/", "jobs/"];
/// Storage classes whose objects must be restored before they can be read.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

pub(super) async fn check(
    bucket: &dyn Bucket,
    versioning: Result<Versioning, StoreError>,
) -> Vec<Finding> {
    let mut findings = vec![versions(versioning)];
    match bucket.lifecycle().await {
        Ok(rules) => findings.extend(lifecycle(&rules)),
        Err(error) => findings.push(unknown("lifecycle", "s3:GetLifecycleConfiguration", &error)),
    }
    findings
}

fn versions(versioning: Result<Versioning, StoreError>) -> Finding {
    let name = "versioning";
    let detail = match versioning {
        Ok(Versioning::Off) => {
            return Finding::ok(name, "off: reclaimed objects are gone and cost nothing");
        }
        Ok(Versioning::On) => "on: deleted objects are kept and paid for behind delete markers",
        Ok(Versioning::Suspended) => "suspended: versions that were kept are still paid for",
        Err(error) => return unknown(name, "s3:GetBucketVersioning", &error),
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

fn lifecycle(rules: &[LifecycleRule]) -> Vec<Finding> {
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
    if rules.iter().any(|rule| rule.aborts_uploads_days.is_some()) {
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
