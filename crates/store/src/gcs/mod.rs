//! Google Cloud Storage, by its JSON interface: <https://cloud.google.com/storage/docs/json_api/v1>.

mod config;
mod json;
mod resumable;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Uri};
use object_store::gcp::GcpCredential;

use self::json::Metadata;
use crate::cloud::answer::Fault;
use crate::cloud::{
    Answer, CloudStore, Dialect, Listed, Listing, Page, Place, Refusal, Request, encoded, header,
    signing,
};
use crate::{
    Create, Effect, ErrorKind, Guards, LifecycleRule, Location, Op, OpenOptions, PendingUpload,
    Store, StoreError, Versioning,
};

/// Most names of a page, which is also the server's limit.
const PAGE: &str = "1000";
const FIELDS: &str = "name,size,etag,updated";
/// A CRC32C that does not match the body.
const WRONG_CRC32C: &str = "AAAAAA==";
const BOUNDARY: &str = "batchweave-part";

type Credentials = Arc<dyn object_store::CredentialProvider<Credential = GcpCredential>>;

#[derive(Debug)]
struct Gcs {
    /// `https://host`, without a slash at its end.
    endpoint: String,
    bucket: String,
    /// `None` for requests without credentials, as to an emulator.
    credentials: Option<Credentials>,
}

/// Opens the store below `prefix` of a bucket, without a request.
pub(crate) fn open(
    bucket: &str,
    prefix: &str,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    let root = Location::Gcs { bucket, prefix }.to_string();
    let opened = config::resolve(bucket, options).map_err(|fault| {
        StoreError::new(Op::Open, &root, fault.kind, Effect::DidNot, fault.detail)
    })?;
    let place = Place { root, prefix };
    let (transport, dialect) = opened;
    let store = CloudStore::new(place, options, transport, Box::new(dialect));
    Ok(Arc::new(store))
}

impl Gcs {
    fn request(&self, method: Method, path_and_query: &str, body: Bytes) -> Request {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        let url = format!("{}{path_and_query}", self.endpoint);
        // Our own text, of characters that a URL may have.
        *request.uri_mut() = Uri::try_from(url).unwrap_or_default();
        let length = HeaderValue::from(request.body().len());
        request.headers_mut().insert(CONTENT_LENGTH, length);
        request
    }

    fn plain(&self, method: Method, path_and_query: &str) -> Request {
        self.request(method, path_and_query, Bytes::new())
    }

    fn object(&self, name: &str) -> String {
        format!("/storage/v1/b/{}/o/{}", self.bucket, encoded(name))
    }

    /// Returns the path of a conditional create; `kind` is the interface's `uploadType`.
    fn upload(&self, kind: &str, name: &str) -> String {
        let bucket = &self.bucket;
        format!(
            "/upload/storage/v1/b/{bucket}/o?uploadType={kind}&ifGenerationMatch=0&name={}",
            encoded(name)
        )
    }

    async fn properties(&self, store: &CloudStore) -> Result<json::Bucket, StoreError> {
        let path = format!("/storage/v1/b/{}?fields={}", self.bucket, json::FIELDS);
        let request = || self.plain(Method::GET, &path);
        let answer = store.answered(Op::List, "?bucket", request).await?;
        serde_json::from_slice(&answer.body)
            .map_err(|why| store.broken(Op::Head, "?bucket", why.to_string()))
    }
}

