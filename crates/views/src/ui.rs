//! `batchweave ui`: one page of a whole stream, for a browser: producers, jobs, and the daemons that are named.
//!
//! The store and the daemons are read at intervals while somebody looks at the page, however many do, and never for
//! a request.
//!
//! - `watched`: what was read last, and the answer to a browser; `daemons`: status of named daemons;
//! - `sentence`: the state of the whole in one sentence;
//! - `beside`: the page within `batchweave run`.

mod beside;
mod daemons;
mod sentence;
mod watched;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use batchweave_console::context::Context;
use batchweave_console::{CliError, interval};
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;
use batchweave_daemon::screen::Screen;
use batchweave_daemon::web::{self, Server};
use futures::future::LocalBoxFuture;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::daemons::{check_number, parse_address};
use crate::status::Watched;
pub use beside::Beside;
use watched::Page;

const EXAMPLES: &str = "\
Examples:
  batchweave ui --store s3://bucket/stream
  batchweave ui --daemon 10.0.0.3:9464 --daemon 10.0.0.7:9465,10.0.0.8:9465
  batchweave ui --listen 127.0.0.1:8080 --every 30s
  curl -s http://127.0.0.1:9466/stream.json | jq -r .state.text

The page has no authentication: leave it on localhost, and look from elsewhere through ssh -L.
While nobody looks, the store is not read.";

const PATHS: &[&str] = &["/", "/stream.json"];
/// The addresses of the daemons on a page, which may change.
pub type Addresses = Arc<Mutex<Vec<String>>>;

const EVERY_MIN: Duration = Duration::from_secs(1);

/// The arguments of `batchweave ui`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct UiArgs {
    /// Address of the page
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9466", value_parser = listen)]
    listen: SocketAddr,
    /// Admin endpoints of producers and consumers to show (admin.listen), one or several
    #[arg(long = "daemon", value_name = "HOST:PORT", value_delimiter = ',', value_parser = parse_address)]
    daemons: Vec<String>,
    /// Interval between two reads of the store and the daemons; a number without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    every: Period,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("invalid address \"{text}\": expected an IP address and a port, for example \"127.0.0.1:9466\"")
    })
}

/// The report at the start.
#[derive(Debug, Serialize)]
struct Started {
    /// Address of the page.
    url: String,
    /// URL of the stream.
    root: String,
}

/// Serves the page until Ctrl-C.
pub fn run<'a>(
    args: &'a UiArgs,
    context: &'a Context,
) -> LocalBoxFuture<'a, Result<Exit, CliError>> {
    Box::pin(async move {
        tokio::select! {
            biased;
            () = Screen::interrupted() => Ok(Exit::Ok),
            ended = Box::pin(serve(args, context)) => ended.map(|never| match never {}),
        }
    })
}

async fn serve(args: &UiArgs, context: &Context) -> Result<Infallible, CliError> {
    let every = args.every.0;
    if every < EVERY_MIN {
        return Err(CliError::Usage(format!(
            "--every {} is too short: the store is read each time; at least 1s",
            args.every
        )));
    }
    check_number(&args.daemons, "--daemon")?;
    let mut stream = Watched::open(context.polled_store(false).await?).await?;
    let page = Arc::new(Page::new(stream.view().await?, every));
    let server = Server::bind(args.listen, PATHS).await.map_err(|why| {
        let address = args.listen;
        CliError::Failed(format!(
            "cannot listen on {address}: {why}; choose a free address of this machine with --listen"
        ))
    })?;
    let address = server.address()?;
    let started = Started {
        url: format!("http://{address}/"),
        root: page.root(),
    };
    context.out.report(&started, |started, _| {
        format!("{} shows {}; Ctrl-C ends", started.url, started.root)
    })?;
    if !address.ip().is_loopback() {
        eprintln!(
            "warning: the page on {address} has no authentication and is open to the network"
        );
    }
    let html = html();
    let shown = page.clone();
    let answer = move |path: &str| match path {
        "/" => web::html(html.clone()),
        _ => shown.answer(),
    };
    tokio::spawn(server.serve(CancellationToken::new(), answer));
    let daemons = Arc::new(Mutex::new(args.daemons.clone()));
    Ok(page.follow(stream, &daemons).await)
}

fn html() -> String {
    web::page(include_str!("ui/body.html"), include_str!("ui/page.js"))
}

#[cfg(test)]
mod tests;
