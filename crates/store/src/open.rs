//! Opening a store by its root URL.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::{fmt, io};

use futures::future::BoxFuture;

use crate::file::FileStore;
use crate::location::Location;
use crate::memory::MemoryStore;
use crate::path_style::PathStyle;
use crate::root_url::root_url;
#[cfg(feature = "s3")]
use crate::s3::S3Store;
use crate::{Effect, ErrorKind, Op, Store, StoreError, key};

const EXAMPLES: &str = "examples: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, \
     file:///absolute/folder, ./folder";

/// Settings beside the URL. The defaults come from the environment and AWS profiles.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Create the root folder of a `file://` store if it is absent.
    pub create: bool,
    /// Accept a root folder of a `file://` store that does not exist yet: until it does, requests fail with
    /// `NoBucket`.
    pub await_folder: bool,
    /// Endpoint of the store; without one that of its cloud's variables (`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` or
    /// the profile's, `STORAGE_EMULATOR_HOST`, `AZURE_STORAGE_CONNECTION_STRING`), or the cloud's own.
    pub endpoint: Option<String>,
    /// S3 region, instead of `AWS_REGION` or the profile's.
    pub region: Option<String>,
    /// AWS profile, instead of `AWS_PROFILE`.
    pub profile: Option<String>,
    /// Whether requests to S3 name the bucket in the path or in the host.
    pub path_style: PathStyle,
    /// Fixed keys, instead of the chain of environment, profile, web identity, container and
    /// instance credentials: for S3, and for Azure as the account and its key. For tests and demos.
    pub keys: Option<AccessKeys>,
    /// Encryption at rest of objects written to S3.
    pub encryption: Encryption,
    /// Settings of Google Cloud Storage.
    pub gcs: GcsOptions,
    /// Settings of Azure Blob Storage.
    pub azure: AzureOptions,
    /// Tries and time-outs of requests over a network.
    pub patience: Patience,
    /// Read objects of others, whose keys may have any characters. Such a store creates nothing.
    pub input: bool,
    /// An optimization of large reads: fewer wake-ups per byte.
    pub low_water: Option<LowWater>,
}

/// Settings of Google Cloud Storage beside the endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcsOptions {
    /// File of a service account or of `gcloud auth application-default login`, instead of
    /// `GOOGLE_APPLICATION_CREDENTIALS`.
    pub credentials: Option<String>,
}

/// Settings of Azure Blob Storage beside the endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AzureOptions {
    /// The storage account of `az://` URLs, instead of `AZURE_STORAGE_ACCOUNT`.
    pub account: Option<String>,
    /// The client id of the managed identity, where a machine has several, instead of `AZURE_CLIENT_ID`.
    pub client_id: Option<String>,
}

/// Tries and time-outs of requests to a store that does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Patience {
    /// Five tries, with time for large bodies and a slow store.
    #[default]
    Long,
    /// Two short tries: for the first request of a command that a person waits for.
    Short,
}

/// Sets the number of bytes from which a socket counts as readable (`SO_RCVLOWAT`). Passed in, because
/// the call needs unsafe code, which this crate forbids.
pub type LowWater = fn(BorrowedFd<'_>, usize) -> io::Result<()>;

/// Encryption at rest requested by every write to S3. By default none is requested and the bucket's own
/// default applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encryption {
    /// `AES256`, `aws:kms` or `aws:kms:dsse`.
    mode: Option<String>,
    /// The KMS key; `None` for the account's default key.
    kms_key: Option<String>,
}

impl Encryption {
    /// Parses two configuration values, each of which may be empty. The error names the invalid one.
    pub fn parse(mode: &str, kms_key: &str) -> Result<Self, String> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        if !["", "AES256", "aws:kms", "aws:kms:dsse"].contains(&mode) {
            return Err(format!(
                "invalid encryption {mode:?}: use AES256, aws:kms or aws:kms:dsse, or leave it empty for the bucket's default"
            ));
        }
        if !kms_key.is_empty() && !mode.starts_with("aws:kms") {
            return Err("a KMS key needs the encryption aws:kms or aws:kms:dsse".to_owned());
        }
        Ok(Self {
            mode: given(mode),
            kms_key: given(kms_key),
        })
    }
}

#[cfg(feature = "s3")]
impl Encryption {
    /// Returns the value of the request header.
    pub(crate) fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    /// Returns the KMS key for the request header.
    pub(crate) fn kms_key(&self) -> Option<String> {
        self.kms_key.clone()
    }
}

