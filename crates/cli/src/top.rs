//! `batchweave top`: whether a node waits for data, live from its consumer daemon's metrics: the share of
//! time that each rank spends in `next()` by cause, the data read ahead, and the duration of each stage.

mod render;
mod report;
pub(crate) mod scrape;

use std::io::IsTerminal;
use std::time::Duration;

use batchweave_daemon::Exit;

use crate::context::Context;
use crate::error::CliError;
use crate::output::Output;
use report::NodeReport;
use scrape::Scrape;

const EXAMPLES: &str = "\
Examples:
  batchweave top                                # this node, every 2 seconds, until Ctrl-C
  batchweave top --admin 10.0.0.7:9465
  batchweave top --once --json | jq .ranks

Shares are of the time between two updates. A rank reports its waits once per second.";

/// Clears the terminal before each update.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Address of the consumer daemon's admin endpoint (admin.listen)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9465")]
    admin: String,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Read the metrics twice, print once, and end
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(args: &TopArgs, context: &Context) -> Result<Exit, CliError> {
    let live = !args.once && !context.json() && std::io::stdout().is_terminal();
    let mut before = Scrape::fetch(&args.admin).await?;
    loop {
        tokio::select! {
            biased;
            // Ctrl-C ends the display without an error.
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Ok),
            () = tokio::time::sleep(Duration::from_secs(args.every)) => {}
        }
        let now = match Scrape::fetch(&args.admin).await {
            Ok(now) => now,
            Err(why) if args.once => return Err(why),
            // The daemon may be restarting.
            Err(why) => {
                eprintln!("{why}");
                continue;
            }
        };
        if live {
            Output::line(CLEAR)?;
        }
        let report = NodeReport::between(&args.admin, &before, &now);
        context.out.report(&report, render::render)?;
        if args.once {
            return Ok(Exit::Ok);
        }
        before = now;
    }
}

#[cfg(test)]
mod tests;
