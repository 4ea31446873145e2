//! `batchweave where FILE:LINE`: the steps that hold a document.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Style, cells, count, joined, printable, range, table};
use batchweave_console::sources;
use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::inputs::PinnedFile;
use batchweave_core::manifest::Manifest;
use batchweave_core::provenance::{Piece, Provenance};
use batchweave_daemon::Exit;
use batchweave_log::{Located, Log};
use batchweave_store::Store;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  batchweave where corpus/a.jsonl:17 --store s3://bucket/stream
  batchweave where rows.parquet:1 --from 5000 --to 6000 --json
  batchweave where web/b.jsonl@9216   (a line by the byte where it begins: of [[sources]])";
/// Steps located before their provenance is read.
const STEPS_AT_ONCE: u64 = 4096;
/// Provenance objects read at the same time.
const READS: usize = 16;
/// Files that an error message lists.
const LISTED: usize = 5;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LocateArgs {
    /// The document: its file as in source.paths, or the end of that path, and its line or row from 1, or
    /// after @ the byte where its line begins
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
    /// The line or row from 1; null with `byte`.
    line: Option<u64>,
    /// The byte where the line begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    byte: Option<u64>,
    /// The steps that were searched: `from`, inclusive, up to `to`, exclusive.
    from: Step,
    to: Step,
    found: Vec<Found>,
    /// Of a fork: the stream that has the steps before it, when they were asked for, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Elsewhere>,
}

/// A stream with steps that were asked for.
#[derive(Debug, Serialize)]
struct Elsewhere {
    root: String,
    /// It has the steps below this one.
    step: Step,
}

impl Elsewhere {
    fn of(m: &Manifest, from: Option<Step>) -> Option<Self> {
        let parent = m.stream().parent_with(from.unwrap_or(0))?;
        Some(Self {
            root: parent.root.clone(),
            step: parent.step,
        })
    }

    fn text(&self) -> String {
        let Self { root, step } = self;
        format!("steps below {step} are in the parent stream: add --store {root} to search there")
    }
}

#[derive(Debug, Serialize)]
struct Found {
    step: Step,
    producer: ProducerName,
    seq: Seq,
    source: String,
    /// Pass over the input, from 0.
    pass: u64,
    /// The part of the document in the step, in tokens from the document's first, the end token included: the first
    /// one, and the one after the last.
    first_token: u64,
    end_token: u64,
    slices: Vec<u64>,
}

/// The files that the argument means, by producer and number in its input list.
type WantedFiles = BTreeMap<ProducerName, BTreeMap<u32, PinnedFile>>;

/// Steps by the key of their provenance object.
type StepsByProvenance = BTreeMap<String, Vec<(Step, Seq, ProducerName)>>;

pub(crate) async fn run(args: &LocateArgs, context: &Context) -> Result<Exit, CliError> {
    let (file, unit) = document(&args.document)?;
    let mut log = context.log().await?;
    let wanted = wanted(&mut log, file, unit).await?;
    let from = args.from.unwrap_or(0).max(log.manifest().watermark());
    let next = log.manifest().next_step();
    let to = args.to.map_or(next, |to| to.saturating_add(1).min(next));
    let search = Search::new(log.manifest(), unit, wanted);
    let (mut found, mut silent, mut at) = (Vec::new(), 0, from);
    while at < to {
        let end = to.min(at.saturating_add(STEPS_AT_ONCE));
        let (steps, without) = by_provenance(&mut log, at..end).await?;
        silent += without;
        search.all(log.store().as_ref(), steps, &mut found).await?;
        at = end;
    }
    found.sort_by_key(|found| found.step);
    let silent = without_provenance(silent);
    let parent = Elsewhere::of(log.manifest(), args.from);
    if found.is_empty() {
        let beside = parent.as_ref().map(|parent| format!("; {}", parent.text()));
        let beside = beside.unwrap_or_default();
        let (root, steps) = (log.store().root(), range(from, to));
        return Err(CliError::Absent(format!(
            "{} is in none of the steps {steps} of {root}: it is not read yet, is in no producer's share, was left \
             out as bad, or its steps are reclaimed{silent}{beside}",
            args.document
        )));
    }
    if !silent.is_empty() {
        eprintln!("warning: the search is incomplete{silent}");
    }
    let report = LocateReport {
        file: file.to_owned(),
        line: unit.line(),
        byte: unit.byte(),
        from,
        to,
        found,
        parent,
    };
    context.done(&report, render)
}