/// A fixed pair of keys; `Debug` hides the secret.
#[derive(Clone)]
pub struct AccessKeys {
    /// The access key id, as in `AWS_ACCESS_KEY_ID`.
    pub id: String,
    /// The secret key, as in `AWS_SECRET_ACCESS_KEY`.
    pub secret: String,
}

impl fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessKeys({}, ...)", self.id)
    }
}

/// Opens the store at `url` without contacting S3; [`crate::probe`] does that.
pub fn open<'a>(
    url: &'a str,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn Store>, StoreError>> {
    Box::pin(open_scheme(url, options))
}

async fn open_scheme(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>, StoreError> {
    let url = &*root_url(url);
    let refuse = |why: &str| {
        let detail = format!("{why}; {EXAMPLES}");
        Err(StoreError::new(
            Op::Open,
            url,
            ErrorKind::Invalid,
            Effect::DidNot,
            detail,
        ))
    };
    let location = match Location::parse(url) {
        Ok(location) => location,
        Err(why) => return refuse(&why.explain(options.input)),
    };
    match location {
        Location::Folder(path) if options.await_folder => {
            Ok(Arc::new(FileStore::open_later(path).await?))
        }
        Location::Folder(path) => Ok(Arc::new(FileStore::open(path, options.create).await?)),
        Location::Memory(name) if key::fault_of(name).is_some() => refuse("memory:// takes a name"),
        Location::Memory(name) => Ok(MemoryStore::named(name)),
        Location::S3 { bucket, prefix } => match prefix_of(bucket, prefix, options.input) {
            Ok(prefix) => open_s3(url, bucket, prefix, options).await,
            Err(why) => refuse(&why),
        },
        // Google's buckets may have underscores, too.
        Location::Gcs { bucket, prefix } => {
            match prefix_of(&bucket.replace('_', "-"), prefix, options.input) {
                Ok(prefix) => open_gcs(url, bucket, prefix, options),
                Err(why) => refuse(&why),
            }
        }
        Location::Azure {
            container,
            host,
            prefix,
        } => {
            let fault = host.and_then(host_fault);
            let prefix = prefix_of(container, prefix, options.input);
            match fault.map_or(prefix, |why| Err(why.to_owned())) {
                Ok(prefix) => open_azure(url, container, host, prefix, options),
                Err(why) => refuse(&why),
            }
        }
    }
}

/// Checks the bucket and its prefix, and returns the prefix without slashes at its end.
fn prefix_of<'u>(bucket: &str, prefix: &'u str, input: bool) -> Result<&'u str, String> {
    let prefix = if input {
        prefix.strip_suffix('/').unwrap_or(prefix)
    } else {
        prefix.trim_end_matches('/')
    };
    if let Some(why) = bucket_fault(bucket) {
        return Err(why.to_owned());
    }
    let ours = !input && !prefix.is_empty();
    match key::fault_of(prefix).filter(|_| ours) {
        Some(why) => Err(format!("prefix {prefix:?}: {why}")),
        None => Ok(prefix),
    }
}

fn host_fault(host: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let good = host.contains(".dfs.") || host.contains(".blob.");
    (!good || !host.chars().all(allowed))
        .then_some("behind the @ stands the account's host, as account.dfs.core.windows.net")
}

#[cfg(feature = "s3")]
async fn open_s3(
    _url: &str,
    bucket: &str,
    prefix: &str,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    Ok(S3Store::open(bucket, prefix, options).await?.renewing())
}

#[cfg(not(feature = "s3"))]
async fn open_s3(
    url: &str,
    _bucket: &str,
    _prefix: &str,
    _options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    Err(left_out(url, "Amazon S3", "s3"))
}

#[cfg(feature = "gcs")]
fn open_gcs(
    _url: &str,
    bucket: &str,
    prefix: &str,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    crate::gcs::open(bucket, prefix, options)
}

#[cfg(not(feature = "gcs"))]
fn open_gcs(
    url: &str,
    _bucket: &str,
    _prefix: &str,
    _options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    Err(left_out(url, "Google Cloud Storage", "gcs"))
}

#[cfg(feature = "azure")]
fn open_azure(
    _url: &str,
    container: &str,
    host: Option<&str>,
    prefix: &str,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    crate::azure::open(container, host, prefix, options)
}

