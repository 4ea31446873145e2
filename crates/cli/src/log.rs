//! `batchweave log`: the commits of a stream, one per line, with the validity of every entry.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::context::{self, Context};
use batchweave_console::describe::{self, StepRange};
use batchweave_console::output::{Style, or_dash};
use batchweave_core::ids::{CommitId, Version};
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Folded, Writer};
use batchweave_daemon::Exit;
use batchweave_log::{AsOf, Log};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  batchweave log --store s3://bucket/stream              the newest 20 commits
  batchweave log --from 0 --limit 100
  batchweave log --follow --json | jq -c .entries[]

A verdict depends on the state before its entry, so this folds from the nearest older snapshot on,
or from the beginning. With --json every commit is an object on a line of its own.";

/// Commits shown without --from and --limit.
const NEWEST: u64 = 20;
/// Interval at which --follow polls the log.
const POLL: Duration = Duration::from_millis(500);

/// The heading above the first line of text.
const HEADING: &str = " VERSION  COMMIT        WRITER        ENTRIES -> STEPS";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogArgs {
    /// First version to show
    #[arg(long, value_name = "VERSION")]
    from: Option<Version>,
    /// Most commits to show; without --from: number of newest commits to begin with [default: 20]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Continue with new commits as they arrive, until the stream ends
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Serialize)]
struct CommitReport {
    version: Version,
    commit: Option<CommitId>,
    writer: Option<Writer>,
    /// The reason why the record is void as a whole.
    void: Option<String>,
    entries: Vec<EntryReport>,
    /// Steps that the commit assigned.
    steps: Option<StepRange>,
}

#[derive(Debug, Serialize)]
struct EntryReport {
    kind: &'static str,
    summary: String,
    /// `applies`, `repeat` (applied before, changes nothing) or `void`.
    verdict: &'static str,
    /// The reason why it is void.
    reason: Option<String>,
    entry: Entry,
}

pub(crate) async fn run(args: &LogArgs, context: &Context) -> Result<Exit, CliError> {
    let store = context.store(false).await?;
    let limit = args.limit.unwrap_or(NEWEST);
    let (from, end) = match (args.from, args.limit) {
        (Some(from), Some(limit)) => (from, from.saturating_add(limit)),
        (Some(from), None) => (from, Version::MAX),
        (None, _) => {
            let next = context::next_version(&store).await?;
            (next.saturating_sub(limit), Version::MAX)
        }
    };
    // The view hides the records from `from` on, so the log opens just before the first one to show.
    let view = AsOf::new(store, from);
    let mut log = context::open_log(Arc::clone(&view) as _).await?;
    let next = log.manifest().next_version();
    if next < from && !args.follow {
        let root = log.store().root();
        return Err(CliError::Absent(format!(
            "version {from} of {root} is not written yet: the next one is {next}; \
             --follow waits for it"
        )));
    }
    view.show_until(end);
    print(&mut log, args.follow, from..end, context).await?;
    Ok(Exit::Ok)
}

async fn print(
    log: &mut Log,
    follow: bool,
    versions: Range<Version>,
    context: &Context,
) -> Result<(), CliError> {
    let mut version = log.manifest().next_version();
    let mut heading = Some(HEADING);
    loop {
        let (folded, at_head) = log.catch_up_window().await?;
        for one in folded {
            let line = CommitReport::new(version, one);
            if versions.contains(&version) {
                if let Some(text) = heading.take() {
                    context.out.part(|style| style.bold(text))?;
                }
                context.out.report(&line, CommitReport::text)?;
            }
            version += 1;
        }
        let ended = log.manifest().end().is_some();
        if at_head && (!follow || ended || version >= versions.end) {
            return Ok(());
        }
        if at_head {
            tokio::time::sleep(POLL).await;
        }
    }
}

impl CommitReport {
    fn new(version: Version, folded: Folded) -> Self {
        let void = folded.void.map(|reason| reason.to_string());
        let mut verdicts = folded.entries.into_iter();
        let report = |entry: &Entry| {
            let (verdict, reason) = match verdicts.next() {
                Some(Ok(Validity::Applies)) => ("applies", None),
                Some(Ok(Validity::Repeat)) => ("repeat", None),
                Some(Err(reason)) => ("void", Some(reason.to_string())),
                None => ("void", void.clone()),
            };
            EntryReport {
                kind: entry.kind(),
                summary: describe::entry(entry),
                verdict,
                reason,
                entry: entry.clone(),
            }
        };
        let record = folded.record.as_deref();
        let entries = record.iter().flat_map(|record| &record.entries);
        let (first, last) = (folded.placed.first(), folded.placed.last());
        Self {
            version,
            entries: entries.map(report).collect(),
            commit: record.map(|record| record.commit),
            writer: record.map(|record| record.writer.clone()),
            void,
            steps: first.zip(last).map(|(first, last)| StepRange {
                first: first.step,
                last: last.step,
            }),
        }
    }

    fn text(&self, style: Style) -> String {
        let commit = or_dash(self.commit);
        let writer = or_dash(self.writer.as_ref().map(|w| match w.epoch {
            // Epoch 0: the record of a command, named by its verb alone (`retire`).
            0 => w.name.trim_start_matches("batchweave-").to_owned(),
            epoch => format!("{}/{epoch}", w.name),
        }));
        let entries: Vec<_> = self
            .entries
            .iter()
            .map(|e| e.text(style, &writer))
            .collect();
        let entries = match &self.void {
            Some(reason) => style.red(&format!("VOID record: {reason}")),
            None => entries.join("; "),
        };
        let steps = self
            .steps
            .map(|steps| format!(" -> steps {}", steps.text()))
            .unwrap_or_default();
        format!(
            "{:>8}  {commit:.12}  {writer:<12}  {entries}{steps}",
            self.version
        )
    }
}

impl EntryReport {
    fn text(&self, style: Style, writer: &str) -> String {
        let text = describe::beside(&self.entry, writer);
        match (self.verdict, &self.reason) {
            ("void", Some(reason)) => style.red(&format!("VOID {text}: {reason}")),
            ("repeat", _) => format!("{text} (a repeat)"),
            _ => text,
        }
    }
}
