//! The text of one HTTP/1.1 request. The head of its answer is parsed in `answer`.

use std::fmt::Write;
use std::ops::Range;

use super::signed::Signed;
pub(super) use crate::answer::{Head, parse};

/// Returns the request of a ranged read; with `etag`, of that version of the object.
pub(super) fn request(signed: &Signed, range: &Range<u64>, etag: Option<&str>) -> String {
    let (first, last) = (range.start, range.end - 1);
    let to = &signed.to;
    // A proxy forwards what is not encrypted, and needs the whole URL.
    let forward = to.proxy.as_ref().filter(|_| !to.tls);
    let server = forward.map_or(String::new(), |_| format!("http://{}", to.name));
    let mut text = format!(
        "GET {server}{} HTTP/1.1\r\nHost: {}\r\nRange: bytes={first}-{last}\r\n",
        signed.path, to.name
    );
    if let Some(value) = forward.and_then(|proxy| proxy.authorization.as_ref()) {
        let _ = write!(text, "Proxy-Authorization: {value}\r\n");
    }
    for (name, value) in &signed.headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if let Some(etag) = etag {
        let _ = write!(text, "If-Match: {etag}\r\n");
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(text, "User-Agent: batchweave/{version}\r\n\r\n");
    text
}
