//! Presigned URLs of reads, one for all ranges of an object: a signature costs more than the rest of the
//! request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_sdk_s3::presigning::PresignedRequest;

use super::super::S3Store;
use super::authority::Authority;
use crate::proxy::{self, Way};
use crate::{Effect, ErrorKind, Op, StoreError};

/// Time for which the server accepts a signature.
const VALID: Duration = Duration::from_mins(15);
/// Time for which a signature is used; the rest allows for clock skew and delayed requests.
const USED: Duration = Duration::from_mins(5);
/// Most signatures kept. Few objects are in use at a time: those being read ahead.
const KEPT_MAX: usize = 1024;

/// A signed read of one object, without its range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) to: Arc<Authority>,
    /// Path and query; the query contains the signature.
    pub(super) path: String,
    /// Signed headers besides the host.
    pub(super) headers: Vec<(String, String)>,
    /// The number of the credentials that it was made with.
    pub(super) generation: u64,
}

/// The signatures in use, by key.
#[derive(Debug, Default)]
pub(super) struct Signatures(Mutex<BTreeMap<String, (Arc<Signed>, Instant)>>);

impl Signatures {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, (Arc<Signed>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a signed read of `key`, and whether it was used before.
    pub(super) async fn get(
        &self,
        store: &S3Store,
        key: &str,
    ) -> Result<(Arc<Signed>, bool), StoreError> {
        let known = { self.kept().get(key).cloned() };
        if let Some((signed, since)) = known
            && since.elapsed() < USED
            && signed.generation == store.generation()
        {
            return Ok((signed, true));
        }
        // Before the signature: one that is newer than its number is only made once more than needed.
        let generation = store.generation();
        let request = store.presigned(Op::GetRange, key, VALID).await?;
        let signed = made(&request, generation).map_err(|why| {
            let detail = format!("{why} for the endpoint {}", store.0.endpoint);
            let (op, kind) = (Op::GetRange, ErrorKind::Invalid);
            store.error(op, key, kind, Effect::DidNot, detail)
        })?;
        let signed = Arc::new(signed);
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (_, since)| since.elapsed() < USED / 5);
        }
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(key.to_owned(), (Arc::clone(&signed), Instant::now()));
        Ok((signed, false))
    }

    /// Drops a signature that the server no longer accepts.
    pub(super) fn forget(&self, key: &str) {
        self.kept().remove(key);
    }
}

/// Makes the request of a presigned URL, by the proxy of the environment.
fn made(request: &PresignedRequest, generation: u64) -> Result<Signed, String> {
    let headers = request
        .headers()
        .filter(|(name, _)| *name != "host")
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (mut to, path) = split(request.uri()).ok_or("no usable URL")?;
    to.proxy = match proxy::way(request.uri()) {
        Way::Direct => None,
        Way::Through(proxy) => Some(proxy),
        Way::Other(proxy) => return Err(format!("a proxy that is reached over TLS, {proxy},")),
    };
    Ok(Signed {
        to: Arc::new(to),
        path,
        headers: headers.collect(),
        generation,
    })
}

/// Returns the server of a URL, and its path with the query.
fn split(url: &str) -> Option<(Authority, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let (name, path) = rest.split_once('/')?;
    let default = if tls { 443 } else { 80 };
    let (host, port) = match name.rsplit_once(':') {
        // Colons inside brackets belong to an IPv6 address.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (name, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let to = Authority {
        tls,
        host: host.to_owned(),
        port,
        name: name.to_owned(),
        proxy: None,
    };
    Some((to, format!("/{path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, tls, host, port, path) in [
            (
                "http://127.0.0.1:9000/b/k?x=1",
                false,
                "127.0.0.1",
                9000,
                "/b/k?x=1",
            ),
            (
                "https://b.s3.eu-west-1.amazonaws.com/k",
                true,
                "b.s3.eu-west-1.amazonaws.com",
                443,
                "/k",
            ),
            ("http://[::1]:9000/k", false, "::1", 9000, "/k"),
            ("http://[::1]/k", false, "::1", 80, "/k"),
        ] {
            let (to, rest) = split(url).unwrap();
            assert_eq!(
                (to.tls, to.host.as_str(), to.port),
                (tls, host, port),
                "{url}"
            );
            assert_eq!(rest, path);
            assert!(url.contains(&format!("//{}/", to.name)));
        }
        for url in [
            "ftp://a/b",
            "http://a",
            "http:///b",
            "http://a:x/b",
            "http://a/b c",
            "http://a/\r\n",
        ] {
            assert_eq!(split(url), None, "{url}");
        }
    }
}
