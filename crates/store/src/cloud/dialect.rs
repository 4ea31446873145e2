//! The differences between the HTTP interfaces of clouds: requests, answers, credentials.

use std::fmt::Debug;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::CloudStore;
use super::answer::{Answer, Fault};
use crate::{Create, ErrorKind, Guards, LifecycleRule, PendingUpload, StoreError, Versioning};

pub(crate) type Request = http::Request<Bytes>;

/// One page of a listing to request.
pub(crate) struct Listing<'a> {
    /// The prefix in the bucket.
    pub(crate) prefix: &'a str,
    pub(crate) page: Option<&'a str>,
    /// Names from this one on, itself included, where the cloud can begin there.
    pub(crate) from: Option<&'a str>,
    /// Names of folders below the prefix instead of all objects.
    pub(crate) folders: bool,
}

/// An object as an answer describes it, by its name in the bucket.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<SystemTime>,
}

/// The answer to a [`Listing`].
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Listed>,
    /// Prefixes of folders in the bucket, each with its `/`.
    pub(crate) folders: Vec<String>,
    pub(crate) next: Option<String>,
}

/// An error answer in the cloud's own words.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
    /// The id that the cloud's support asks for.
    pub(crate) request_id: Option<String>,
}

/// The requests of one cloud. All names are those in the bucket.
#[async_trait]
pub(crate) trait Dialect: Send + Sync + Debug + 'static {
    /// Signs a request. Called for each try, since credentials change.
    async fn authorize(&self, request: Request) -> Result<Request, Fault>;

    /// Creates an object if it is absent.
    fn create(&self, name: &str, body: Bytes) -> Request;

    /// Reads an object; the caller adds a range.
    fn get(&self, name: &str) -> Request;

    fn head(&self, name: &str) -> Request;

    /// Reads the answer to `head`.
    fn described(&self, name: &str, answer: &Answer) -> Result<Listed, String>;

    fn list(&self, listing: &Listing<'_>) -> Request;

    fn page(&self, body: &[u8]) -> Result<Page, String>;

    /// Whether `list` can begin at a name.
    fn lists_from(&self) -> bool;

    fn delete(&self, name: &str) -> Request;

    fn refusal(&self, headers: &HeaderMap, body: &[u8]) -> Refusal;

    /// Returns the kind of a refusal whose status alone says too little.
    fn kind(&self, status: u16, refusal: &Refusal) -> Option<ErrorKind>;

    /// Whether a create was refused because the object exists.
    fn exists(&self, status: u16, code: &str) -> bool;

    /// Uploads a large body in parts; creates the object only if it is absent.
    async fn upload_in_parts(
        &self,
        store: &CloudStore,
        key: &str,
        body: &Bytes,
    ) -> Result<Create, StoreError>;

    /// Uploads all but the completion, for the probe.
    async fn begin_upload(
        &self,
        store: &CloudStore,
        key: &str,
        body: Bytes,
    ) -> Result<PendingUpload, StoreError>;

    /// Sends the one request that completes an upload.
    async fn complete_upload(
        &self,
        store: &CloudStore,
        upload: &PendingUpload,
    ) -> Result<Create, StoreError>;

    async fn abort_upload(
        &self,
        store: &CloudStore,
        upload: &PendingUpload,
    ) -> Result<(), StoreError>;

    /// Requests to create an object that is refused for a reason other than a missing permission.
    async fn may_create(&self, store: &CloudStore, key: &str) -> Result<(), StoreError>;

    /// Returns a create whose checksum does not match its body.
    fn create_damaged(&self, name: &str, body: Bytes) -> Request;

    async fn versioning(&self, store: &CloudStore) -> Result<Versioning, StoreError>;

    /// Returns the rules of the whole bucket; `None` where only the cloud's management interface has them.
    async fn lifecycle(&self, store: &CloudStore)
    -> Result<Option<Vec<LifecycleRule>>, StoreError>;

    async fn guards(&self, store: &CloudStore) -> Result<Guards, StoreError>;
}

/// Characters that stay as they are in a name.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Returns a name as one segment of a path, or as the value of a query.
pub(crate) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, &UNRESERVED).to_string()
}

/// Returns a name as the segments of a path.
pub(crate) fn encoded_path(name: &str) -> String {
    const SLASHES: AsciiSet = UNRESERVED.remove(b'/');
    utf8_percent_encode(name, &SLASHES).to_string()
}

/// Reads a time as RFC 3339 or RFC 9110 writes it.
pub(crate) fn time(text: &str) -> Option<SystemTime> {
    use chrono::DateTime;
    let read = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text));
    read.ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_and_times() {
        assert_eq!(encoded("log/7 @ä"), "log%2F7%20%40%C3%A4");
        assert_eq!(encoded_path("log/7@=."), "log/7%40%3D.");
        let second = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(time("Sun, 06 Nov 1994 08:49:37 GMT"), Some(second));
        assert_eq!(time("1994-11-06T08:49:37Z"), Some(second));
        assert_eq!(time("yesterday"), None);
    }
}
