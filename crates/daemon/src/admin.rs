//! The admin endpoint: `/metrics` for Prometheus, `/healthz` (the process answers), `/readyz` (it can
//! do its work, with the reason in words), and `/`, a page for people, over `/status.json`.
//!
//! It listens on localhost unless the configuration names another address, has no authentication, reads
//! no bodies, and bounds connections, headers and time. When there are too many connections, the oldest is
//! closed, so that slow clients do not hold up probes.

mod ranks;
mod status_page;

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
use prometheus::{Registry, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::config::Listen;
use crate::connection_slots::ConnectionSlots;
use crate::health::Health;
use crate::notify::{self, Notifier};
pub use ranks::Ranks;
use status_page::Sampler;
pub use status_page::{Identity, Plot, StatusPage, Table};

/// The page is one file without outside resources, and requests only this endpoint.
const PAGE: &str = include_str!("admin/page.html");
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const PATHS: [&str; 5] = ["/", "/status.json", "/metrics", "/healthz", "/readyz"];
const MAX_CONNECTIONS: usize = 16;
const MAX_HEADERS: usize = 32;
const MAX_HEAD_BYTES: usize = 16 << 10;
const CONNECTION_DEADLINE: Duration = Duration::from_secs(5);

/// Reports to the service manager and serves the endpoint in the background until `end`. The
/// configuration names the address, or turns the endpoint off.
pub async fn start(
    listen: Listen,
    registry: Registry,
    health: &Health,
    end: &CancellationToken,
    status_page: StatusPage,
    identity: Identity,
) -> io::Result<()> {
    if let Some(notifier) = Notifier::from_env()? {
        tokio::spawn(notify::follow(notifier, health.clone(), end.clone()));
    }
    let Some(address) = listen.0 else {
        return Ok(());
    };
    let admin = Admin::bind(address, registry, health.clone(), status_page, identity).await?;
    let address = admin.address()?;
    tracing::info!(%address, "admin endpoint: / for people, /metrics, /healthz, /readyz");
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "the admin endpoint has no authentication and is open to the network");
    }
    tokio::spawn(admin.state.sampler.clone().run(end.clone()));
    tokio::spawn(admin.serve(end.clone()));
    Ok(())
}

/// A bound endpoint that does not answer yet.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    deadline: Duration,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// The endpoint listens on localhost.
    here_only: bool,
    registry: Registry,
    health: Health,
    sampler: Arc<Sampler>,
}

impl Admin {
    /// Binds `address`; an error names it.
    pub async fn bind(
        address: SocketAddr,
        registry: Registry,
        health: Health,
        status_page: StatusPage,
        identity: Identity,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|why| {
            let text = format!("admin endpoint cannot listen on {address}: {why}; set admin.listen to a free address, or \"off\"");
            io::Error::new(why.kind(), text)
        })?;
        let sampler = Arc::new(Sampler::new(status_page, identity, registry.clone()));
        let here_only = listener.local_addr()?.ip().is_loopback();
        let state = Arc::new(State {
            here_only,
            registry,
            health,
            sampler,
        });
        let deadline = CONNECTION_DEADLINE;
        Ok(Self {
            listener,
            deadline,
            state,
        })
    }

    /// Returns the bound address; for port 0, the port that the system chose.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves requests until `stop` is cancelled.
    pub async fn serve(self, stop: CancellationToken) {
        let slots = ConnectionSlots::new(MAX_CONNECTIONS);
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (state, slot) = (self.state.clone(), slots.enter());
                    let deadline = self.deadline;
                    tokio::spawn(async move {
                        tokio::select! {
                            biased;
                            () = slot.evicted() => {}
                            () = serve_connection(stream, state, deadline) => {}
                        }
                    });
                }
                Err(why) => {
                    tracing::warn!(%why, "admin endpoint cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, state: Arc<State>, deadline: Duration) {
    let service = service_fn(move |request| {
        let response = answer(&state, &request);
        async move { Ok::<_, Infallible>(response) }
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
        Ok(Err(why)) => tracing::debug!(%why, "admin connection ended"),
        Err(_) => tracing::debug!("admin connection took too long"),
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

fn answer(state: &State, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if state.here_only && !names_us(request) {
        let why = "this endpoint is on localhost: ask it as localhost or by its address\n";
        return text(StatusCode::MISDIRECTED_REQUEST, why);
    }
    let path = request.uri().path();
    if !PATHS.contains(&path) {
        let known = format!("not found; there are {}\n", PATHS.join(", "));
        return text(StatusCode::NOT_FOUND, known);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/" => page(),
        "/status.json" => status(state),
        "/metrics" => metrics(&state.registry),
        "/healthz" => text(StatusCode::OK, "ok\n"),
        _ => {
            let (ready, reason) = state.health.get();
            let status = if ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            text(status, format!("{reason}\n"))
        }
    }
}

fn page() -> Response<Full<Bytes>> {
    let mut response = typed("text/html; charset=utf-8", PAGE);
    let policy = HeaderValue::from_static(PAGE_POLICY);
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, policy);
    response
}

fn status(state: &State) -> Response<Full<Bytes>> {
    match state.sampler.json(&state.health) {
        Ok(body) => typed("application/json", body),
        Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
    }
}

fn typed(kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(body) => typed(prometheus::TEXT_FORMAT, body),
        Err(why) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("cannot write metrics: {why}\n"),
        ),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests;
