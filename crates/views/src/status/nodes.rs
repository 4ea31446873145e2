//! `batchweave status --nodes`: whether nodes wait for data, from their daemons: the share of time that each rank
//! spends in `next()` by cause, the data read ahead, and the duration of each stage.

mod render;
mod report;
mod several;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_daemon::Exit;
use batchweave_daemon::screen::Screen;

use super::StatusArgs;
use crate::daemons;
use report::NodeReport;

/// Shows the nodes once, or with --watch until Ctrl-C.
pub(super) async fn run(
    nodes: &[String],
    args: &StatusArgs,
    context: &Context,
) -> Result<Exit, CliError> {
    daemons::check_number(nodes, "--nodes")?;
    tokio::select! {
        biased;
        // Ctrl-C ends the display without an error.
        () = Screen::interrupted() => Ok(Exit::Ok),
        ended = Box::pin(updates(nodes, args, context)) => ended,
    }
}

async fn updates(nodes: &[String], args: &StatusArgs, context: &Context) -> Result<Exit, CliError> {
    let mut reports = read(nodes).await;
    // Later, or beside others, a daemon that does not answer is shown as such.
    if reports.iter().all(NodeReport::is_absent) {
        return first_failure(&reports);
    }
    let live = args.watch && !context.json();
    let mut screen = if live { Screen::open()? } else { None };
    loop {
        if let Some(screen) = &mut screen {
            let every = args.every;
            let page = several::render(&reports, context.out.style);
            screen.draw(&format!("{page}\nupdated every {every}; Ctrl-C ends\n"))?;
        } else if context.json() {
            for report in &reports {
                context.out.report(report, |_, _| String::new())?;
            }
        } else {
            context.out.part(|style| several::render(&reports, style))?;
        }
        if !args.watch {
            return first_failure(&reports);
        }
        tokio::time::sleep(args.every.0).await;
        reports = read(nodes).await;
    }
}

/// Returns the error of the first daemon that did not answer, if there is one.
fn first_failure(reports: &[NodeReport]) -> Result<Exit, CliError> {
    let absent = reports.iter().find(|report| report.is_absent());
    absent.map_or(Ok(Exit::Ok), |NodeReport { admin, doing, .. }| {
        Err(CliError::Absent(format!("{admin} {doing}")))
    })
}

async fn read(nodes: &[String]) -> Vec<NodeReport> {
    let all = daemons::read_all(nodes).await;
    let reports = nodes.iter().zip(all).map(|(admin, status)| match status {
        Ok(status) => NodeReport::new(admin, status),
        Err(why) => NodeReport::absent(admin, why),
    });
    reports.collect()
}

#[cfg(test)]
mod tests;
