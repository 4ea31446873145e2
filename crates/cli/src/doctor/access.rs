//! Checks that the store answers, accepts the credentials, and agrees on the time.

use std::time::{Duration, SystemTime};

use batchweave_daemon::Exit;
use batchweave_store::{Bucket, ErrorKind, Location, StoreError};

use super::Target;
use super::finding::Finding;

/// Stores refuse signatures that are off by 15 minutes; doctor warns earlier.
const CLOCK_WARN: Duration = Duration::from_secs(10);

pub(super) async fn check(target: &Target<'_>) -> Vec<Finding> {
    if let Err(error) = batchweave_store::probe_read(target.store(), target.random).await {
        return vec![refused(&error)];
    }
    let answers = match target.bucket() {
        Some(bucket) => format!("{} answers and accepts the credentials", bucket.endpoint()),
        None => "exists and is readable".to_owned(),
    };
    let missing = "reads as missing, distinct from a refusal";
    let mut findings = vec![
        Finding::ok("store", answers),
        Finding::ok("missing key", missing),
    ];
    if let Some(bucket) = target.bucket() {
        findings.push(clock(bucket, &target.key("absent")).await);
    }
    findings
}

/// Names the part to repair from the error of the simplest request.
pub(super) fn refused(error: &StoreError) -> Finding {
    let name = match error.kind {
        ErrorKind::Unreachable | ErrorKind::Timeout => "endpoint",
        ErrorKind::NoBucket if error.is_no_folder() => "folder",
        ErrorKind::NoBucket | ErrorKind::WrongRegion => "bucket",
        ErrorKind::Denied | ErrorKind::WrongKeys => "credentials",
        ErrorKind::ClockSkew => "clock",
        _ => "store",
    };
    let finding = Finding::failed(name, error);
    match error.kind {
        ErrorKind::NoBucket => Finding {
            detail: format!("{} is not there: {}", container(error), error.detail),
            exit: Exit::StoreUnavailable,
            ..finding
        }
        .with_remedy(error.remedy()),
        _ => finding,
    }
}

/// Returns the bucket or folder that an error is about.
fn container(error: &StoreError) -> String {
    let location = error.location.split("/probe/").next().unwrap_or_default();
    match Location::parse(location) {
        Ok(location) => location.whole().to_string(),
        Err(_) => location.to_owned(),
    }
}

async fn clock(bucket: &dyn Bucket, key: &str) -> Finding {
    let before = SystemTime::now();
    let theirs = bucket.time(key).await;
    let took = before.elapsed().unwrap_or_default();
    match theirs {
        // The header has whole seconds.
        Ok(theirs) => judge(before + took / 2, theirs + Duration::from_millis(500), took),
        Err(error) => Finding::unchecked("clock", error.detail),
    }
}

/// Compares the local time with the store's, both in the middle of a request.
fn judge(ours: SystemTime, theirs: SystemTime, took: Duration) -> Finding {
    let unsure = Duration::from_millis(500) + took / 2;
    let (apart, side) = match ours.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if apart <= unsure {
        let within = unsure.as_secs_f64();
        return Finding::ok(
            "clock",
            format!("agrees with the store's within {within:.1} s"),
        );
    }
    let detail = format!("{:.0} s {side} the store's", apart.as_secs_f64());
    if apart < CLOCK_WARN {
        return Finding::ok("clock", detail);
    }
    let remedy = ErrorKind::ClockSkew.remedy();
    Finding::warn(
        "clock",
        format!("{detail}; stores refuse signatures that are off by 900 s"),
        remedy,
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn clocks_that_differ_are_named_with_their_side() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let took = Duration::from_millis(80);
        let see = |offset: i64| {
            let apart = Duration::from_secs(offset.unsigned_abs());
            let theirs = if offset < 0 { now - apart } else { now + apart };
            let finding = judge(now, theirs, took);
            (finding.verdict, finding.detail)
        };
        assert_eq!(see(0).1, "agrees with the store's within 0.5 s");
        assert_eq!(see(3), (Level::Ok, "3 s behind the store's".to_owned()));
        let (level, detail) = see(-70);
        assert_eq!(level, Level::Warn);
        assert!(detail.starts_with("70 s ahead of the store's"), "{detail}");
    }
}
