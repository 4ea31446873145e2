//! Azure Blob Storage, by its REST interface: <https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api>.
//! Accounts with a hierarchical namespace are used through the same interface.

mod blocks;
mod config;
mod xml;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{Method, Uri};
use object_store::azure::{AzureAuthorizer, AzureCredential};
use object_store::client::HttpRequestBody;

use crate::cloud::answer::Fault;
use crate::cloud::dialect::encoded_path;
use crate::cloud::{
    Answer, CloudStore, Dialect, Listed, Listing, Page, Place, Refusal, Request, encoded, header,
    signing, time,
};
use crate::{
    Create, Effect, ErrorKind, Guards, LifecycleRule, Location, Op, OpenOptions, PendingUpload,
    Store, StoreError, Versioning,
};

/// Most names of a page.
const PAGE: u32 = 1000;
/// An MD5 digest that matches no known body.
const WRONG_MD5: &str = "AAAAAAAAAAAAAAAAAAAAAA==";
const BLOB_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-type");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// The `sig` of a shared access signature is not shown.
const SIGNATURE: &str = "sig";

type Credentials = Arc<dyn object_store::CredentialProvider<Credential = AzureCredential>>;

#[derive(Debug)]
struct Azure {
    account: String,
    /// The account's address, without a slash at its end; an emulator's has the account in its path.
    endpoint: String,
    container: String,
    credentials: Credentials,
}

/// Opens the store below `prefix` of a container, without a request. `host` is the account's, where the URL has it.
pub(crate) fn open(
    container: &str,
    host: Option<&str>,
    prefix: &str,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    let location = Location::Azure {
        container,
        host,
        prefix,
    };
    let root = location.to_string();
    let opened = config::resolve(container, host, options).map_err(|fault| {
        StoreError::new(Op::Open, &root, fault.kind, Effect::DidNot, fault.detail)
    })?;
    let place = Place { root, prefix };
    let (transport, dialect) = opened;
    let store = CloudStore::new(place, options, transport, Box::new(dialect));
    Ok(Arc::new(store))
}

impl Azure {
    /// Returns a request below the container; `rest` is a path with its `/`, a query, or both.
    fn request(&self, method: Method, rest: &str, body: Bytes) -> Request {
        let url = format!("{}/{}{rest}", self.endpoint, self.container);
        Self::to(method, &url, body)
    }

    fn to(method: Method, url: &str, body: Bytes) -> Request {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // Our own text, of characters that a URL may have.
        *request.uri_mut() = Uri::try_from(url).unwrap_or_default();
        let length = HeaderValue::from(request.body().len());
        request.headers_mut().insert(CONTENT_LENGTH, length);
        request
    }

    fn plain(&self, method: Method, rest: &str) -> Request {
        self.request(method, rest, Bytes::new())
    }

    fn blob(name: &str) -> String {
        format!("/{}", encoded_path(name))
    }

    async fn service(&self, store: &CloudStore) -> Result<xml::Service, StoreError> {
        let url = format!("{}/?restype=service&comp=properties", self.endpoint);
        let request = || Self::to(Method::GET, &url, Bytes::new());
        let answer = store.answered(Op::List, "?properties", request).await?;
        xml::service(&answer.body).map_err(|why| store.broken(Op::Head, "?properties", why))
    }
}

fn absent(request: &mut Request) {
    let any = HeaderValue::from_static("*");
    request.headers_mut().insert(IF_NONE_MATCH, any);
}

#[async_trait]
impl Dialect for Azure {
    async fn authorize(&self, request: Request) -> Result<Request, Fault> {
        let found = signing::credentials(&*self.credentials, config::HINT).await?;
        match &*found {
            AzureCredential::BearerToken(token) => signing::note(token),
            AzureCredential::SASToken(pairs) => {
                if let Some((_, value)) = pairs.iter().find(|(name, _)| name == SIGNATURE) {
                    signing::note(value);
                }
            }
            AzureCredential::AccessKey(_) => {}
        }
        let (head, body) = request.into_parts();
        let mut signed = http::Request::from_parts(head, HttpRequestBody::empty());
        let signs = AzureAuthorizer::new(&found, &self.account).try_authorize(&mut signed);
        signs.map_err(|why| Fault::unsent(ErrorKind::Other, why.to_string()))?;
        Ok(Request::from_parts(signed.into_parts().0, body))
    }

    fn create(&self, name: &str, body: Bytes) -> Request {
        let mut request = self.request(Method::PUT, &Self::blob(name), body);
        let block = HeaderValue::from_static("BlockBlob");
        request.headers_mut().insert(BLOB_TYPE, block);
        absent(&mut request);
        request
    }

    fn get(&self, name: &str) -> Request {
        self.plain(Method::GET, &Self::blob(name))
    }

    fn head(&self, name: &str) -> Request {
        self.plain(Method::HEAD, &Self::blob(name))
    }

