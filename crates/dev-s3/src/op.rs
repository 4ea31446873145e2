//! The kinds of requests that faults, latency and statistics distinguish.

use std::fmt;

use hyper::Method;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Get,
    Head,
    /// The operations `PutObject` and `CopyObject`.
    Put,
    /// The operations `DeleteObject` and `DeleteObjects`.
    Delete,
    List,
    Part,
    /// Multipart uploads, except their parts.
    Multipart,
    /// All operations on buckets.
    Bucket,
}

impl Op {
    /// Every kind, in the order of the statistics.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::Head,
        Self::Put,
        Self::Delete,
        Self::List,
        Self::Part,
        Self::Multipart,
        Self::Bucket,
    ];

    /// Returns the name in fault specifications and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Part => "part",
            Self::Multipart => "multipart",
            Self::Bucket => "bucket",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the bucket in a `Host` header (virtual-hosted style): `bucket.localhost:9000`.
pub(crate) fn bucket_of_host(host: &str) -> Option<&str> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.strip_suffix(".localhost")
        .filter(|bucket| !bucket.is_empty())
}

/// Returns the kind of a request and its key as in the URL (empty for a bucket).
pub(crate) fn classify<'a>(
    method: &Method,
    host: Option<&str>,
    path: &'a str,
    query: Option<&str>,
) -> (Op, &'a str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    let virtual_host = host.and_then(bucket_of_host).is_some();
    let (bucket, key) = if virtual_host {
        ("-", path)
    } else {
        path.split_once('/').unwrap_or((path, ""))
    };
    let has = |name: &str| {
        query
            .unwrap_or("")
            .split('&')
            .any(|pair| pair.split('=').next() == Some(name))
    };
    let op = match (method, key.is_empty()) {
        (&Method::POST, true) if has("delete") => Op::Delete,
        (&Method::GET, true) if has("uploads") => Op::Multipart,
        (&Method::GET, true)
            if !bucket.is_empty()
                && !["location", "versioning", "lifecycle"].into_iter().any(has) =>
        {
            Op::List
        }
        (_, true) => Op::Bucket,
        (&Method::PUT, false) if has("partNumber") => Op::Part,
        (_, false) if has("uploads") || has("uploadId") => Op::Multipart,
        (&Method::GET, false) => Op::Get,
        (&Method::HEAD, false) => Op::Head,
        (&Method::DELETE, false) => Op::Delete,
        (_, false) => Op::Put,
    };
    (op, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let cases = [
            (Method::GET, "/b/k/x", None, Op::Get, "k/x"),
            (Method::HEAD, "/b/k", None, Op::Head, "k"),
            (Method::PUT, "/b/k", Some("x-id=PutObject"), Op::Put, "k"),
            (
                Method::PUT,
                "/b/k",
                Some("partNumber=1&uploadId=7"),
                Op::Part,
                "k",
            ),
            (Method::POST, "/b/k", Some("uploads"), Op::Multipart, "k"),
            (Method::POST, "/b/k", Some("uploadId=7"), Op::Multipart, "k"),
            (Method::POST, "/b", Some("delete="), Op::Delete, ""),
            (Method::DELETE, "/b/k", None, Op::Delete, "k"),
            (
                Method::DELETE,
                "/b/k",
                Some("uploadId=7"),
                Op::Multipart,
                "k",
            ),
            (Method::GET, "/b/", Some("list-type=2"), Op::List, ""),
            (Method::GET, "/b", Some("uploads"), Op::Multipart, ""),
            (Method::GET, "/b", Some("location"), Op::Bucket, ""),
            (Method::GET, "/b", Some("lifecycle"), Op::Bucket, ""),
            (Method::GET, "/", None, Op::Bucket, ""),
            (Method::PUT, "/b", None, Op::Bucket, ""),
        ];
        for (method, path, query, op, key) in cases {
            assert_eq!(
                classify(&method, None, path, query),
                (op, key),
                "{method} {path} {query:?}"
            );
        }
    }

    #[test]
    fn virtual_hosts_name_the_bucket() {
        assert_eq!(bucket_of_host("b.localhost:9000"), Some("b"));
        assert_eq!(bucket_of_host("a.b.localhost"), Some("a.b"));
        assert_eq!(bucket_of_host("localhost:9000"), None);
        assert_eq!(bucket_of_host("127.0.0.1:9000"), None);
        assert_eq!(
            classify(&Method::GET, Some("b.localhost"), "/k/x", None),
            (Op::Get, "k/x")
        );
        assert_eq!(
            classify(&Method::GET, Some("b.localhost"), "/", Some("list-type=2")),
            (Op::List, "")
        );
    }
}
