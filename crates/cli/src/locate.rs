//! `batchweave where FILE:LINE`: the steps that hold a document.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::provenance::{Piece, Provenance};
use batchweave_daemon::Exit;
use batchweave_log::{Located, Log};
use batchweave_store::Store;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::output::{Style, cells, count, joined, range, table};
use crate::sources;

const EXAMPLES: &str = "\
Examples:
  batchweave where corpus/a.jsonl:17 --store s3://bucket/stream
  batchweave where rows.parquet:1 --from 5000 --to 6000 --json";
/// Steps located before their provenance is read.
const STEPS_AT_ONCE: u64 = 4096;
/// Provenance objects read at the same time.
const READS: usize = 16;
/// Files that an error message lists.
const LISTED: usize = 5;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LocateArgs {
    /// The document: its file as in source.paths, or the end of that path, and its line or row from 1
    #[arg(value_name = "FILE:LINE")]
    document: String,
    /// First step to search [default: the oldest that can be read]
    #[arg(long, value_name = "STEP")]
    from: Option<Step>,
    /// Last step to search [default: the newest]
    #[arg(long, value_name = "STEP")]
    to: Option<Step>,
}

#[derive(Debug, Serialize)]
struct LocateReport {
    file: String,
    line: u64,
    /// The steps that were searched: `from`, inclusive, up to `to`, exclusive.
    from: Step,
    to: Step,
    found: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    step: Step,
    producer: ProducerName,
    seq: Seq,
    source: String,
    /// Pass over the input, from 0.
    pass: u64,
    /// The document's tokens in the step, the end token included: the first one, and the one after the
    /// last.
    first_token: u64,
    end_token: u64,
    slices: Vec<u64>,
}

/// The files that the argument means, by producer and number in its input list.
type WantedFiles = BTreeMap<ProducerName, BTreeMap<u32, String>>;

/// Steps by the key of their provenance object.
type StepsByProvenance = BTreeMap<String, Vec<(Step, Seq, ProducerName)>>;

pub(crate) async fn run(args: &LocateArgs, context: &Context) -> Result<Exit, CliError> {
    let (file, line) = document(&args.document)?;
    let mut log = context.log().await?;
    let wanted = wanted(&mut log, file).await?;
    let from = args.from.unwrap_or(0).max(log.manifest().watermark());
    let next = log.manifest().next_step();
    let to = args.to.map_or(next, |to| to.saturating_add(1).min(next));
    let stream = log.manifest().stream();
    let rows_per_slice = u64::from(stream.rows_per_slice).max(1);
    let search = Search {
        unit: line - 1,
        wanted,
        seq_len: stream.seq_len.into(),
        rows: u64::from(stream.slices) * rows_per_slice,
        rows_per_slice,
    };
    let (mut found, mut silent, mut at) = (Vec::new(), 0, from);
    while at < to {
        let end = to.min(at.saturating_add(STEPS_AT_ONCE));
        let (named, without) = named(&mut log, at..end).await?;
        silent += without;
        search.all(log.store().as_ref(), named, &mut found).await?;
        at = end;
    }
    found.sort_by_key(|found| found.step);
    let silent = match silent {
        0 => String::new(),
        n => format!(
            "; {} have no provenance (packing.provenance)",
            count(n, "step")
        ),
    };
    if found.is_empty() {
        let (root, steps) = (log.store().root(), range(from, to));
        return Err(CliError::Absent(format!(
            "{file}:{line} is in none of the steps {steps} of {root}: it is not read yet, is in no producer's share, was left \
             out as bad, or its steps are reclaimed{silent}"
        )));
    }
    if !silent.is_empty() {
        eprintln!("warning: the search is incomplete{silent}");
    }
    let report = LocateReport {
        file: file.to_owned(),
        line,
        from,
        to,
        found,
    };
    context.done(&report, render)
}

fn document(text: &str) -> Result<(&str, u64), CliError> {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(file, line)| Some((file, line.parse().ok()?)));
    let parts = parts.filter(|(file, line)| !file.is_empty() && *line > 0);
    parts.ok_or_else(|| {
        CliError::Usage(format!(
            "{text}: must be FILE:LINE with lines and rows from 1, as corpus/a.jsonl:17"
        ))
    })
}

