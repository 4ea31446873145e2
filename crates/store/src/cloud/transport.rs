//! The HTTP clients of a cloud's store. They repeat nothing by themselves, follow no redirects, and reach near hosts
//! without the proxy.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue};
use reqwest::{Client, Proxy, redirect, retry};

use super::answer::{Answer, Fault, header, unanswered};
use super::dialect::Request;
use crate::download::{self, Incomplete};
use crate::limits::{CONNECT_TIMEOUT, POOL_IDLE};
use crate::proxy::Way;
use crate::{ErrorKind, message, proxy, tls};

/// Most bytes of an answer that is read into memory: a page of 5,000 names of 1,024 bytes, with their markup.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The clients of one store.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) kept: Client,
    /// A new connection for each request.
    pub(crate) fresh: Client,
    /// The endpoint's name for messages.
    pub(crate) endpoint: String,
}

impl Transport {
    /// Makes the clients for requests to `endpoint`.
    pub(crate) fn new(endpoint: &str) -> Result<Self, Fault> {
        Ok(Self {
            kept: client(endpoint, usize::MAX)?,
            fresh: client(endpoint, 0)?,
            endpoint: named(endpoint),
        })
    }

    /// Sends a request and waits at most `within` for the head of its answer.
    pub(crate) async fn send(
        &self,
        client: &Client,
        request: http::Request<reqwest::Body>,
        within: Duration,
    ) -> Result<reqwest::Response, Fault> {
        let request = reqwest::Request::try_from(request)
            .map_err(|why| Fault::unsent(ErrorKind::Invalid, message::chain(&why)))?;
        match tokio::time::timeout(within, client.execute(request)).await {
            Ok(sent) => sent.map_err(|error| unanswered(&error, &self.endpoint)),
            Err(_) => Err(Fault {
                kind: ErrorKind::Timeout,
                sure: false,
                detail: format!(
                    "no answer from {} for {} s",
                    self.endpoint,
                    within.as_secs()
                ),
            }),
        }
    }

    /// Reads the body of an answer into memory.
    pub(crate) async fn collect(&self, answer: reqwest::Response) -> Result<Answer, Fault> {
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        match download::collect(begun(answer), ANSWER_BYTES_MAX).await {
            Ok(body) => Ok(Answer {
                status,
                headers,
                body,
            }),
            Err(Incomplete::Broken(why)) => Err(Fault {
                kind: ErrorKind::Timeout,
                sure: false,
                detail: format!("the answer (HTTP {status}) broke off: {why}"),
            }),
            Err(Incomplete::TooLarge(_)) => Err(Fault {
                kind: ErrorKind::Contract,
                sure: false,
                detail: format!(
                    "the answer (HTTP {status}) has more than {ANSWER_BYTES_MAX} bytes"
                ),
            }),
        }
    }
}

/// Returns the body of an answer as it arrives.
pub(crate) fn begun(answer: reqwest::Response) -> download::Answer {
    let headers = answer.headers();
    let text = |name| header(headers, name).map(str::to_owned);
    let (content_range, etag, length) = (text("content-range"), text("etag"), length(headers));
    let chunks = answer.bytes_stream();
    download::Answer {
        length,
        content_range,
        etag,
        parts: chunks.map_err(|why| message::innermost(&why)).boxed(),
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    header(headers, "content-length")?.parse().ok()
}

/// Returns a request whose body is sent from memory.
pub(crate) fn with_body(request: Request) -> http::Request<reqwest::Body> {
    request.map(|body: Bytes| reqwest::Body::from(body))
}

/// Makes a client of `endpoint` that keeps at most `kept` idle connections per host.
pub(crate) fn client(endpoint: &str, kept: usize) -> Result<Client, Fault> {
    let invalid = |why: String| Fault::unsent(ErrorKind::Invalid, why);
    proxy::check().map_err(invalid)?;
    let roots = tls::trusting(tls::system_roots()).map_err(|why| invalid(why.to_string()))?;
    Client::builder()
        .tls_backend_preconfigured(roots)
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(kept)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .proxy(through(endpoint)?)
        .build()
        .map_err(|why| invalid(message::chain(&why)))
}

/// Returns the choice of the proxy for each request, with the credentials for that of `endpoint`.
fn through(endpoint: &str) -> Result<Proxy, Fault> {
    let chosen = Proxy::custom(|url| match proxy::way(url.as_str()) {
        Way::Direct => None,
        Way::Through(proxy) => Some(proxy.url()),
        Way::Other(url) => Some(url),
    });
    let Way::Through(proxy::Proxy {
        authorization: Some(text),
        ..
    }) = proxy::way(endpoint)
    else {
        return Ok(chosen);
    };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|why| Fault::unsent(ErrorKind::Invalid, why.to_string()))?;
    value.set_sensitive(true);
    Ok(chosen.custom_http_auth(value))
}

/// Returns the endpoint's name for messages, with the proxy on the way to it.
fn named(endpoint: &str) -> String {
    match proxy::way(endpoint) {
        Way::Direct => endpoint.to_owned(),
        Way::Through(proxy) => {
            format!("{endpoint} through the proxy {}:{}", proxy.host, proxy.port)
        }
        Way::Other(proxy) => format!("{endpoint} through the proxy {proxy}"),
    }
}
