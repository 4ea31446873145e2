//! `batchweave retire`: ends the term of a producer that no longer runs.

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Style, count};
use batchweave_core::ids::{Epoch, ProducerName, RequestId, Seq, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Retired;
use batchweave_daemon::Exit;
use serde::Serialize;

use crate::admin;

const EXAMPLES: &str = "\
Examples:
  batchweave retire tokens-3 --store s3://bucket/stream --reason \"its machine is lost\"

The term can commit nothing more, so data that it uploaded and never committed may be reclaimed. An
instance that still runs stops. Committed data stays, and the next instance continues after it. A
retired lane keeps its turns: the others wait until it is opened again.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RetireArgs {
    /// Name of the producer
    #[arg(value_name = "PRODUCER")]
    producer: ProducerName,
    /// The reason; it is stored in the log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// An id of your own (32 hexadecimal digits): repeating the command with it does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, Serialize)]
struct RetireReport {
    root: String,
    producer: ProducerName,
    /// The term that ended.
    epoch: Epoch,
    /// The version that ended it; `None` when it had ended before.
    version: Option<Version>,
    /// The sequence number at which the next term continues.
    next_seq: Seq,
    /// Whether the next step is this lane's, so that all other lanes wait.
    awaited: bool,
}

pub(crate) async fn run(args: &RetireArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let producer = &args.producer;
    // The term at the start of the command: a later one belongs to a running instance.
    let epoch = log.manifest().producer(producer).map_or(0, |p| p.epoch);
    let entry = Entry::Retired(Retired {
        request: admin::request(args.request, &mut log),
        producer: producer.clone(),
        epoch,
        reason: args.reason.clone(),
    });
    let version = admin::commit(&mut log, "retire", |m| {
        let state = m.producer(producer);
        // Retired already: nothing to commit.
        let gone = state.is_some_and(|p| p.retired && p.epoch == epoch);
        Ok((!gone).then(|| entry.clone()))
    })
    .await?;
    let m = log.manifest();
    let report = RetireReport {
        root: log.store().root().to_owned(),
        producer: producer.clone(),
        epoch,
        version,
        next_seq: m.producer(producer).map_or(0, |p| p.next_seq),
        awaited: m.awaited_lane() == Some(producer),
    };
    context.done(&report, render)
}

fn render(report: &RetireReport, style: Style) -> String {
    let (producer, epoch, seq) = (&report.producer, report.epoch, report.next_seq);
    let by = admin::by_version(report.version);
    let head = format!("{producer} is retired: term {epoch} is over, {by}");
    let (head, tgbs) = (style.green(&head), count(seq, "TGB"));
    let mut text = format!("{head}\nits {tgbs} stay; the next term continues with seq {seq}");
    if report.awaited {
        let waits = "\nthe next step is this lane's: all others wait until it is opened again";
        text.push_str(&style.yellow(waits));
    }
    text
}
