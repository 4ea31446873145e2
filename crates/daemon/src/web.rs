//! A small HTTP server for pages about this process: fixed paths, GET and HEAD only, no bodies, no authentication.
//! Connections, heads and time are bounded: when there are too many connections, the oldest is closed, so that slow
//! clients do not hold up others. On localhost it answers only to names of localhost.
//!
//! [`page`] composes a page of the parts that all pages share (`style.css`, `parts.js`) and its own.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::connection_slots::ConnectionSlots;

/// A page is one file without outside resources, and requests only its own server.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STYLE: &str = include_str!("web/style.css");
const PARTS: &str = include_str!("web/parts.js");
pub(crate) const MAX_CONNECTIONS: usize = 16;
pub(crate) const MAX_HEADERS: usize = 32;
pub(crate) const MAX_HEAD_BYTES: usize = 16 << 10;
const CONNECTION_DEADLINE: Duration = Duration::from_secs(5);

/// The answer to a request.
pub type Answer = Response<Full<Bytes>>;

/// A bound server that does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    pub(crate) deadline: Duration,
    /// It listens on localhost.
    here_only: bool,
    paths: &'static [&'static str],
}

/// The parts of the server that a connection needs.
struct Shared<A> {
    here_only: bool,
    paths: &'static [&'static str],
    answer: A,
}

impl Server {
    /// Binds `address` for these paths.
    pub async fn bind(address: SocketAddr, paths: &'static [&'static str]) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let here_only = listener.local_addr()?.ip().is_loopback();
        Ok(Self {
            listener,
            deadline: CONNECTION_DEADLINE,
            here_only,
            paths,
        })
    }

    /// Returns the bound address; for port 0, the port that the system chose.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled. `answer` receives one of the paths, and must not block.
    pub async fn serve<A>(self, stop: CancellationToken, answer: A)
    where
        A: Fn(&'static str) -> Answer + Send + Sync + 'static,
    {
        let slots = ConnectionSlots::new(MAX_CONNECTIONS);
        let shared = Arc::new(Shared {
            here_only: self.here_only,
            paths: self.paths,
            answer,
        });
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (shared, slot) = (shared.clone(), slots.enter());
                    let deadline = self.deadline;
                    tokio::spawn(async move {
                        tokio::select! {
                            biased;
                            () = slot.evicted() => {}
                            () = serve_connection(stream, shared, deadline) => {}
                        }
                    });
                }
                Err(why) => {
                    tracing::warn!(%why, "cannot accept an HTTP connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_connection<A>(stream: TcpStream, shared: Arc<Shared<A>>, deadline: Duration)
where
    A: Fn(&'static str) -> Answer + Send + Sync + 'static,
{
    let service = service_fn(move |request| {
        let answer = shared.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(deadline)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(deadline, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => tracing::debug!(%why, "HTTP connection ended"),
        Err(_) => tracing::debug!("HTTP connection took too long"),
    }
}

impl<A: Fn(&'static str) -> Answer> Shared<A> {
    fn answer(&self, request: &Request<Incoming>) -> Answer {
        if self.here_only && !names_us(request) {
            let why = "this endpoint is on localhost: ask it as localhost or by its address\n";
            return text(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let mut paths = self.paths.iter();
        let Some(path) = paths.find(|path| **path == request.uri().path()) else {
            let known = format!("not found; there are {}\n", self.paths.join(", "));
            return text(StatusCode::NOT_FOUND, known);
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            answer.headers_mut().insert(ALLOW, allowed);
            return answer;
        }
        (self.answer)(path)
    }
}

/// Returns whether a request to localhost has a host header that names it. Otherwise a site that resolves
/// its own name to this machine could read the endpoint through an operator's browser (DNS rebinding).
fn names_us(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(HOST) else {
        return true;
    };
    let authority = host
        .to_str()
        .ok()
        .and_then(|host| host.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let name = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    })
}

/// Composes a page of its content, its script and the shared parts.
pub fn page(body: &str, script: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>BatchWeave</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <script>\n{PARTS}{script}</script>\n</body>\n</html>\n"
    )
}

/// Returns the answer with a page that [`page`] composed.
pub fn html(page: impl Into<Bytes>) -> Answer {
    let mut answer = typed("text/html; charset=utf-8", page);
    let policy = HeaderValue::from_static(PAGE_POLICY);
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    answer
}

/// Returns the answer with a value as JSON.
pub fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => typed("application/json", body),
        Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
    }
}

/// Returns the answer that there is nothing to show yet, with the reason.
pub fn unavailable(why: &'static str) -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Returns a good answer of this media type.
pub(crate) fn typed(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = text(StatusCode::OK, body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Returns an answer of plain text.
pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
