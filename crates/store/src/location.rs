//! The place of a store, as its URL names it.

mod names;

use std::fmt;
use std::path::Path;

pub use names::Permission;

const FILE: &str = "file://";

/// The place of a store. Names are not checked here: [`crate::open`] refuses those that no store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location<'u> {
    /// A folder of this machine, by its absolute path.
    Folder(&'u Path),
    /// The objects of a bucket.
    S3 {
        /// The name of the bucket.
        bucket: &'u str,
        /// The folder of the keys in the bucket; empty for the whole bucket.
        prefix: &'u str,
    },
    /// The objects of a bucket of Google Cloud Storage.
    Gcs {
        /// The name of the bucket.
        bucket: &'u str,
        /// The folder of the keys in the bucket; empty for the whole bucket.
        prefix: &'u str,
    },
    /// The blobs of a container of Azure Blob Storage.
    Azure {
        /// The name of the container.
        container: &'u str,
        /// The host of the account, as `account.dfs.core.windows.net`; `None` where the settings name the account.
        host: Option<&'u str>,
        /// The folder of the keys in the container; empty for the whole container.
        prefix: &'u str,
    },
    /// A store in the memory of this process, by its name.
    Memory(&'u str),
}

/// The reason why a text is not the place of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocationError<'u> {
    /// The text is not a URL.
    NoScheme(&'u str),
    /// The URL names a folder by a relative path.
    RelativeFolder,
    /// No store has this scheme.
    OtherScheme(&'u str),
}

impl<'u> Location<'u> {
    /// Parses the URL of a store, or of an object in it.
    pub fn parse(url: &'u str) -> Result<Self, LocationError<'u>> {
        let (scheme, rest) = url.split_once("://").ok_or(LocationError::NoScheme(url))?;
        match scheme {
            "file" if !rest.starts_with('/') => Err(LocationError::RelativeFolder),
            "file" => Ok(Self::Folder(Path::new(rest))),
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                Ok(Self::S3 { bucket, prefix })
            }
            "gs" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                Ok(Self::Gcs { bucket, prefix })
            }
            "az" | "abfss" => {
                let (place, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let (container, host) = match place.split_once('@') {
                    Some((container, host)) => (container, Some(host)),
                    None => (place, None),
                };
                Ok(Self::Azure {
                    container,
                    host,
                    prefix,
                })
            }
            "memory" => Ok(Self::Memory(rest)),
            other => Err(LocationError::OtherScheme(other)),
        }
    }

    /// Returns the last part of the path, or the bucket where there is no path: a short name for messages.
    pub fn name(self) -> String {
        let path = match self {
            Self::Folder(path) => path.display().to_string(),
            Self::S3 { bucket, prefix } | Self::Gcs { bucket, prefix } => {
                format!("{bucket}/{prefix}")
            }
            Self::Azure {
                container, prefix, ..
            } => format!("{container}/{prefix}"),
            Self::Memory(name) => name.to_owned(),
        };
        let path = path.trim_end_matches('/');
        path.rsplit('/').next().unwrap_or(path).to_owned()
    }

    /// Returns whether the store is behind a network.
    pub fn is_remote(self) -> bool {
        matches!(
            self,
            Self::S3 { .. } | Self::Gcs { .. } | Self::Azure { .. }
        )
    }

    /// Returns the place of the whole bucket, container or folder.
    #[must_use]
    pub fn whole(self) -> Self {
        let prefix = "";
        match self {
            Self::S3 { bucket, .. } => Self::S3 { bucket, prefix },
            Self::Gcs { bucket, .. } => Self::Gcs { bucket, prefix },
            Self::Azure {
                container, host, ..
            } => Self::Azure {
                container,
                host,
                prefix,
            },
            other => other,
        }
    }
}

/// Writes the URL of the location.
impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{FILE}{}", path.display()),
            Self::S3 { bucket, prefix: "" } => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::Gcs { bucket, prefix: "" } => write!(f, "gs://{bucket}"),
            Self::Gcs { bucket, prefix } => write!(f, "gs://{bucket}/{prefix}"),
            Self::Azure {
                container,
                host,
                prefix,
            } => {
                match host {
                    Some(host) => write!(f, "abfss://{container}@{host}")?,
                    None => write!(f, "az://{container}")?,
                }
                match *prefix {
                    "" => Ok(()),
                    prefix => write!(f, "/{prefix}"),
                }
            }
            Self::Memory(name) => write!(f, "memory://{name}"),
        }
    }
}

impl LocationError<'_> {
    /// Explains the error, with a remedy for the URL of a stream, or of input.
    pub(crate) fn explain(self, input: bool) -> String {
        match self {
            Self::NoScheme(given) => without_scheme(given),
            Self::RelativeFolder => "file:// takes an absolute path, so three slashes".to_owned(),
            Self::OtherScheme(scheme) => other_scheme(scheme, input),
        }
    }
}

impl fmt::Display for LocationError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explain(false))
    }
}

impl std::error::Error for LocationError<'_> {}

