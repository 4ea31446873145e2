//! Tests of policies: statements, conditions, and decoded prefixes.

use super::*;

fn policies(statements: &str) -> Policies {
    let text = format!("{{\"Version\": \"2012-10-17\", \"Statement\": [{statements}]}}");
    let document = serde_json::from_str(&text).unwrap();
    Policies([("u".to_owned(), document)].into())
}

const READ: &str =
    r#"{"Effect": "Allow", "Action": ["s3:Get*"], "Resource": "arn:aws:s3:::b/s/*"}"#;
const LIST: &str = r#"{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::b",
    "Condition": {"StringLike": {"s3:prefix": ["s/log/*"]}}}"#;
const IF_EXISTS: &str = r#"{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::b",
    "Condition": {"StringLikeIfExists": {"s3:prefix": "s/*"}}}"#;
const DENY: &str = r#"{"Effect": "Deny", "Action": "*", "Resource": "arn:aws:s3:::b/s/log/*"}"#;

fn listing(prefix: &str) -> RequestContext<'_> {
    RequestContext {
        prefix: Some(prefix),
        ..RequestContext::default()
    }
}

#[test]
fn only_what_is_allowed_is_and_a_denial_wins() {
    let reader = policies(&format!("{READ}, {LIST}"));
    assert!(reader.allow(
        "u",
        "s3:GetObject",
        "arn:aws:s3:::b/s/log/1",
        RequestContext::default()
    ));
    assert!(!reader.allow(
        "u",
        "s3:GetObject",
        "arn:aws:s3:::c/s/log/1",
        RequestContext::default()
    ));
    assert!(!reader.allow(
        "u",
        "s3:PutObject",
        "arn:aws:s3:::b/s/log/1",
        RequestContext::default()
    ));
    assert!(reader.allow("u", "s3:ListBucket", "arn:aws:s3:::b", listing("s/log/")));
    assert!(!reader.allow("u", "s3:ListBucket", "arn:aws:s3:::b", listing("s/")));
    assert!(!reader.allow(
        "u",
        "s3:ListBucket",
        "arn:aws:s3:::b",
        RequestContext::default()
    ));
    assert!(
        reader.allow(
            "other",
            "s3:PutObject",
            "arn:aws:s3:::b/x",
            RequestContext::default()
        ),
        "has no policy"
    );
    let lister = policies(IF_EXISTS);
    assert!(lister.allow(
        "u",
        "s3:ListBucket",
        "arn:aws:s3:::b",
        RequestContext::default()
    ));
    assert!(!lister.allow("u", "s3:ListBucket", "arn:aws:s3:::b", listing("t/")));
    let denied = policies(&format!("{READ}, {DENY}"));
    assert!(denied.allow(
        "u",
        "s3:GetObject",
        "arn:aws:s3:::b/s/data/1",
        RequestContext::default()
    ));
    assert!(!denied.allow(
        "u",
        "s3:GetObject",
        "arn:aws:s3:::b/s/log/1",
        RequestContext::default()
    ));
}

#[test]
fn stars_stand_for_anything() {
    for (pattern, text, covers) in [
        ("a*", "abc", true),
        ("a*c", "abc", true),
        ("a*c", "abcd", false),
        ("*/log/*", "s/log/1", true),
        ("a", "ab", false),
        ("*", "", true),
    ] {
        assert_eq!(like(pattern, text), covers, "{pattern} {text}");
    }
    assert_eq!(prefix_of("list-type=2&prefix=s%2Flog%2F&x=1"), "s/log/");
}

#[test]
fn what_is_not_understood_is_refused() {
    for text in [
        r#"{"Effect": "Allow", "NotAction": "*", "Resource": "*"}"#,
        r#"{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {"Bool": {}}}"#,
        r#"{"Effect": "Maybe", "Action": "*", "Resource": "*"}"#,
    ] {
        assert!(serde_json::from_str::<Statement>(text).is_err(), "{text}");
    }
    assert!("reader=x.json".parse::<PolicyArg>().is_ok());
    assert!("reader".parse::<PolicyArg>().is_err());
}
