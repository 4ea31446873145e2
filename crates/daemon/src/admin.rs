//! The admin endpoint: `/metrics` for Prometheus, `/healthz` (no part of the process is stuck), `/readyz` (it can
//! do its work, with the reason in words), and `/`, a page for people, over `/status.json`.
//!
//! It listens on localhost unless the configuration names another address, with the bounds of [`crate::web`].

mod families;
mod ranks;
mod stages;
mod status_page;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use prometheus::{Registry, TextEncoder};
use tokio_util::sync::CancellationToken;

use crate::config::Listen;
use crate::health::Health;
use crate::notify::{self, Notifier};
use crate::web::{self, Answer, Server, text, typed};
pub use ranks::Ranks;
pub use stages::Stages;
use status_page::Sampler;
pub use status_page::{Identity, Plot, StatusPage, Table};

const PATHS: &[&str] = &["/", "/status.json", "/metrics", "/healthz", "/readyz"];

/// The age of a part's heartbeat after which `/healthz` fails: half of the units' watchdog period, as for
/// the service manager.
const STUCK_AFTER: Duration = Duration::from_secs(15);

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
    server: Server,
    state: State,
}

#[derive(Debug)]
struct State {
    page: String,
    registry: Registry,
    health: Health,
    sampler: Arc<Sampler>,
    stuck_after: Duration,
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
        let server = Server::bind(address, PATHS).await.map_err(|why| {
            let text = format!("admin endpoint cannot listen on {address}: {why}; set admin.listen to a free address, or \"off\"");
            io::Error::new(why.kind(), text)
        })?;
        let sampler = Arc::new(Sampler::new(status_page, identity, registry.clone()));
        let state = State {
            page: web::page(
                include_str!("admin/body.html"),
                include_str!("admin/page.js"),
            ),
            registry,
            health,
            sampler,
            stuck_after: STUCK_AFTER,
        };
        Ok(Self { server, state })
    }

    /// Returns the bound address; for port 0, the port that the system chose.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.server.address()
    }

    /// Serves requests until `stop` is cancelled.
    pub async fn serve(self, stop: CancellationToken) {
        let state = self.state;
        self.server
            .serve(stop, move |path| state.answer(path))
            .await;
    }
}

impl State {
    fn answer(&self, path: &str) -> Answer {
        match path {
            "/" => web::html(self.page.clone()),
            "/status.json" => web::json(&self.sampler.status(&self.health)),
            "/metrics" => metrics(&self.registry),
            "/healthz" => match self.health.stuck(self.stuck_after) {
                None => text(StatusCode::OK, "ok\n"),
                Some(part) => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("stuck: {part} has not moved for {:?}\n", self.stuck_after),
                ),
            },
            _ => {
                let (ready, reason) = self.health.get();
                let status = if ready {
                    StatusCode::OK
                } else {
                    StatusCode::SERVICE_UNAVAILABLE
                };
                text(status, format!("{reason}\n"))
            }
        }
    }
}

fn metrics(registry: &Registry) -> Answer {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(body) => typed(prometheus::TEXT_FORMAT, body),
        Err(why) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("cannot write metrics: {why}\n"),
        ),
    }
}

#[cfg(test)]
mod tests;
