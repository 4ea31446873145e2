//! The page within `batchweave run`: its address is known before there is a stream.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use batchweave_console::context::Context;
use batchweave_daemon::web::{self, Server};
use tokio_util::sync::CancellationToken;

use super::watched::Page;
use super::{Addresses, PATHS, html};
use crate::status::Watched;

/// Interval between two reads of the store and the daemons.
const EVERY: Duration = Duration::from_secs(5);
/// Interval between two tries to open a stream that does not exist yet.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// A page whose address is bound.
#[derive(Debug)]
pub struct Beside {
    server: Server,
    address: SocketAddr,
}

impl Beside {
    /// Binds the address of the page; for port 0, one that the system chooses.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let server = Server::bind(address, PATHS).await?;
        let address = server.address()?;
        Ok(Self { server, address })
    }

    /// Returns the address of the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves the page; until the stream exists, it says so.
    pub async fn serve(self, context: &Context, daemons: Addresses) -> Infallible {
        let (html, page) = (html(), Arc::new(OnceLock::<Page>::new()));
        let shown = Arc::clone(&page);
        let answer = move |path: &str| match (path, shown.get()) {
            ("/", _) => web::html(html.clone()),
            (_, Some(page)) => page.answer(),
            (_, None) => web::unavailable("there is no stream yet\n"),
        };
        tokio::spawn(self.server.serve(CancellationToken::new(), answer));
        loop {
            if let Some((first, stream)) = open(context).await {
                return page.get_or_init(|| first).follow(stream, &daemons).await;
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    }
}

/// Opens the stream; the daemons of the run report why there is none.
async fn open(context: &Context) -> Option<(Page, Watched)> {
    let url = context.url().ok()?;
    let store = batchweave_store::open(&url, &context.store_options()).await;
    let mut stream = Watched::open(store.ok()?).await.ok()?;
    let page = Page::new(stream.view().await.ok()?, EVERY);
    Some((page, stream))
}
