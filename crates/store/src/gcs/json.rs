//! The documents of the JSON interface. Pure.

use std::time::Duration;

use serde::Deserialize;

use crate::cloud::{Listed, Page, Refusal, time};
use crate::{Guards, LifecycleRule, Versioning};

/// The properties of a bucket that matter to a stream.
pub(super) const FIELDS: &str = "versioning,lifecycle,softDeletePolicy,retentionPolicy,defaultEventBasedHold,\
     iamConfiguration(uniformBucketLevelAccess(enabled)),location,storageClass";

/// An object's metadata. Whole numbers of 64 bits are texts.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    name: String,
    size: String,
    etag: Option<String>,
    updated: Option<String>,
}

impl Metadata {
    pub(super) fn listed(self) -> Result<Listed, String> {
        let size = self.size.parse();
        Ok(Listed {
            size: size.map_err(|_| format!("size {:?} of {}", self.size, self.name))?,
            name: self.name,
            etag: self.etag,
            modified: self.updated.as_deref().and_then(time),
        })
    }
}

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    items: Vec<Metadata>,
    #[serde(default)]
    prefixes: Vec<String>,
    #[serde(rename = "nextPageToken")]
    next: Option<String>,
}

pub(super) fn page(body: &[u8]) -> Result<Page, String> {
    let listing: Listing = serde_json::from_slice(body).map_err(|why| why.to_string())?;
    let objects: Result<_, _> = listing.items.into_iter().map(Metadata::listed).collect();
    Ok(Page {
        objects: objects?,
        folders: listing.prefixes,
        next: listing.next.filter(|token| !token.is_empty()),
    })
}

#[derive(Deserialize)]
struct Failed {
    error: Failure,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
}

/// Reads an error answer. Those of reads are plain text.
pub(super) fn refusal(body: &[u8]) -> Refusal {
    let parsed: Result<Failed, _> = serde_json::from_slice(body);
    let Ok(Failed { error }) = parsed else {
        let text = std::str::from_utf8(body).unwrap_or_default();
        let is_text = !text.trim_start().starts_with('<');
        return Refusal {
            message: if is_text {
                text.to_owned()
            } else {
                String::new()
            },
            ..Refusal::default()
        };
    };
    let reason = error.errors.into_iter().next();
    Refusal {
        code: reason.map(|reason| reason.reason).unwrap_or_default(),
        message: error.message,
        request_id: None,
    }
}

