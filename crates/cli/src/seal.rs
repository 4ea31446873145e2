//! `batchweave seal`: ends a stream, or reopens it.

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Style, count};
use batchweave_core::ids::{RequestId, Step, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{Sealed, Unsealed};
use batchweave_daemon::Exit;
use serde::Serialize;

use crate::admin;

const EXAMPLES: &str = "\
Examples:
  batchweave seal --store s3://bucket/stream --reason \"the corpus is complete\"
  batchweave seal --undo --reason \"two more files arrived\"

Producers of a sealed stream stop with code 0, readers end after its last step. A seal loses
no committed data; after --undo, restarted producers continue.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SealArgs {
    /// The reason; it is stored in the log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Reopen a sealed stream
    #[arg(long)]
    undo: bool,
    /// An id of your own (32 hexadecimal digits): repeating the command with it does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, Serialize)]
struct SealReport {
    root: String,
    sealed: bool,
    /// The version that changed it; `None` when there was nothing to change.
    version: Option<Version>,
    /// Steps that the stream ends with; `None` while it is open.
    end: Option<Step>,
}

pub(crate) async fn run(args: &SealArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let (seal, reason) = (!args.undo, args.reason.clone());
    let request = admin::request(args.request, &mut log);
    let entry = if seal {
        Entry::Sealed(Sealed { request, reason })
    } else {
        Entry::Unsealed(Unsealed { request, reason })
    };
    let version = admin::commit(&mut log, "seal", |m| {
        Ok((m.sealed() != seal).then(|| entry.clone()))
    })
    .await?;
    let report = SealReport {
        root: log.store().root().to_owned(),
        sealed: log.manifest().sealed(),
        version,
        end: log.manifest().end(),
    };
    context.done(&report, render)
}

fn render(report: &SealReport, style: Style) -> String {
    let not = if report.sealed { "" } else { "not " };
    let by = admin::by_version(report.version);
    let end = report.end.map_or("is open".to_owned(), |end| {
        format!("ends with {}", count(end, "step"))
    });
    let head = style.green(&format!("{not}sealed, {by}"));
    format!("{head}\nthe stream {} {end}", report.root)
}