#[async_trait]
impl Dialect for Gcs {
    async fn authorize(&self, mut request: Request) -> Result<Request, Fault> {
        let Some(credentials) = &self.credentials else {
            return Ok(request);
        };
        let found = signing::credentials(&**credentials, config::HINT).await?;
        signing::note(&found.bearer);
        let value = HeaderValue::try_from(format!("Bearer {}", found.bearer));
        let mut value = value.map_err(|why| Fault::unsent(ErrorKind::Denied, why.to_string()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
        Ok(request)
    }

    fn create(&self, name: &str, body: Bytes) -> Request {
        let mut request = self.request(Method::POST, &self.upload("media", name), body);
        let any = HeaderValue::from_static("application/octet-stream");
        request.headers_mut().insert(CONTENT_TYPE, any);
        request
    }

    fn get(&self, name: &str) -> Request {
        self.plain(Method::GET, &format!("{}?alt=media", self.object(name)))
    }

    fn head(&self, name: &str) -> Request {
        self.plain(
            Method::GET,
            &format!("{}?fields={FIELDS}", self.object(name)),
        )
    }

    fn described(&self, _name: &str, answer: &Answer) -> Result<Listed, String> {
        let metadata: Metadata =
            serde_json::from_slice(&answer.body).map_err(|why| why.to_string())?;
        metadata.listed()
    }

    fn list(&self, listing: &Listing<'_>) -> Request {
        let mut query = format!(
            "/storage/v1/b/{}/o?maxResults={PAGE}&prefix={}&fields=nextPageToken,prefixes,items({FIELDS})",
            self.bucket,
            encoded(listing.prefix)
        );
        if listing.folders {
            query.push_str("&delimiter=%2F");
        }
        for (name, value) in [
            ("&startOffset=", listing.from),
            ("&pageToken=", listing.page),
        ] {
            if let Some(value) = value {
                query += name;
                query += &encoded(value);
            }
        }
        self.plain(Method::GET, &query)
    }

    fn page(&self, body: &[u8]) -> Result<Page, String> {
        json::page(body)
    }

    fn lists_from(&self) -> bool {
        true
    }

    fn delete(&self, name: &str) -> Request {
        self.plain(Method::DELETE, &self.object(name))
    }

    fn refusal(&self, headers: &HeaderMap, body: &[u8]) -> Refusal {
        let mut refusal = json::refusal(body);
        refusal.request_id = header(headers, "x-guploader-uploadid").map(str::to_owned);
        refusal
    }

    fn kind(&self, status: u16, refusal: &Refusal) -> Option<ErrorKind> {
        match (status, refusal.code.as_str()) {
            (403, "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded") => {
                Some(ErrorKind::Throttled)
            }
            // A missing object and a missing bucket have the same status and reason.
            (404, _) if refusal.message.contains("bucket does not exist") => {
                Some(ErrorKind::NoBucket)
            }
            _ => None,
        }
    }

    fn exists(&self, status: u16, _code: &str) -> bool {
        status == 412
    }

    async fn upload_in_parts(
        &self,
        store: &CloudStore,
        key: &str,
        body: &Bytes,
    ) -> Result<Create, StoreError> {
        resumable::upload(self, store, key, body).await
    }

    /// The interface takes the last part with the completion.
    async fn begin_upload(
        &self,
        store: &CloudStore,
        key: &str,
        body: Bytes,
    ) -> Result<PendingUpload, StoreError> {
        Ok(PendingUpload {
            key: key.to_owned(),
            id: resumable::begin(self, store, Op::Upload, key).await?,
            last: body,
            ..PendingUpload::default()
        })
    }

    async fn complete_upload(
        &self,
        store: &CloudStore,
        upload: &PendingUpload,
    ) -> Result<Create, StoreError> {
        if upload.id.is_empty() {
            return Ok(Create::Exists);
        }
        let (key, whole) = (&upload.key, 0..upload.last.len());
        let request = resumable::part(&upload.id, &upload.last, whole);
        let answer = store.unsigned(Op::Upload, key, request).await?;
        store.created(Op::Upload, key, &answer)
    }

    async fn abort_upload(
        &self,
        store: &CloudStore,
        upload: &PendingUpload,
    ) -> Result<(), StoreError> {
        resumable::abort(store, &upload.key, &upload.id).await
    }

    /// Begins an upload, which needs the permission of a create and makes no object, and aborts it.
    async fn may_create(&self, store: &CloudStore, key: &str) -> Result<(), StoreError> {
        let session = resumable::begin(self, store, Op::Create, key).await?;
        if session.is_empty() {
            return Ok(());
        }
        resumable::abort(store, key, &session).await
    }

    fn create_damaged(&self, name: &str, body: Bytes) -> Request {
        let metadata = format!("{{\"name\":{name:?},\"crc32c\":\"{WRONG_CRC32C}\"}}");
        let mut parts = format!(
            "--{BOUNDARY}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{metadata}\r\n\
             --{BOUNDARY}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        parts.extend_from_slice(&body);
        parts.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
        let path = self.upload("multipart", name);
        let mut request = self.request(Method::POST, &path, parts.into());
        let kind = HeaderValue::from_static("multipart/related; boundary=batchweave-part");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        request
    }

    async fn versioning(&self, store: &CloudStore) -> Result<Versioning, StoreError> {
        Ok(self.properties(store).await?.versioning())
    }

    async fn lifecycle(
        &self,
        store: &CloudStore,
    ) -> Result<Option<Vec<LifecycleRule>>, StoreError> {
        Ok(Some(self.properties(store).await?.rules()))
    }

    async fn guards(&self, store: &CloudStore) -> Result<Guards, StoreError> {
        Ok(self.properties(store).await?.guards())
    }
}