#[cfg(not(feature = "azure"))]
fn open_azure(
    url: &str,
    _container: &str,
    _host: Option<&str>,
    _prefix: &str,
    _options: &OpenOptions,
) -> Result<Arc<dyn Store>, StoreError> {
    Err(left_out(url, "Azure Blob Storage", "azure"))
}

/// Returns the error of a store that this program was built without.
#[cfg(not(all(feature = "s3", feature = "gcs", feature = "azure")))]
fn left_out(url: &str, what: &str, feature: &str) -> StoreError {
    let detail = format!(
        "this program was built without {what} (feature {feature}): `make build` and the wheel have it"
    );
    let (kind, effect) = (ErrorKind::Invalid, Effect::DidNot);
    StoreError::new(Op::Open, url, kind, effect, detail)
}

fn bucket_fault(bucket: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if bucket.contains('@') || bucket.contains(':') {
        return Some(
            "credentials and ports do not belong in the URL (use the cloud's variables and the endpoint's)",
        );
    }
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(allowed) {
        return Some("a bucket name has 3 to 63 characters of a-z 0-9 . -");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bad_urls_name_the_fault_and_show_examples() {
        let cases = [
            ("data/x", "for a folder here write ./data/x"),
            ("~/x", "begins with /"),
            ("", "begins with /"),
            ("file://tmp/x", "three slashes"),
            ("gcs://bucket/x", "write gs://"),
            ("gs://Bucket/x", "a-z"),
            ("gs://bucket/a b", "allowed"),
            ("abfss://c@host/x", "the account's host"),
            ("https://host/x", "AWS_ENDPOINT_URL"),
            (
                "oss://x",
                "oss:// is not supported for streams; use a bucket",
            ),
            ("s3://", "3 to 63"),
            ("s3:///prefix", "3 to 63"),
            ("s3://Bucket/x", "a-z"),
            ("s3://key:secret@bucket/x", "credentials"),
            ("s3://bucket/a//b", "empty segment"),
            ("s3://bucket/a b", "allowed"),
            ("memory://", "name"),
        ];
        for (url, part) in cases {
            let error = open(url, &OpenOptions::default()).await.unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind, ErrorKind::Invalid, "{text}");
            assert!(
                text.contains(url) && text.contains(part) && text.contains("examples:"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn input_of_other_schemes_has_a_way_on() {
        let input = OpenOptions {
            input: true,
            region: Some("us-east-1".to_owned()),
            ..OpenOptions::default()
        };
        for (url, part) in [
            ("hf://datasets/x", "hf download"),
            ("https://host/x.jsonl", "curl -O"),
            ("s3a://bucket/x", "write s3://"),
            ("oss://x", "copy the files"),
        ] {
            let text = open(url, &input).await.unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
        for (url, root) in [
            ("s3://bucket/a b/c+d%20ä", "s3://bucket/a b/c+d%20ä"),
            ("s3://bucket/a//", "s3://bucket/a/"),
            ("s3://bucket//a", "s3://bucket//a"),
        ] {
            assert_eq!(open(url, &input).await.unwrap().root(), root);
        }
    }

    #[tokio::test]
    async fn a_path_is_a_folder_which_may_be_awaited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let store = open(&path, &OpenOptions::default()).await.unwrap();
        assert_eq!(store.root(), format!("file://{path}"));
        let later = OpenOptions {
            await_folder: true,
            ..OpenOptions::default()
        };
        let absent = format!("{path}/absent");
        let store = open(&absent, &later).await.unwrap();
        assert_eq!(store.root(), format!("file://{absent}"));
    }

    #[test]
    fn unknown_encryptions_are_refused() {
        for (mode, key) in [
            ("", ""),
            ("AES256", ""),
            ("aws:kms", ""),
            ("aws:kms", "alias/a"),
        ] {
            Encryption::parse(mode, key).unwrap();
        }
        let wrong = Encryption::parse("aes256", "").unwrap_err();
        assert!(wrong.contains("use AES256"), "{wrong}");
        let wrong = Encryption::parse("AES256", "alias/a").unwrap_err();
        assert!(wrong.contains("needs the encryption aws:kms"), "{wrong}");
    }

    #[tokio::test]
    async fn memory_is_global_by_name() {
        let one = open("memory://open-test", &OpenOptions::default())
            .await
            .unwrap();
        let two = open("memory://open-test", &OpenOptions::default())
            .await
            .unwrap();
        let _ = one
            .create("k", bytes::Bytes::from_static(b"v"))
            .await
            .unwrap();
        assert_eq!(two.get("k", u64::MAX).await.unwrap(), "v");
    }
}
