//! Properties of a bucket that keep deleted objects, or forbid deletes: soft delete, retention, holds. Also who may see the objects, and where
//! they are.

use std::time::Duration;

use batchweave_daemon::Exit;
use batchweave_store::Guards;

use super::super::finding::Finding;

const DAY: f64 = 86_400.0;

pub(super) fn check(guards: &Guards) -> Vec<Finding> {
    let mut findings = vec![soft_delete(guards.soft_delete)];
    findings.extend(deletes(guards));
    if guards.uniform_access == Some(false) {
        let detail = "off: single objects may have permissions of their own";
        let remedy =
            "switch uniform bucket-level access on, so that the bucket's permissions are all";
        findings.push(Finding::warn("uniform access", detail, remedy));
    }
    if let Some(location) = &guards.location {
        let class = guards.storage_class.as_deref().unwrap_or("unknown class");
        findings.push(Finding::ok("location", format!("{location}, {class}")));
    }
    findings
}

fn soft_delete(kept: Option<Duration>) -> Finding {
    let name = "soft delete";
    let Some(kept) = kept else {
        return Finding::ok(name, "off: reclaimed objects are gone and cost nothing");
    };
    let days = kept.as_secs_f64() / DAY;
    let detail = format!("deleted objects are kept and paid for {days:.0} days");
    let remedy = "switch it off for this bucket: a stream never needs a deleted object again";
    Finding::warn(name, detail, remedy)
}

/// Returns the finding of a bucket whose objects can't be deleted for some time, which stops reclamation.
fn deletes(guards: &Guards) -> Option<Finding> {
    let name = "retention";
    let why = match guards {
        Guards {
            retention: Some(age),
            ..
        } => format!(
            "no object can be deleted before it is {:.1} days old",
            age.as_secs_f64() / DAY
        ),
        Guards { holds: true, .. } => "objects are held until the hold is lifted".to_owned(),
        Guards {
            immutable: true, ..
        } => "an immutability policy forbids deletes".to_owned(),
        _ => return None,
    };
    let detail =
        format!("{why}: announcements, old snapshots and reclaimed data stay, and deletes fail");
    let remedy = "use a bucket without a retention policy, an immutability policy or default holds";
    Some(Finding::fail(name, detail, remedy, Exit::StreamRefused))
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Level;
    use super::*;

    fn levels(guards: &Guards) -> Vec<(String, Level)> {
        let findings = check(guards).into_iter();
        findings
            .map(|finding| (finding.name, finding.verdict))
            .collect()
    }

    #[test]
    fn a_bucket_that_keeps_what_is_deleted_is_named() {
        let none = levels(&Guards::default());
        assert_eq!(none, [("soft delete".into(), Level::Ok)]);
        let kept = Guards {
            soft_delete: Some(Duration::from_hours(168)),
            uniform_access: Some(true),
            ..Guards::default()
        };
        assert_eq!(levels(&kept), [("soft delete".into(), Level::Warn)]);
        assert!(check(&kept)[0].detail.contains("7 days"));
        for guards in [
            Guards {
                retention: Some(Duration::from_hours(12)),
                ..Guards::default()
            },
            Guards {
                holds: true,
                ..Guards::default()
            },
            Guards {
                immutable: true,
                ..Guards::default()
            },
        ] {
            let found = levels(&guards);
            assert_eq!(found[1], ("retention".into(), Level::Fail), "{guards:?}");
        }
        let open = Guards {
            uniform_access: Some(false),
            location: Some("EU".into()),
            ..Guards::default()
        };
        let names = levels(&open);
        assert_eq!(names[1], ("uniform access".into(), Level::Warn));
        assert_eq!(names[2], ("location".into(), Level::Ok));
    }
}
