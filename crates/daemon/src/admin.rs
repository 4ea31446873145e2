//! The admin endpoint: `/metrics` for Prometheus, `/healthz` (the process answers), `/readyz` (it can
//! do its work, with the reason in words).
//!
//! It is for operators on the same machine: it listens on localhost unless the configuration names
//! another address, has no authentication, reads no bodies, and bounds connections, headers and time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Registry, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::Listen;

const MAX_CONNECTIONS: usize = 16;
const MAX_HEADERS: usize = 32;
const MAX_HEAD_BYTES: usize = 16 << 10;
const CONNECTION_DEADLINE: Duration = Duration::from_secs(5);

/// What `/readyz` answers; cheap to clone, all clones are the same.
#[derive(Debug, Clone)]
pub struct Health(Arc<RwLock<(bool, String)>>);

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(RwLock::new((false, "starting".into()))))
    }
}

impl Health {
    /// Ready, with a line on what the daemon is doing.
    pub fn ready(&self, text: impl Into<String>) {
        self.set(true, text.into());
    }

    /// Not ready, with the reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(false, reason.into());
    }

    /// Whether it is ready, and the text.
    pub fn get(&self) -> (bool, String) {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, ready: bool, text: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (ready, text);
    }
}

/// Serves the endpoint until `end`, on the address that the configuration names, if any.
pub async fn start(
    listen: Listen,
    registry: Registry,
    health: &Health,
    end: &CancellationToken,
) -> io::Result<()> {
    let Some(address) = listen.0 else {
        return Ok(());
    };
    let admin = Admin::bind(address, registry, health.clone()).await?;
    let address = admin.address()?;
    tracing::info!(%address, "admin endpoint: /metrics, /healthz, /readyz");
    tokio::spawn(admin.serve(end.clone()));
    Ok(())
}

/// A bound endpoint that does not answer yet.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    health: Health,
}

impl Admin {
    /// Binds `address`; the error names it.
    pub async fn bind(address: SocketAddr, registry: Registry, health: Health) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|why| {
            let text = format!("admin endpoint can't listen on {address}: {why}; set admin.listen to a free address, or \"off\"");
            io::Error::new(why.kind(), text)
        })?;
        let state = Arc::new(State { registry, health });
        Ok(Self { listener, state })
    }

    /// The address in use (with port 0 in the configuration, the port the system chose).
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop`.
    pub async fn serve(self, stop: CancellationToken) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            // No slot: the next connection waits in the kernel's backlog.
            let Ok(slot) = slots.clone().acquire_owned().await else {
                return;
            };
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let state = self.state.clone();
                    tokio::spawn(async move {
                        serve_connection(stream, state).await;
                        drop(slot);
                    });
                }
                Err(why) => {
                    tracing::warn!(%why, "admin endpoint could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request| {
        let response = answer(&state, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_DEADLINE)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => tracing::debug!(%why, "admin connection ended"),
        Err(_) => tracing::debug!("admin connection took too long"),
    }
}

fn answer(state: &State, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
        return text(
            StatusCode::NOT_FOUND,
            "not found; there are /metrics, /healthz and /readyz\n",
        );
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
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

fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(body) => {
            let mut response = text(StatusCode::OK, body);
            let kind = HeaderValue::from_static(prometheus::TEXT_FORMAT);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(why) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("metrics can't be written: {why}\n"),
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
