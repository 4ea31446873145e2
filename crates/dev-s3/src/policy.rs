//! IAM policies, as far as deploy/iam uses them: a client that signs with a key with a policy may do
//! only what the policy allows, with S3's own names of actions.
//!
//! Supported: `Effect` Allow and Deny, `Action` and `Resource` with `*`, and the conditions of
//! `condition.rs`. Reading a file with anything else fails: a policy with unknown parts must not look
//! enforced.

mod condition;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{CopyObjectInput, CopySource, DeleteObjectsInput};
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};
use serde::Deserialize;

use crate::Error;
use condition::{Condition, RequestContext};

/// A policy in IAM's format.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Document {
    version: String,
    statement: Vec<Statement>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Statement {
    #[serde(default)]
    sid: String,
    effect: Effect,
    action: OneOrMore,
    resource: OneOrMore,
    #[serde(default)]
    condition: Option<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Effect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn like(&self, text: &str) -> bool {
        match self {
            Self::One(pattern) => like(pattern, text),
            Self::More(patterns) => patterns.iter().any(|pattern| like(pattern, text)),
        }
    }
}

/// Returns true if a pattern with `*` matches the whole text.
fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// An access key and its policy: `--policy ACCESS_KEY=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyArg {
    /// The key that its user signs with; the secret is the server's.
    pub access_key: String,
    pub file: PathBuf,
}

impl std::str::FromStr for PolicyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (access_key, file) = text
            .split_once('=')
            .filter(|(key, file)| !key.is_empty() && !file.is_empty())
            .ok_or("give it as ACCESS_KEY=FILE, as reader=deploy/iam/reader.json")?;
        Ok(Self {
            access_key: access_key.to_owned(),
            file: file.into(),
        })
    }
}

/// All policies, by access key. A key without one may do everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policies(BTreeMap<String, Document>);

impl Policies {
    pub(crate) fn read(args: &[PolicyArg]) -> Result<Self, Error> {
        let mut all = BTreeMap::new();
        for arg in args {
            all.insert(arg.access_key.clone(), document(&arg.file)?);
        }
        Ok(Self(all))
    }

    pub(crate) fn knows(&self, access_key: &str) -> bool {
        self.0.contains_key(access_key)
    }

    fn allow(&self, key: &str, action: &str, resource: &str, context: RequestContext<'_>) -> bool {
        let Some(document) = self.0.get(key) else {
            return true;
        };
        let applies = |statement: &&Statement| {
            statement.action.like(action)
                && statement.resource.like(resource)
                && statement
                    .condition
                    .as_ref()
                    .is_none_or(|c| c.holds(context))
        };
        let mut allowed = false;
        for statement in document.statement.iter().filter(applies) {
            match statement.effect {
                Effect::Allow => {
                    tracing::debug!(key, sid = statement.sid, action, resource, "allowed");
                    allowed = true;
                }
                Effect::Deny => return false,
            }
        }
        allowed
    }

    fn demand(
        &self,
        key: &str,
        action: &str,
        resource: &str,
        context: RequestContext<'_>,
    ) -> S3Result<()> {
        if self.allow(key, action, resource, context) {
            return Ok(());
        }
        let prefix = context.prefix;
        let listed = prefix.map_or(String::new(), |prefix| format!(" with prefix {prefix:?}"));
        tracing::warn!(key, action, resource, told = ?context, "refused by its policy");
        Err(s3_error!(
            AccessDenied,
            "User {} is not authorized to perform: {} on resource: {}{}",
            key,
            action,
            resource,
            listed
        ))
    }
}

fn document(file: &Path) -> Result<Document, Error> {
    let failed = |why: String| Error::Policy {
        file: file.to_owned(),
        why,
    };
    let text = std::fs::read_to_string(file).map_err(|why| failed(why.to_string()))?;
    let document: Document = serde_json::from_str(&text).map_err(|why| failed(why.to_string()))?;
    if document.version != "2012-10-17" {
        return Err(failed(format!(
            "Version {:?} is not 2012-10-17",
            document.version
        )));
    }
    Ok(document)
}

/// Returns the action that IAM demands for an operation of the API.
fn action(operation: &str) -> String {
    let name = match operation {
        "ListObjects" | "ListObjectsV2" | "HeadBucket" => "ListBucket",
        "HeadObject" => "GetObject",
        "CreateMultipartUpload" | "UploadPart" | "CompleteMultipartUpload" | "CopyObject" => {
            "PutObject"
        }
        "ListMultipartUploads" => "ListBucketMultipartUploads",
        "ListParts" => "ListMultipartUploadParts",
        "GetBucketLifecycleConfiguration" => "GetLifecycleConfiguration",
        "DeleteObjects" => "DeleteObject",
        other => other,
    };
    format!("s3:{name}")
}

fn arn(bucket: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("arn:aws:s3:::{bucket}/{key}"),
        None => format!("arn:aws:s3:::{bucket}"),
    }
}

#[async_trait::async_trait]
impl S3Access for Policies {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = cx.credentials() else {
            return Err(s3_error!(AccessDenied, "Requests must be signed."));
        };
        let key = credentials.access_key.clone();
        let operation = cx.s3_op().name();
        let resource = match cx.s3_path() {
            S3Path::Root => "*".to_owned(),
            // Each of its keys is checked separately, below.
            S3Path::Bucket { .. } if operation == "DeleteObjects" => return Ok(()),
            S3Path::Bucket { bucket } => arn(bucket, None),
            S3Path::Object { bucket, key } => arn(bucket, Some(key)),
        };
        let action = action(operation);
        let query = cx.uri().query().unwrap_or_default();
        let prefix = (action == "s3:ListBucket").then(|| prefix_of(query));
        let context = RequestContext {
            prefix: prefix.as_deref(),
            if_none_match: cx.headers().contains_key("if-none-match"),
            creates: !matches!(operation, "CreateMultipartUpload" | "UploadPart"),
        };
        self.demand(&key, &action, &resource, context)
    }

    /// A copy also reads its source.
    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        let Some(credentials) = &request.credentials else {
            return Err(s3_error!(AccessDenied, "Requests must be signed."));
        };
        let CopySource::Bucket { bucket, key, .. } = &request.input.copy_source else {
            return Err(s3_error!(NotImplemented, "The source is not in a bucket."));
        };
        let source = arn(bucket, Some(key));
        self.demand(
            &credentials.access_key,
            "s3:GetObject",
            &source,
            RequestContext::default(),
        )
    }

    async fn delete_objects(&self, request: &mut S3Request<DeleteObjectsInput>) -> S3Result<()> {
        let Some(credentials) = &request.credentials else {
            return Err(s3_error!(AccessDenied, "Requests must be signed."));
        };
        // S3 answers for each key; here the first refused one refuses all.
        for object in &request.input.delete.objects {
            let resource = arn(&request.input.bucket, Some(&object.key));
            let context = RequestContext::default();
            self.demand(
                &credentials.access_key,
                "s3:DeleteObject",
                &resource,
                context,
            )?;
        }
        Ok(())
    }
}

/// Returns the prefix of a listing, decoded.
fn prefix_of(query: &str) -> String {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs
        .find(|(name, _)| *name == "prefix")
        .map_or("", |(_, value)| value);
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let hex = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let decoded = hex.and_then(|two| u8::from_str_radix(two, 16).ok());
        if let (b'%', Some(byte)) = (first, decoded) {
            bytes.push(byte);
            rest = &more[2..];
        } else {
            bytes.push(first);
            rest = more;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
