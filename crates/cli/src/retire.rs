//! `batchweave retire`: ends the epoch of a producer that is gone, by a person's word.

use batchweave_core::ids::{Epoch, ProducerName, RequestId, Seq, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Retired;
use batchweave_daemon::Exit;
use serde::Serialize;

use crate::admin;
use crate::context::{self, Context};
use crate::error::CliError;
use crate::output::{Style, count};

const EXAMPLES: &str = "\
Examples:
  batchweave retire tokens-3 --store s3://bucket/stream --reason \"its machine is gone for good\"

Nothing of the epoch can be committed from then on, so that what it uploaded and never committed may
be reclaimed. An instance that still runs stops. What it has committed stays, and whoever opens the
producer again goes on behind it. A lane that is retired keeps its turns: the others wait until
somebody opens it.";

/// Arguments of `batchweave retire`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RetireArgs {
    /// The producer
    #[arg(value_name = "PRODUCER")]
    producer: ProducerName,
    /// Why; it stays in the log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// An id that you drew (32 hexadecimal digits): the same again does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

#[derive(Debug, Serialize)]
struct RetireReport {
    root: String,
    producer: ProducerName,
    /// The epoch that has ended.
    epoch: Epoch,
    /// The version that ended it; none when it was so before.
    version: Option<Version>,
    /// Where whoever opens the producer again goes on.
    next_seq: Seq,
    /// All lanes wait for this one.
    awaited: bool,
}

pub(crate) async fn run(args: &RetireArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context::open_log(context.store(false).await?).await?;
    let producer = &args.producer;
    // The epoch that the person means: one that was opened since is somebody alive.
    let epoch = log.manifest().producer(producer).map_or(0, |p| p.epoch);
    let entry = Entry::Retired(Retired {
        request: admin::request(args.request, &mut log),
        producer: producer.clone(),
        epoch,
        reason: args.reason.clone(),
    });
    let version = admin::commit(&mut log, "retire", |m| {
        let state = m.producer(producer);
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
    context.out.report(&report, render)?;
    Ok(Exit::Ok)
}

fn render(report: &RetireReport, style: Style) -> String {
    let (producer, epoch, seq) = (&report.producer, report.epoch, report.next_seq);
    let by = report
        .version
        .map_or("as before".to_owned(), |v| format!("by version {v}"));
    let head = style.green(&format!(
        "{producer} is retired: epoch {epoch} is over, {by}"
    ));
    let mut text = format!(
        "{head}\nits {} stay; whoever opens it again goes on with seq {seq}",
        count(seq, "TGB")
    );
    if report.awaited {
        let waits = "the next step is this lane's: all others wait until somebody opens it";
        text.push_str(&style.yellow(&format!("\n{waits}")));
    }
    text
}
