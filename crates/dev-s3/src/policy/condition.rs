//! Conditions of a statement: `StringLike` and `StringLikeIfExists` on `s3:prefix`, `Null` on
//! `s3:if-none-match`, `Bool` on `s3:ObjectCreationOperation`.

use serde::{Deserialize, Deserializer, de::Error};

use super::OneOrMore;

/// The request fields that conditions test.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestContext<'a> {
    /// The prefix of a listing.
    pub(super) prefix: Option<&'a str>,
    /// The request has the header.
    pub(super) if_none_match: bool,
    /// The operation creates an object; uploading a part does not.
    pub(super) creates: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    #[serde(rename = "StringLike", default)]
    like: Option<Prefix>,
    /// Also holds for requests without a prefix. S3 answers that an object is missing (404) only to
    /// clients that may list, and that check has no prefix.
    /// those who may list, and that question has no prefix.
    #[serde(rename = "StringLikeIfExists", default)]
    like_if_exists: Option<Prefix>,
    #[serde(rename = "Null", default)]
    null: Option<IfNoneMatch>,
    #[serde(rename = "Bool", default)]
    boolean: Option<Creation>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prefix {
    #[serde(rename = "s3:prefix")]
    prefix: OneOrMore,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct IfNoneMatch {
    /// If true, the header must be absent.
    #[serde(rename = "s3:if-none-match", deserialize_with = "truth")]
    absent: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    #[serde(rename = "s3:ObjectCreationOperation", deserialize_with = "truth")]
    creates: bool,
}

/// IAM writes both as strings.
fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let word = String::deserialize(from)?;
    word.parse()
        .map_err(|_| D::Error::custom(format!("{word:?} is neither \"true\" nor \"false\"")))
}

impl Condition {
    pub(super) fn holds(&self, context: RequestContext<'_>) -> bool {
        let covers = |rule: &Prefix| context.prefix.map(|prefix| rule.prefix.like(prefix));
        let like = self.like.as_ref();
        let if_exists = self.like_if_exists.as_ref();
        let null = self.null.as_ref();
        let creation = self.boolean.as_ref();
        like.is_none_or(|rule| covers(rule).unwrap_or(false))
            && if_exists.is_none_or(|rule| covers(rule).unwrap_or(true))
            && null.is_none_or(|rule| rule.absent != context.if_none_match)
            && creation.is_none_or(|rule| rule.creates == context.creates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_may_be_asked_to_be_conditional() {
        let conditional: Condition =
            serde_json::from_str(r#"{"Null": {"s3:if-none-match": "false"}}"#).unwrap();
        let parts: Condition =
            serde_json::from_str(r#"{"Bool": {"s3:ObjectCreationOperation": "false"}}"#).unwrap();
        for (if_none_match, creates, whole, part) in [
            (true, true, true, false),
            (false, true, false, false),
            (false, false, false, true),
        ] {
            let context = RequestContext {
                prefix: None,
                if_none_match,
                creates,
            };
            assert_eq!(conditional.holds(context), whole, "{context:?}");
            assert_eq!(parts.holds(context), part, "{context:?}");
        }
        for text in [
            r#"{"Null": {"s3:prefix": "true"}}"#,
            r#"{"Null": {"s3:if-none-match": true}}"#,
            r#"{"Bool": {"s3:ObjectCreationOperation": "maybe"}}"#,
        ] {
            assert!(serde_json::from_str::<Condition>(text).is_err(), "{text}");
        }
    }
}
