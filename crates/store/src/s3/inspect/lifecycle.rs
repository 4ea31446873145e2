//! The lifecycle rules of a bucket that reach the objects of one root.

use aws_sdk_s3::types::{
    AbortIncompleteMultipartUpload as Abort, ExpirationStatus, LifecycleRule as Rule,
};

use crate::LifecycleRule;

/// Returns the effect of `rule` below `root` (empty, or ends in `/`); `None` if it has none there.
pub(super) fn below(rule: &Rule, root: &str) -> Option<LifecycleRule> {
    if rule.status() != &ExpirationStatus::Enabled || wants_tags(rule) {
        return None;
    }
    let expiration = rule.expiration();
    let deletes = |e: &aws_sdk_s3::types::LifecycleExpiration| e.days.is_some() || e.date.is_some();
    let moves_to = rule.transitions().iter().find_map(|t| t.storage_class());
    let aborts = rule.abort_incomplete_multipart_upload();
    let of_bucket = LifecycleRule {
        id: rule.id().unwrap_or("unnamed").to_owned(),
        prefix: prefix(rule).to_owned(),
        expires: expiration.is_some_and(deletes),
        moves_to: moves_to.map(|class| class.as_str().to_owned()),
        aborts_uploads_days: aborts.and_then(Abort::days_after_initiation),
    };
    of_bucket.below(root)
}

/// Returns whether the rule is for tagged objects only; our objects carry no tags.
fn wants_tags(rule: &Rule) -> bool {
    rule.filter().is_some_and(|filter| {
        filter.tag().is_some() || filter.and().is_some_and(|and| !and.tags().is_empty())
    })
}

#[allow(deprecated)] // old rules name their prefix outside the filter
fn prefix(rule: &Rule) -> &str {
    let filter = rule.filter();
    let and = filter.and_then(|f| f.and());
    [
        filter.and_then(|f| f.prefix()),
        and.and_then(|a| a.prefix()),
        rule.prefix(),
    ]
    .into_iter()
    .flatten()
    .next()
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::types::{
        LifecycleExpiration, LifecycleRuleFilter, Tag, Transition, TransitionStorageClass,
    };

    use super::*;

    fn rule(prefix: &str) -> aws_sdk_s3::types::builders::LifecycleRuleBuilder {
        let filter = LifecycleRuleFilter::builder().prefix(prefix).build();
        let expiration = LifecycleExpiration::builder().days(30).build();
        Rule::builder()
            .id("r")
            .filter(filter)
            .expiration(expiration)
            .status(ExpirationStatus::Enabled)
    }

    fn reach(prefix: &str, root: &str) -> Option<String> {
        below(&rule(prefix).build().unwrap(), root).map(|rule| rule.prefix)
    }

    #[test]
    fn prefixes_are_made_relative() {
        assert_eq!(reach("", "a/b/").as_deref(), Some(""));
        assert_eq!(reach("a/", "a/b/").as_deref(), Some(""));
        assert_eq!(reach("a/b/log/", "a/b/").as_deref(), Some("log/"));
        assert_eq!(reach("a/bc/", "a/b/"), None);
        assert_eq!(reach("x/", ""), Some("x/".to_owned()));
    }

    #[test]
    fn the_effect_of_a_rule() {
        let move_on = Transition::builder()
            .storage_class(TransitionStorageClass::Glacier)
            .build();
        let abort = Abort::builder().days_after_initiation(7).build();
        let full = rule("")
            .transitions(move_on)
            .abort_incomplete_multipart_upload(abort)
            .build();
        let expected = LifecycleRule {
            id: "r".to_owned(),
            prefix: String::new(),
            expires: true,
            moves_to: Some("GLACIER".to_owned()),
            aborts_uploads_days: Some(7),
        };
        assert_eq!(below(&full.unwrap(), "a/"), Some(expected));
    }

    #[test]
    fn rules_that_are_off_or_for_tags_do_nothing() {
        let off = rule("").status(ExpirationStatus::Disabled).build().unwrap();
        assert_eq!(below(&off, ""), None);
        let tag = Tag::builder().key("k").value("v").build().unwrap();
        let tagged = LifecycleRuleFilter::builder().tag(tag).build();
        let tagged = rule("").filter(tagged).build().unwrap();
        assert_eq!(below(&tagged, ""), None);
    }

    #[test]
    fn rules_reach_what_lies_below_or_above_their_prefix() {
        let rule = |prefix: &str| LifecycleRule {
            prefix: prefix.to_owned(),
            ..LifecycleRule::default()
        };
        assert!(rule("").reaches("log/") && rule("log/0").reaches("log/"));
        assert!(rule("lo").reaches("log/") && !rule("data/").reaches("log/"));
    }
}
