//! `batchweave losses`: what the losses that ranks reported say, by step, source, row or document.
//!
//! - `by` collects losses while a run is read, and keeps the highest ones;
//! - `documents` joins rows and documents with the input files, by the provenance of their steps;
//! - `table` is the result as columns, `parquet` writes them, `render` shows them.

mod by;
mod documents;
mod parquet;
mod render;
mod table;

use std::ops::Range;
use std::path::PathBuf;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::describe::StepRange;
use batchweave_console::job::{JobSelector, incarnation};
use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use batchweave_verify::RunLosses;
use serde::Serialize;

use by::{Collected, Limits};
use table::Table;

const EXAMPLES: &str = "\
Examples:
  batchweave losses --job llm                                the loss over the run
  batchweave losses --job llm --by source --steps 4000..4999  of each source in these steps
  batchweave losses --job llm --by document --top 5 --decode  the documents with the highest loss, with their text
  batchweave losses --job llm --by row --parquet rows.parquet all rows, for further analysis

Losses are what the trainer reported of the newest lineage. Rows and documents are there where it reported them
(LossReporter(detail=...)); otherwise a document has the loss of its row.";

/// How losses are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    Step,
    Source,
    Row,
    Document,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LossesArgs {
    /// The job (its newest incarnation, or that of NAME@VERSION)
    #[arg(long, value_name = "NAME")]
    job: JobSelector,
    /// Only these steps, the last one included [default: all of the run]
    #[arg(long, value_name = "FIRST..LAST")]
    steps: Option<StepRange>,
    /// The kind of lines of the result
    #[arg(long, value_enum, default_value_t = By::Step)]
    by: By,
    /// Show those with the highest loss, this many [default: 20 rows or documents as text, else all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    top: Option<u64>,
    /// Leave out what has fewer tokens (or less weight): a few tokens may have any loss
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    min_tokens: f64,
    /// Also show the text, of at most 100 rows or documents
    #[arg(long, conflicts_with = "parquet")]
    decode: bool,
    /// The tokenizer.json to decode with; by default that of the stream
    #[arg(long, value_name = "FILE", requires = "decode")]
    tokenizer: Option<PathBuf>,
    /// Write all to this file in Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
}

/// Most rows and documents whose text is shown.
const DECODED_MAX: u64 = 100;
/// Rows and documents of a text.
const SHOWN: u64 = 20;

#[derive(Debug, Serialize)]
struct LossesReport {
    root: String,
    job: String,
    by: By,
    /// The steps that were asked for, `to` excluded.
    from: Step,
    to: Step,
    /// Those that ranks read, and those with the loss of every coordinate.
    read: u64,
    with_losses: u64,
    /// Tokens whose loss is NaN or infinite, in no mean.
    nonfinite: u64,
    /// Steps without rows, documents or sources that ranks had no room for.
    cut: u64,
    /// Rows whose documents could not be found.
    unjoined: u64,
    losses: Table,
}

pub(crate) async fn run(args: &LossesArgs, context: &Context) -> Result<Exit, CliError> {
    let details = matches!(args.by, By::Row | By::Document);
    let top = args.top.or_else(|| {
        let all = context.out.json || args.parquet.is_some();
        (details && !all).then_some(SHOWN)
    });
    if args.decode && (!details || top.is_none_or(|top| top > DECODED_MAX)) {
        return Err(CliError::Usage(format!(
            "--decode shows rows or documents: add --by document (or row) and --top N, at most {DECODED_MAX}"
        )));
    }
    let store = context.store(false).await?;
    let losses = RunLosses::open(&store, &args.job).await?;
    let run = losses.steps();
    if run.is_empty() {
        return Err(CliError::Absent(format!(
            "job {} of {} has no losses: its trainer reports none (reader.report(batch, loss=...)), none are stored \
             yet, or they are reclaimed",
            args.job,
            store.root()
        )));
    }
    let steps = args.steps_of(&run)?;
    let limits = Limits {
        by: args.by,
        top: top.map(|top| usize::try_from(top).unwrap_or(usize::MAX)),
        min_tokens: args.min_tokens,
    };
    let mut collected = Collected::new(limits);
    losses
        .read(steps.clone(), |step| collected.add(&step))
        .await?;
    let mut report = LossesReport {
        root: store.root().to_owned(),
        job: incarnation(&args.job.name, losses.opened()),
        by: args.by,
        from: steps.start,
        to: steps.end,
        read: losses.read_steps(&steps),
        with_losses: collected.whole,
        nonfinite: collected.nonfinite,
        cut: collected.cut,
        unjoined: 0,
        losses: Table::default(),
    };
    let mut log = context.log().await?;
    collected.refuse_without_details(&args.job)?;
    report.losses = match args.by {
        By::Step => Table::Steps(collected.steps()),
        By::Source => Table::Sources(collected.sources(log.manifest())),
        By::Row | By::Document => {
            let found = collected.details();
            let mut joined = documents::join(&mut log, found, args.by, top).await?;
            report.unjoined = joined.unjoined;
            if args.decode {
                let file = args.tokenizer.as_deref();
                documents::decode(&mut log, &mut joined.rows, file).await?;
            }
            Table::Details(joined.rows)
        }
    };
    args.write(&mut report)?;
    context.done(&report, render::text)
}

impl LossesArgs {
    /// Returns the steps that were asked for, of those with losses.
    fn steps_of(&self, run: &Range<Step>) -> Result<Range<Step>, CliError> {
        let steps = match &self.steps {
            Some(steps) => steps.first.max(run.start)..steps.last.saturating_add(1).min(run.end),
            None => run.clone(),
        };
        if steps.is_empty() {
            return Err(CliError::Absent(format!(
                "job {} has losses of steps {} to {} only",
                self.job,
                run.start,
                run.end - 1
            )));
        }
        Ok(steps)
    }

    /// Writes the losses into the file of `--parquet`.
    fn write(&self, report: &mut LossesReport) -> Result<(), CliError> {
        if let Some(file) = &self.parquet {
            parquet::write(file, &report.losses)
                .map_err(|why| CliError::Input(format!("--parquet {}: {why}", file.display())))?;
            report.losses = Table::Written(file.clone(), report.losses.len());
        }
        Ok(())
    }
}
