//! `batchweave top`: whether nodes wait for data, live from their consumer daemons' metrics: the share of
//! time that each rank spends in `next()` by cause, the data read ahead, and the duration of each stage.

mod nodes;
mod render;
mod report;
mod scrape;

use batchweave_console::context::Context;
use batchweave_console::{CliError, interval};
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;
use batchweave_daemon::screen::Screen;
use futures::future::{LocalBoxFuture, join_all};

use report::NodeReport;
use scrape::Scrape;

const EXAMPLES: &str = "\
Examples:
  batchweave top                                # this node, every 2 seconds, until Ctrl-C
  batchweave top --admin 10.0.0.7:9465 --admin 10.0.0.8:9465
  batchweave top --admin 10.0.0.7:9465,10.0.0.8:9465 --every 10s
  batchweave top --once --json | jq .ranks

Shares are of the time between two updates. A rank reports its waits once per second. With --json there is one
object per daemon and update.";

/// Most daemons at a time.
const DAEMONS_MAX: usize = 256;

/// The arguments of `batchweave top`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Addresses of consumer daemons' admin endpoints (admin.listen), one or several
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1:9465"
    )]
    admin: Vec<String>,
    /// Interval between two updates; a number without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    every: Period,
    /// Read the metrics twice, print once, and end
    #[arg(long)]
    once: bool,
}

/// A daemon and its last scrape.
struct Watched<'a> {
    admin: &'a str,
    last: Result<Scrape, CliError>,
}

/// Shows the nodes until Ctrl-C, or once.
pub fn run<'a>(
    args: &'a TopArgs,
    context: &'a Context,
) -> LocalBoxFuture<'a, Result<Exit, CliError>> {
    Box::pin(async move {
        tokio::select! {
            biased;
            // Ctrl-C ends the display without an error.
            () = Screen::interrupted() => Ok(Exit::Ok),
            ended = Box::pin(updates(args, context)) => ended,
        }
    })
}

async fn updates(args: &TopArgs, context: &Context) -> Result<Exit, CliError> {
    if args.admin.len() > DAEMONS_MAX {
        let number = args.admin.len();
        return Err(CliError::Usage(format!(
            "{number} daemons are too many for one display: name at most {DAEMONS_MAX} with --admin"
        )));
    }
    let mut all = watch(args).await;
    // Later, or beside others, a daemon that does not answer is shown as such.
    if all.iter().all(|one| one.last.is_err()) {
        return first_failure(all);
    }
    let live = !args.once && !context.json();
    let mut screen = if live { Screen::open()? } else { None };
    loop {
        tokio::time::sleep(args.every.0).await;
        let now = watch(args).await;
        let reports: Vec<NodeReport> = all.iter().zip(&now).map(report).collect();
        if let Some(screen) = &mut screen {
            let every = args.every;
            let page = nodes::render(&reports, context.out.style);
            screen.draw(&format!("{page}\nupdated every {every}; Ctrl-C ends\n"))?;
        } else if context.json() {
            for report in &reports {
                context.out.report(report, |_, _| String::new())?;
            }
        } else {
            context.out.part(|style| nodes::render(&reports, style))?;
        }
        if args.once {
            return first_failure(now);
        }
        all = now;
    }
}

/// Returns the first error of a scrape, if there is one.
fn first_failure(all: Vec<Watched<'_>>) -> Result<Exit, CliError> {
    let failed = all.into_iter().find_map(|one| one.last.err());
    failed.map_or(Ok(Exit::Ok), Err)
}

/// Scrapes all daemons at the same time.
async fn watch(args: &TopArgs) -> Vec<Watched<'_>> {
    let scrapes = args.admin.iter().map(|admin| async {
        let last = Scrape::fetch(admin).await;
        Watched { admin, last }
    });
    join_all(scrapes).await
}

/// Returns the report of a daemon in the interval between two scrapes. After a failed one there is no interval.
fn report((before, now): (&Watched<'_>, &Watched<'_>)) -> NodeReport {
    match (&before.last, &now.last) {
        (_, Err(why)) => NodeReport::absent(now.admin, why.to_string()),
        (Ok(before), Ok(after)) => NodeReport::between(now.admin, before, after),
        (Err(_), Ok(after)) => NodeReport::between(now.admin, after, after),
    }
}

#[cfg(test)]
mod tests;