/// The properties of a bucket.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Bucket {
    versioning: Enabled,
    lifecycle: Rules,
    soft_delete_policy: Seconds,
    retention_policy: Seconds,
    default_event_based_hold: bool,
    iam_configuration: Access,
    location: Option<String>,
    storage_class: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Enabled {
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Seconds {
    retention_duration_seconds: Option<String>,
    retention_period: Option<String>,
}

impl Seconds {
    fn duration(&self) -> Option<Duration> {
        let text = self.retention_duration_seconds.as_ref();
        let text = text.or(self.retention_period.as_ref())?;
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
        seconds.map(Duration::from_secs)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Access {
    uniform_bucket_level_access: Option<Enabled>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rules {
    rule: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rule {
    action: Action,
    condition: Condition,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Action {
    #[serde(rename = "type")]
    kind: String,
    storage_class: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    age: Option<i32>,
    matches_prefix: Vec<String>,
    /// `false`: only older versions.
    is_live: Option<bool>,
    /// Of older versions only, too.
    num_newer_versions: Option<i32>,
    days_since_noncurrent_time: Option<i32>,
}

impl Condition {
    fn is_of_live_objects(&self) -> bool {
        self.is_live != Some(false)
            && self.num_newer_versions.is_none()
            && self.days_since_noncurrent_time.is_none()
    }
}

impl Bucket {
    pub(super) fn versioning(&self) -> Versioning {
        if self.versioning.enabled {
            Versioning::On
        } else {
            Versioning::Off
        }
    }

    pub(super) fn guards(&self) -> Guards {
        let access = &self.iam_configuration.uniform_bucket_level_access;
        Guards {
            soft_delete: self.soft_delete_policy.duration(),
            retention: self.retention_policy.duration(),
            holds: self.default_event_based_hold,
            uniform_access: Some(access.as_ref().is_some_and(|access| access.enabled)),
            location: self.location.clone(),
            storage_class: self.storage_class.clone(),
            ..Guards::default()
        }
    }

    /// Returns the effects of the rules, one for each prefix, which are those of the bucket.
    pub(super) fn rules(&self) -> Vec<LifecycleRule> {
        let numbered = (1..).zip(&self.lifecycle.rule);
        let live = numbered.filter(|(_, rule)| rule.condition.is_of_live_objects());
        live.flat_map(|(number, rule)| {
            let mut prefixes = rule.condition.matches_prefix.clone();
            if prefixes.is_empty() {
                prefixes.push(String::new());
            }
            let effect = move |prefix| LifecycleRule {
                id: format!("{number} ({})", rule.action.kind),
                prefix,
                expires: rule.action.kind == "Delete",
                moves_to: rule.action.storage_class.clone(),
                aborts_uploads_days: (rule.action.kind == "AbortIncompleteMultipartUpload")
                    .then(|| rule.condition.age.unwrap_or_default()),
            };
            prefixes.into_iter().map(effect)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_objects_folders_and_the_next_token() {
        let body = br#"{"kind": "storage#objects", "nextPageToken": "t", "prefixes": ["a/b/"],
            "items": [{"name": "a/k", "size": "9007199254740993", "etag": "CL==", "updated": "1994-11-06T08:49:37.5Z"}]}"#;
        let page = page(body).unwrap();
        assert_eq!(page.next.as_deref(), Some("t"));
        assert_eq!(page.folders, ["a/b/"]);
        let [object] = &page.objects[..] else {
            panic!("{} objects", page.objects.len());
        };
        assert_eq!((&*object.name, object.size), ("a/k", 9_007_199_254_740_993));
        assert!(object.modified.is_some());
        assert!(super::page(b"{}").unwrap().objects.is_empty());
        let wrong = br#"{"items": [{"name": "a", "size": "many"}]}"#;
        let Err(why) = super::page(wrong) else {
            panic!("a size of many bytes");
        };
        assert!(why.contains("many"), "{why}");
    }

    #[test]
    fn refusals_are_json_or_text() {
        let denied = refusal(
            br#"{"error": {"code": 403, "message": "a@b does not have storage.objects.create access",
                "errors": [{"reason": "forbidden"}]}}"#,
        );
        assert_eq!(denied.code, "forbidden");
        assert!(denied.message.contains("storage.objects.create"));
        assert_eq!(
            refusal(b"No such object: b/k").message,
            "No such object: b/k"
        );
        assert_eq!(refusal(b"<html>no</html>").message, "");
    }

    #[test]
    fn the_properties_of_a_bucket() {
        let bucket: Bucket = serde_json::from_slice(
            br#"{"versioning": {"enabled": true}, "location": "EU", "storageClass": "STANDARD",
                "softDeletePolicy": {"retentionDurationSeconds": "604800"},
                "retentionPolicy": {"retentionPeriod": "3600"}, "defaultEventBasedHold": true,
                "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": true}},
                "lifecycle": {"rule": [
                    {"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["a/", "b/"]}},
                    {"action": {"type": "Delete"}, "condition": {"isLive": false}},
                    {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}}]}}"#,
        )
        .unwrap();
        assert_eq!(bucket.versioning(), Versioning::On);
        let guards = bucket.guards();
        assert_eq!(guards.soft_delete, Some(Duration::from_hours(168)));
        assert_eq!(guards.retention, Some(Duration::from_hours(1)));
        assert!(guards.holds && guards.uniform_access == Some(true));
        let rules = bucket.rules();
        let told: Vec<_> = rules
            .iter()
            .map(|rule| (&*rule.prefix, rule.expires))
            .collect();
        assert_eq!(told, [("a/", true), ("b/", true), ("", false)]);
        assert_eq!(rules[2].aborts_uploads_days, Some(7));
        let none: Bucket = serde_json::from_slice(b"{}").unwrap();
        assert_eq!(none.guards().soft_delete, None);
        assert!(none.rules().is_empty());
    }
}