/// Returns the path on this machine that `place` names by itself or as a `file://` URL; `None` for the URL of another
/// scheme. The path may be relative, a pattern, or nothing that exists.
pub fn local_path(place: &str) -> Option<&str> {
    let path = place.strip_prefix(FILE);
    path.or((!place.contains("://")).then_some(place))
}

/// Explains a scheme that no store has, with a remedy if one exists.
fn other_scheme(scheme: &str, input: bool) -> String {
    let remedy = match (scheme, input) {
        ("gcs", _) => "write gs://",
        ("azure" | "abfs" | "adl" | "wasb" | "wasbs", _) => {
            "write az://container/prefix, or abfss://container@account.dfs.core.windows.net/prefix"
        }
        ("hf", true) => {
            "download the files, with `hf download NAME --repo-type dataset --local-dir data`, and name their folder"
        }
        ("http" | "https" | "ftp", true) => {
            "download the files, with `curl -O URL`, and name them or their folder"
        }
        ("http" | "https", false) => {
            "the URL of an S3 server is store.endpoint or AWS_ENDPOINT_URL, and the bucket is in s3://bucket/prefix"
        }
        ("s3a" | "s3n", _) => "write s3://",
        (_, true) => {
            "copy the files to a bucket (s3://, gs://, az://) or to a folder, and name that"
        }
        _ => "use a bucket (s3://, gs://, az://) or a folder",
    };
    let what = if input { "input" } else { "streams" };
    format!("{scheme}:// is not supported for {what}; {remedy}")
}

/// Explains a root without a scheme that does not look like a path.
fn without_scheme(url: &str) -> String {
    const PATHS: &str = "the root is a URL or a path that begins with /, ./ or ../";
    if url.is_empty() || url.starts_with('~') {
        return PATHS.to_owned();
    }
    format!("{PATHS}: for a folder here write ./{url}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s3<'u>(bucket: &'u str, prefix: &'u str) -> Location<'u> {
        Location::S3 { bucket, prefix }
    }

    fn gcs<'u>(bucket: &'u str, prefix: &'u str) -> Location<'u> {
        Location::Gcs { bucket, prefix }
    }

    fn azure<'u>(container: &'u str, host: Option<&'u str>, prefix: &'u str) -> Location<'u> {
        Location::Azure {
            container,
            host,
            prefix,
        }
    }

    #[test]
    fn permissions_have_the_stores_own_names() {
        let create = |location: Location<'static>| location.permission(Permission::Create);
        assert_eq!(create(s3("b", "a")), Some("s3:PutObject"));
        assert_eq!(create(gcs("b", "a")), Some("storage.objects.create"));
        assert!(
            create(azure("c", None, "a"))
                .unwrap()
                .ends_with("blobs/write")
        );
        assert_eq!(create(Location::Memory("x")), None);
        assert_eq!(azure("c", None, "a").whole().to_string(), "az://c");
    }

    #[test]
    fn urls_are_places_with_names() {
        for (url, place, name) in [
            ("s3://bucket/a/first", s3("bucket", "a/first"), "first"),
            ("s3://bucket", s3("bucket", ""), "bucket"),
            ("s3://b/a//", s3("b", "a//"), "a"),
            (
                "file:///data/x/",
                Location::Folder(Path::new("/data/x/")),
                "x",
            ),
            ("file:///a/..", Location::Folder(Path::new("/a/..")), ".."),
            ("memory://x", Location::Memory("x"), "x"),
            ("gs://b/a/first", gcs("b", "a/first"), "first"),
            ("gs://b", gcs("b", ""), "b"),
            ("az://c/a", azure("c", None, "a"), "a"),
            ("az://c", azure("c", None, ""), "c"),
            (
                "abfss://c@acme.dfs.core.windows.net/a/b",
                azure("c", Some("acme.dfs.core.windows.net"), "a/b"),
                "b",
            ),
        ] {
            assert_eq!(Location::parse(url), Ok(place));
            assert_eq!(place.to_string(), url);
            assert_eq!(place.name(), name);
        }
        assert_eq!(s3("b", "").to_string(), "s3://b");
        assert_eq!(Location::parse("s3://b/"), Ok(s3("b", "")));
    }

    #[test]
    fn other_texts_are_refused_with_a_remedy() {
        for (text, part) in [
            ("data", "write ./data"),
            ("", "begins with /"),
            ("file://data", "three slashes"),
            ("file://", "three slashes"),
            ("gcs://bucket/x", "write gs://"),
            ("wasbs://c@a/x", "write az://"),
            ("oss://bucket/x", "use a bucket"),
        ] {
            let why = Location::parse(text).unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn paths_and_file_urls_are_local() {
        for (place, path) in [
            ("/data/a%20*.jsonl", Some("/data/a%20*.jsonl")),
            ("file:///data/a", Some("/data/a")),
            ("file://data", Some("data")),
            ("data/*", Some("data/*")),
            ("s3://bucket/a", None),
            ("gs://bucket/a", None),
        ] {
            assert_eq!(local_path(place), path);
        }
    }
}