    fn described(&self, name: &str, answer: &Answer) -> Result<Listed, String> {
        let size = answer.header("content-length");
        let size = size.and_then(|size| size.parse().ok());
        Ok(Listed {
            name: name.to_owned(),
            size: size.ok_or("the answer has no length")?,
            etag: answer.header("etag").map(str::to_owned),
            modified: answer.header("last-modified").and_then(time),
        })
    }

    fn list(&self, listing: &Listing<'_>) -> Request {
        let marker = listing.page.map(encoded).unwrap_or_default();
        let query = format!(
            "?restype=container&comp=list&maxresults={PAGE}&prefix={}&marker={marker}",
            encoded(listing.prefix)
        );
        let by_folder = if listing.folders {
            "&delimiter=%2F"
        } else {
            ""
        };
        self.plain(Method::GET, &format!("{query}{by_folder}"))
    }

    fn page(&self, body: &[u8]) -> Result<Page, String> {
        xml::page(body)
    }

    fn lists_from(&self) -> bool {
        false
    }

    fn delete(&self, name: &str) -> Request {
        self.plain(Method::DELETE, &Self::blob(name))
    }

    fn refusal(&self, headers: &HeaderMap, body: &[u8]) -> Refusal {
        let mut refusal = xml::refusal(body);
        if let Some(code) = header(headers, "x-ms-error-code") {
            code.clone_into(&mut refusal.code);
        }
        refusal.request_id = header(headers, "x-ms-request-id").map(str::to_owned);
        refusal
    }

    fn kind(&self, status: u16, refusal: &Refusal) -> Option<ErrorKind> {
        match (status, refusal.code.as_str()) {
            (404, "ContainerNotFound" | "ContainerBeingDeleted")
            | (409, "ContainerBeingDeleted") => Some(ErrorKind::NoBucket),
            (409, "AccountBeingCreated") => Some(ErrorKind::Server),
            (409, "BlobImmutableDueToPolicy" | "BlobImmutableDueToLegalHold") => {
                Some(ErrorKind::Denied)
            }
            (403, "AuthenticationFailed" | "InvalidAuthenticationInfo") => {
                Some(ErrorKind::WrongKeys)
            }
            (416, _) => Some(ErrorKind::Range),
            _ => None,
        }
    }

    fn exists(&self, status: u16, code: &str) -> bool {
        matches!((status, code), (409, "BlobAlreadyExists") | (412, _))
    }

    async fn upload_in_parts(
        &self,
        store: &CloudStore,
        key: &str,
        body: &Bytes,
    ) -> Result<Create, StoreError> {
        blocks::upload(self, store, key, body).await
    }

    async fn begin_upload(
        &self,
        store: &CloudStore,
        key: &str,
        body: Bytes,
    ) -> Result<PendingUpload, StoreError> {
        let id = blocks::id(rand::random(), 0);
        blocks::put(self, store, Op::Upload, key, &id, body).await?;
        Ok(PendingUpload {
            key: key.to_owned(),
            id,
            ..PendingUpload::default()
        })
    }

    async fn complete_upload(
        &self,
        store: &CloudStore,
        upload: &PendingUpload,
    ) -> Result<Create, StoreError> {
        blocks::commit_once(self, store, upload).await
    }

    /// Blocks without an object vanish by themselves within a week; nothing deletes them sooner.
    async fn abort_upload(
        &self,
        _store: &CloudStore,
        _upload: &PendingUpload,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    async fn may_create(&self, store: &CloudStore, key: &str) -> Result<(), StoreError> {
        store.may_create_damaged(key).await
    }

    fn create_damaged(&self, name: &str, body: Bytes) -> Request {
        let mut request = self.create(name, body);
        let wrong = HeaderValue::from_static(WRONG_MD5);
        request.headers_mut().insert(CONTENT_MD5, wrong);
        request
    }

    /// Only the management interface of the account tells.
    async fn versioning(&self, store: &CloudStore) -> Result<Versioning, StoreError> {
        let why = format!(
            "only Azure's management interface has it: az storage account blob-service-properties show \
             --account-name {} --query isVersioningEnabled",
            self.account
        );
        let (op, effect) = (Op::Head, Effect::DidNot);
        Err(store.error(op, "?versioning", ErrorKind::Other, effect, why))
    }

    async fn lifecycle(
        &self,
        _store: &CloudStore,
    ) -> Result<Option<Vec<LifecycleRule>>, StoreError> {
        Ok(None)
    }

    async fn guards(&self, store: &CloudStore) -> Result<Guards, StoreError> {
        let request = || self.plain(Method::HEAD, "?restype=container");
        let container = store.answered(Op::List, "?container", request).await?;
        let has = |name| container.header(name) == Some("true");
        Ok(Guards {
            soft_delete: self.service(store).await?.soft_delete(),
            immutable: has("x-ms-has-immutability-policy"),
            holds: has("x-ms-has-legal-hold"),
            ..Guards::default()
        })
    }
}