/// Describes the steps that could not be searched; empty when there are none.
fn without_provenance(steps: u64) -> String {
    match steps {
        0 => String::new(),
        n => format!(
            "; {} have no provenance (packing.provenance)",
            count(n, "step")
        ),
    }
}

/// The number of a document in its file, as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Line(u64),
    Byte(u64),
}

impl Unit {
    /// Returns the number in provenance.
    fn number(self) -> u64 {
        match self {
            Self::Line(line) => line - 1,
            Self::Byte(byte) => byte,
        }
    }

    fn line(self) -> Option<u64> {
        matches!(self, Self::Line(_)).then(|| self.number() + 1)
    }

    fn byte(self) -> Option<u64> {
        matches!(self, Self::Byte(_)).then(|| self.number())
    }
}

fn document(text: &str) -> Result<(&str, Unit), CliError> {
    let number = |(file, number): (&'_ str, &str)| Some((file.len(), number.parse::<u64>().ok()?));
    let line = text
        .rsplit_once(':')
        .and_then(number)
        .filter(|(_, line)| *line > 0);
    let byte = text.rsplit_once('@').and_then(number);
    let found = line
        .map(|(end, line)| (end, Unit::Line(line)))
        .or(byte.map(|(end, byte)| (end, Unit::Byte(byte))))
        .filter(|(end, _)| *end > 0);
    found.map(|(end, unit)| (&text[..end], unit)).ok_or_else(|| {
        CliError::Usage(format!(
            "{text}: must be FILE:LINE with lines and rows from 1, as corpus/a.jsonl:17, or FILE@BYTE"
        ))
    })
}

/// Returns the files in the producers' input lists that `file` means and that number documents as `unit` does.
async fn wanted(log: &mut Log, file: &str, unit: Unit) -> Result<WantedFiles, CliError> {
    let (mut wanted, mut others) = (WantedFiles::new(), BTreeSet::new());
    let mut otherwise = None;
    let producers: Vec<ProducerName> = log.manifest().producers().map(|(p, _)| p.clone()).collect();
    for producer in producers {
        for (n, pin) in (0..).zip(sources::names(log, &producer).await?) {
            let ends = pin.name.strip_suffix(file);
            if ends.is_none_or(|rest| !rest.is_empty() && !rest.ends_with('/')) {
                others.insert(pin.name);
            } else if pin.by_byte == unit.byte().is_some() {
                let list = wanted.entry(producer.clone()).or_default();
                list.insert(n, pin);
            } else {
                otherwise = Some(pin);
            }
        }
    }
    if let Some(pin) = otherwise.filter(|_| wanted.is_empty()) {
        return Err(CliError::Usage(numbered_otherwise(&pin)));
    }
    if wanted.is_empty() {
        let more = match others.len().saturating_sub(LISTED) as u64 {
            0 => String::new(),
            more => format!(" and {}", count(more, "other file")),
        };
        let listed = others.iter().take(LISTED).map(|name| printable(name));
        let (root, listed) = (log.store().root(), joined(listed, ""));
        return Err(CliError::Absent(format!(
            "no producer of {root} reads a file {file}; they read: {listed}{more}"
        )));
    }
    Ok(wanted)
}

/// Describes how the documents of a file are numbered.
fn numbered_otherwise(pin: &PinnedFile) -> String {
    let name = &pin.name;
    if pin.by_byte {
        format!(
            "lines of {name} are numbered by the byte where they begin, as {name}@0: `head -n N {name} | wc -c` gives \
             that of line N + 1"
        )
    } else {
        format!("documents of {name} are numbered by line or row, as {name}:1")
    }
}

/// Groups steps by their provenance object; also returns how many steps have none.
async fn by_provenance(
    log: &mut Log,
    steps: std::ops::Range<Step>,
) -> Result<(StepsByProvenance, u64), CliError> {
    let (mut grouped, mut without) = (StepsByProvenance::new(), 0);
    for step in steps {
        let Located::At(entry) = log.locate(step).await? else {
            continue;
        };
        match &entry.tgb.provenance {
            Some(key) => {
                let steps = grouped.entry(key.clone()).or_default();
                steps.push((step, entry.seq, entry.producer.clone()));
            }
            None => without += 1,
        }
    }
    Ok((grouped, without))
}

struct Search {
    unit: u64,
    wanted: WantedFiles,
    /// The state of the log, for the shapes of batches.
    manifest: Manifest,
}

impl Search {
    fn new(manifest: &Manifest, unit: Unit, wanted: WantedFiles) -> Self {
        Self {
            unit: unit.number(),
            wanted,
            manifest: manifest.clone(),
        }
    }

    async fn all(
        &self,
        store: &dyn Store,
        grouped: StepsByProvenance,
        found: &mut Vec<Found>,
    ) -> Result<(), CliError> {
        let reads = stream::iter(grouped).map(async |(key, steps)| {
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
    fn in_step(&self, provenance: &Provenance, step: &(Step, Seq, ProducerName)) -> Vec<Found> {
        let (_, seq, producer) = step;
        let (Some(files), Some(sources)) = (self.wanted.get(producer), provenance.get(*seq)) else {
            return Vec::new();
        };
        let wanted_file =
            |piece: &Piece| files.get(&piece.file).filter(|_| piece.unit == self.unit);
        let mut found: BTreeMap<(u64, u32), Found> = BTreeMap::new();
        // Most steps do not hold the document.
        if sources
            .pieces
            .iter()
            .all(|piece| wanted_file(piece).is_none())
        {
            return Vec::new();
        }
        let (rows, seq_len) = self.manifest.shape_at(producer, *seq);
        let (rows, slices) = (
            u64::from(rows).max(1),
            u64::from(self.manifest.stream().slices),
        );
        for (row, _, piece) in sources.placed(seq_len.into(), slices * rows) {
            let Some(pin) = wanted_file(&piece) else {
                continue;
            };
            let new = || self.found(step, pin, &piece);
            let one = found.entry((piece.pass, piece.file)).or_insert_with(new);
            one.first_token = one.first_token.min(piece.skip);
            one.end_token = one.end_token.max(piece.skip + piece.items);
            let slice = row / rows;
            if !one.slices.contains(&slice) {
                one.slices.push(slice);
            }
        }
        found.into_values().collect()
    }

    fn found(&self, step: &(Step, Seq, ProducerName), pin: &PinnedFile, piece: &Piece) -> Found {
        let (step, seq, producer) = step;
        Found {
            step: *step,
            producer: producer.clone(),
            seq: *seq,
            source: sources::document(pin, self.unit),
            pass: piece.pass,
            first_token: piece.skip,
            end_token: 0,
            slices: Vec::new(),
        }
    }
}

fn render(report: &LocateReport, style: Style) -> String {
    let row = |f: &Found| {
        let (slices, tokens) = (joined(&f.slices, ""), range(f.first_token, f.end_token));
        let producer = format!("{}, seq {}", f.producer, f.seq);
        let source = printable(&f.source);
        cells![f.step, slices, tokens, f.pass + 1, producer, source]
    };
    let header = ["STEP", "SLICES", "TOKENS", "PASS", "PRODUCER", "DOCUMENT"];
    let mut text = table(style, &header, report.found.iter().map(row));
    if let Some(parent) = &report.parent {
        text += &parent.text();
    }
    text
}
