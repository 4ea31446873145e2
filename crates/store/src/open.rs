//! Opening a store by its root URL.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::file::FileStore;
use crate::location::Location;
use crate::memory::MemoryStore;
use crate::root_url::root_url;
#[cfg(feature = "s3")]
use crate::s3::S3Store;
use crate::{Effect, ErrorKind, Op, OpenOptions, Store, StoreError, key};

const EXAMPLES: &str = "examples: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, \
     file:///absolute/folder, ./folder";

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
        Location::S3 { bucket, prefix } => match prefix_of(&S3, bucket, prefix, options.input) {
            Ok(prefix) => open_s3(url, bucket, prefix, options).await,
            Err(why) => refuse(&why),
        },
        Location::Gcs { bucket, prefix } => match prefix_of(&GCS, bucket, prefix, options.input) {
            Ok(prefix) => open_gcs(url, bucket, prefix, options),
            Err(why) => refuse(&why),
        },
        Location::Azure {
            container,
            host,
            prefix,
        } => {
            let fault = host.and_then(host_fault);
            let prefix = prefix_of(&AZURE, container, prefix, options.input);
            match fault.map_or(prefix, |why| Err(why.to_owned())) {
                Ok(prefix) => open_azure(url, container, host, prefix, options),
                Err(why) => refuse(&why),
            }
        }
    }
}

/// Checks the bucket and its prefix, and returns the prefix without slashes at its end.
fn prefix_of<'u>(
    names: &Names,
    bucket: &str,
    prefix: &'u str,
    input: bool,
) -> Result<&'u str, String> {
    let prefix = if input {
        prefix.strip_suffix('/').unwrap_or(prefix)
    } else {
        prefix.trim_end_matches('/')
    };
    if let Some(why) = names.fault(bucket) {
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

/// The names that a store's buckets may have.
struct Names {
    /// Characters beside a-z and 0-9.
    others: &'static str,
    longest: usize,
    rule: &'static str,
}

const S3: Names = Names {
    others: ".-",
    longest: 63,
    rule: "a bucket name has 3 to 63 characters of a-z 0-9 . -",
};
const GCS: Names = Names {
    others: "._-",
    longest: 222,
    rule: "a bucket name has 3 to 222 characters of a-z 0-9 . _ -",
};
const AZURE: Names = Names {
    others: "-",
    longest: 63,
    rule: "a container name has 3 to 63 characters of a-z 0-9 -",
};

impl Names {
    fn fault(&self, bucket: &str) -> Option<&'static str> {
        let allowed =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || self.others.contains(c);
        if bucket.contains('@') || bucket.contains(':') {
            return Some(
                "credentials and ports do not belong in the URL (use the cloud's variables and the endpoint's)",
            );
        }
        let fits = (3..=self.longest).contains(&bucket.len()) && bucket.chars().all(allowed);
        (!fits).then_some(self.rule)
    }
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
            ("gs://Bucket/x", "a-z 0-9 . _ -"),
            ("az://a_b/x", "a container name has"),
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
            ("s3://a_b/x", "a-z 0-9 . -"),
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
