//! The page of the whole stream, which `run` serves for a browser as `batchweave ui` does.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use batchweave_console::context::Context;
use batchweave_daemon::config::Listen;
use batchweave_views::ui::{Addresses, Beside};

/// The address of the page unless the command line names another, or a program has it.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9466);

/// Parses the argument of `--ui`.
pub(super) fn listen(text: &str) -> Result<Listen, String> {
    Listen::from_str(text)
}

/// The page of a run; without an address there is none.
pub(super) struct Page {
    bound: Option<Beside>,
    /// Why it is not where it was expected, or not at all.
    pub(super) complaint: Option<String>,
}

impl Page {
    /// Binds the address, or else a free port, since training does not need the page.
    pub(super) async fn bind(wanted: Option<Listen>) -> Self {
        let (address, asked_for) = match wanted {
            Some(Listen(None)) => {
                return Self {
                    bound: None,
                    complaint: None,
                };
            }
            Some(Listen(Some(address))) => (address, true),
            None => (USUAL, false),
        };
        let why = match Beside::bind(address).await {
            Ok(bound) => {
                return Self {
                    bound: Some(bound),
                    complaint: None,
                };
            }
            Err(why) => why,
        };
        let elsewhere = Beside::bind((Ipv4Addr::LOCALHOST, 0).into()).await;
        let place = match &elsewhere {
            Ok(bound) => format!("it is at {} instead", bound.url()),
            Err(why) => format!("there is none, since no port is free: {why}"),
        };
        let complaint = format!("the page of --ui cannot listen on {address}: {why}; {place}");
        Self {
            complaint: (asked_for || elsewhere.is_err()).then_some(complaint),
            bound: elsewhere.ok(),
        }
    }

    /// Returns the address of the page.
    pub(super) fn url(&self) -> Option<String> {
        self.bound.as_ref().map(Beside::url)
    }

    /// Serves the page of the stream and of these daemons.
    pub(super) async fn serve(self, context: Context, daemons: Addresses) -> Infallible {
        match self.bound {
            Some(bound) => bound.serve(&context, daemons).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_busy_address_gives_way_to_a_free_port() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let page = Page::bind(Some(Listen(Some(address)))).await;
        let url = page.url().unwrap();
        assert!(!url.contains(&address.to_string()));
        let why = page.complaint.unwrap();
        assert!(
            why.contains(&address.to_string()) && why.contains(&url),
            "{why}"
        );
        let page = Page::bind(listen("off").ok()).await;
        assert!(page.url().is_none() && page.complaint.is_none());
    }
}