/// Returns the files in the producers' input lists that `file` means.
async fn wanted(log: &mut Log, file: &str) -> Result<WantedFiles, CliError> {
    let (mut wanted, mut others) = (WantedFiles::new(), BTreeSet::new());
    let producers: Vec<ProducerName> = log.manifest().producers().map(|(p, _)| p.clone()).collect();
    for producer in producers {
        for (n, name) in (0..).zip(sources::names(log, &producer).await?) {
            let ends = name.strip_suffix(file);
            if ends.is_some_and(|rest| rest.is_empty() || rest.ends_with('/')) {
                let list = wanted.entry(producer.clone()).or_default();
                list.insert(n, name);
            } else {
                others.insert(name);
            }
        }
    }
    if wanted.is_empty() {
        let more = match others.len().saturating_sub(LISTED) as u64 {
            0 => String::new(),
            more => format!(" and {}", count(more, "other file")),
        };
        let (root, listed) = (log.store().root(), joined(others.iter().take(LISTED), ""));
        return Err(CliError::Absent(format!(
            "no producer of {root} reads a file {file}; they read: {listed}{more}"
        )));
    }
    Ok(wanted)
}

/// Groups steps by their provenance object; also returns how many steps have none.
async fn named(
    log: &mut Log,
    steps: std::ops::Range<Step>,
) -> Result<(StepsByProvenance, u64), CliError> {
    let (mut named, mut without) = (StepsByProvenance::new(), 0);
    for step in steps {
        let Located::At(entry) = log.locate(step).await? else {
            continue;
        };
        match &entry.tgb.provenance {
            Some(key) => {
                let steps = named.entry(key.clone()).or_default();
                steps.push((step, entry.seq, entry.producer.clone()));
            }
            None => without += 1,
        }
    }
    Ok((named, without))
}

struct Search {
    unit: u64,
    wanted: WantedFiles,
    seq_len: u64,
    /// Rows in a step.
    rows: u64,
    rows_per_slice: u64,
}

impl Search {
    async fn all(
        &self,
        store: &dyn Store,
        named: StepsByProvenance,
        found: &mut Vec<Found>,
    ) -> Result<(), CliError> {
        let reads = stream::iter(named).map(async |(key, steps)| {
            let provenance = sources::provenance(store, &key).await?;
            Ok::<_, CliError>((provenance, steps))
        });
        let mut reads = std::pin::pin!(reads.buffer_unordered(READS));
        while let Some((provenance, steps)) = reads.try_next().await? {
            for step in steps {
                found.extend(self.in_step(&provenance, &step));
            }
        }
        Ok(())
    }

    /// Returns one result for each pass of the document that the step holds.
    fn in_step(
        &self,
        provenance: &Provenance,
        (step, seq, producer): &(Step, Seq, ProducerName),
    ) -> Vec<Found> {
        let (Some(files), Some(sources)) = (self.wanted.get(producer), provenance.get(*seq)) else {
            return Vec::new();
        };
        let named = |piece: &Piece| files.get(&piece.file).filter(|_| piece.unit == self.unit);
        let mut found: BTreeMap<(u64, u32), Found> = BTreeMap::new();
        // Most steps do not hold the document.
        if !sources.pieces.iter().any(|piece| named(piece).is_some()) {
            return Vec::new();
        }
        for (row, _, piece) in sources.placed(self.seq_len, self.rows) {
            let Some(name) = named(&piece) else {
                continue;
            };
            let new = || Found {
                step: *step,
                producer: producer.clone(),
                seq: *seq,
                source: format!("{name}:{}", self.unit + 1),
                pass: piece.pass,
                first_token: piece.skip,
                end_token: 0,
                slices: Vec::new(),
            };
            let one = found.entry((piece.pass, piece.file)).or_insert_with(new);
            one.first_token = one.first_token.min(piece.skip);
            one.end_token = one.end_token.max(piece.skip + piece.items);
            let slice = row / self.rows_per_slice;
            if !one.slices.contains(&slice) {
                one.slices.push(slice);
            }
        }
        found.into_values().collect()
    }
}

fn render(report: &LocateReport, style: Style) -> String {
    let row = |f: &Found| {
        let (slices, tokens) = (joined(&f.slices, ""), range(f.first_token, f.end_token));
        let producer = format!("{}, seq {}", f.producer, f.seq);
        cells![f.step, slices, tokens, f.pass + 1, producer, f.source]
    };
    let header = ["STEP", "SLICES", "TOKENS", "PASS", "PRODUCER", "DOCUMENT"];
    table(style, &header, report.found.iter().map(row))
}
