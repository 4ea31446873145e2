//! A store in an S3 bucket.
//!
//! Invariants:
//! - `create` sends one request and never retries it (a retry could hide our own success).
//! - Data requests are retried: data keys are unique, so a retry finds its own object.
//! - Requests that were refused for their credentials are repeated once where there are others (`renewed`).
//! - Bodies are in memory and never aws-chunked; every request has a time-out.
//! - Large reads bypass the SDK's HTTP client (`direct_read`), by the same rules.

mod bounded;
mod clean;
mod config;
mod credentials;
mod direct_read;
mod errors;
mod http;
mod inspect;
mod late;
mod list;
mod presign;
mod read;
mod renewed;
mod upload;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;

use crate::{
    Body, Bucket, Chunks, Create, Effect, Encryption, ErrorKind, Inspect, ListPage, Location,
    ObjectMeta, Op, OpenOptions, Patience, PendingUpload, Store, StoreError, download, key,
};

/// A store in a bucket, below a prefix.
#[derive(Clone)]
pub struct S3Store(Arc<Inner>);

struct Inner {
    root: String,
    bucket: String,
    /// Prefix of all keys; empty, or ends in `/`.
    prefix: String,
    keys: key::Keys,
    /// The endpoint's name for messages.
    endpoint: String,
    /// Client without retries, for `create`.
    commit: Client,
    /// Client with retries, for all other requests.
    data: Client,
    /// Like `data`, with a new connection for each request.
    fresh: Client,
    direct_read: direct_read::DirectRead,
    /// `None` with fixed keys.
    credentials: Option<credentials::Renewable>,
    encryption: Encryption,
    patience: Patience,
}

impl S3Store {
    /// Resolves region, endpoint and credentials, without a request to the bucket.
    pub async fn open(
        bucket: &str,
        prefix: &str,
        options: &OpenOptions,
    ) -> Result<Self, StoreError> {
        let root = Location::S3 { bucket, prefix }.to_string();
        let clients = config::clients(options).await.map_err(|(kind, detail)| {
            StoreError::new(Op::Open, &root, kind, Effect::DidNot, detail)
        })?;
        Ok(Self(Arc::new(Inner {
            root,
            bucket: bucket.to_owned(),
            prefix: if prefix.is_empty() {
                String::new()
            } else {
                format!("{prefix}/")
            },
            keys: if options.input {
                key::Keys::Foreign
            } else {
                key::Keys::Ours
            },
            endpoint: clients.endpoint,
            commit: clients.commit,
            data: clients.data,
            fresh: clients.fresh,
            direct_read: direct_read::DirectRead::new(options.low_water),
            credentials: clients.credentials,
            encryption: options.encryption.clone(),
            patience: options.patience,
        })))
    }

    /// Returns the store for daemons and commands: requests follow credentials that change.
    pub(crate) fn renewing(self) -> Arc<dyn Store> {
        match self.0.credentials.clone() {
            Some(credentials) => Arc::new(renewed::Renewed::new(self, credentials)),
            None => Arc::new(self),
        }
    }

    /// Returns a number that changes with the credentials.
    fn generation(&self) -> u64 {
        let renewable = self.0.credentials.as_ref();
        renewable.map_or(0, credentials::Renewable::generation)
    }

    /// Reads the credentials again that the store refused; returns whether there are others now.
    async fn renewed_since(&self, generation: u64) -> bool {
        match &self.0.credentials {
            Some(credentials) => credentials.renew(generation).await,
            None => false,
        }
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.0.prefix)
    }

    fn error(
        &self,
        op: Op,
        key: &str,
        kind: ErrorKind,
        effect: Effect,
        detail: impl Into<String>,
    ) -> StoreError {
        StoreError::new(op, format!("{}/{key}", self.0.root), kind, effect, detail)
    }

    fn mapped<E: errors::Failure>(&self, op: Op, key: &str, error: &errors::Sdk<E>) -> StoreError {
        let fault = errors::classify(op, error);
        let detail = match fault.kind {
            ErrorKind::Unreachable | ErrorKind::Untrusted => {
                format!("no connection to {}: {}", self.0.endpoint, fault.detail)
            }
            ErrorKind::Timeout => format!("no answer from {}: {}", self.0.endpoint, fault.detail),
            _ => fault.detail,
        };
        self.error(op, key, fault.kind, fault.effect, detail)
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Store({})", self.0.root)
    }
}

#[async_trait]
impl Store for S3Store {
    fn root(&self) -> &str {
        &self.0.root
    }

    fn key_bytes_max(&self) -> usize {
        key::KEY_BYTES_MAX - self.0.prefix.len().min(key::KEY_BYTES_MAX)
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.0.keys.check(Op::Create, &self.0.root, key)?;
        let size = body.len();
        let put = self
            .0
            .commit
            .put_object()
            .bucket(&self.0.bucket)
            .key(self.full(key));
        match put
            .if_none_match("*")
            .set_server_side_encryption(self.0.encryption.mode().map(Into::into))
            .set_ssekms_key_id(self.0.encryption.kms_key())
            .body(ByteStream::from(body))
            .customize()
            .config_override(config::for_record(self.0.patience, size))
            .send()
            .await
        {
            Ok(_) => Ok(Create::Created),
            Err(error) if errors::status(&error) == Some(412) => Ok(Create::Exists),
            Err(error) => Err(self.mapped(Op::Create, key, &error)),
        }
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.0.keys.check(Op::Upload, &self.0.root, key)?;
        upload::upload(self, key, body).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.0.keys.check(Op::Get, &self.0.root, key)?;
        download::whole(self, key, at_most, false).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.0.keys.check(Op::Get, &self.0.root, key)?;
        download::whole(self, key, at_most, true).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.0.keys.check_range(&self.0.root, key, &range)?;
        download::range(Arc::new(self.clone()), key, range).await
    }

    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        self.0.keys.check_range(&self.0.root, key, &range)?;
        direct_read::open(self.clone(), key, range, fresh).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.0.keys.check(Op::Head, &self.0.root, key)?;
        let head = self
            .0
            .data
            .head_object()
            .bucket(&self.0.bucket)
            .key(self.full(key));
        let answer = head
            .send()
            .await
            .map_err(|error| self.mapped(Op::Head, key, &error))?;
        match answer.content_length().map(u64::try_from) {
            Some(Ok(size)) => Ok(ObjectMeta {
                modified: list::modified(answer.last_modified()),
                ..ObjectMeta::new(key.to_owned(), size)
            }),
            _ => Err(self.error(
                Op::Head,
                key,
                ErrorKind::Contract,
                Effect::DidNot,
                "the answer has no length",
            )),
        }
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.0.keys.check_prefix(Op::List, &self.0.root, prefix)?;
        list::page(self, prefix, page).await
    }

    async fn list_after(&self, prefix: &str, after: &str) -> Result<ListPage, StoreError> {
        self.0.keys.check_prefix(Op::List, &self.0.root, prefix)?;
        list::page_after(self, prefix, after).await
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.0.keys.check_prefix(Op::List, &self.0.root, prefix)?;
        list::folders(self, prefix).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.0.keys.check(Op::Delete, &self.0.root, key)?;
        let delete = self
            .0
            .data
            .delete_object()
            .bucket(&self.0.bucket)
            .key(self.full(key));
        match delete
            .send()
            .await
            .map_err(|error| self.mapped(Op::Delete, key, &error))
        {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        clean::delete_many(self, keys).await
    }

    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        clean::unfinished(self, prefix).await
    }

    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.abort_upload(upload).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}
