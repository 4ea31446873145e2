//! `batchweave show STEP`: one global batch: its producer, its objects, whether it is intact, and the
//! contents of a slice.

pub(crate) mod decode;
mod documents;
mod runs;
mod values;
mod vocabulary;

use std::path::PathBuf;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job_status::{self, JobStatus, ObjectsByJob, Reader};
use batchweave_console::output::{
    Style, bytes, cells, count, fields, joined, or_dash, range, table,
};
use batchweave_core::ids::Step;
use batchweave_core::manifest::stages::StageState;
use batchweave_core::manifest::state::QuarantineState;
use batchweave_core::manifest::{Manifest, StepEntry};
use batchweave_core::tgb::{Digest, Layout};
use batchweave_daemon::Exit;
use batchweave_log::{Frame, Located, Log};
use serde::Serialize;
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  batchweave show 1200 --store s3://bucket/stream
  batchweave show 1200 --slices                 read every slice and verify its checksum
  batchweave show 1200 --slice 3 --values 32    the shape and first tokens of slice 3
  batchweave show 1200 --slice 3 --decode       its text and source documents
  batchweave show 1200 --sources                the source documents of all rows; reads no data";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The step to show
    #[arg(value_name = "STEP", value_parser = step)]
    step: Step,
    /// Read all slices and verify checksums and digest
    #[arg(long)]
    slices: bool,
    /// Read this slice and show its arrays
    #[arg(long, value_name = "N")]
    slice: Option<u32>,
    /// Number of values of each array to show
    #[arg(long, value_name = "N", default_value_t = 16)]
    values: usize,
    /// Show the rows as text, of one slice or all, with their source documents
    #[arg(long)]
    decode: bool,
    /// Show the source documents of all rows, without reading data; --json has those of the other steps of the same
    /// provenance object, too
    #[arg(long)]
    sources: bool,
    /// The tokenizer.json to decode with; by default the vocabulary of this program or the file that the stream
    /// keeps
    #[arg(long, value_name = "FILE", requires = "decode")]
    tokenizer: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct StepReport {
    #[serde(flatten)]
    entry: Arc<StepEntry>,
    /// The stage of the step; omitted for the shape of stream.json.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<StageState>,
    /// The quarantines that include the step.
    quarantines: Vec<QuarantineState>,
    /// The newest attempt of each job, and whether it reads the step.
    readers: Vec<Reader>,
    /// With --slices or --slice: the slices that were read.
    slices: Option<Vec<Frame>>,
    /// With --slices: whether the slices' checksums match the digest in the log.
    digest_matches: Option<bool>,
    /// With --slice: the arrays of that slice.
    arrays: Option<Vec<Array>>,
    /// With --decode: the rows as text.
    rows: Option<Vec<decode::Decoded>>,
    /// With --sources: the documents of this step, then of other ones.
    sources: Option<Vec<documents::StepDocuments>>,
}

#[derive(Debug, Serialize)]
struct Array {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    /// The first values; `None` for types that JSON has no numbers for.
    first: Option<Vec<Value>>,
}

impl ShowArgs {
    fn check_slice(&self, slices: u32) -> Result<(), CliError> {
        let Some(slice) = self.slice.filter(|&slice| slice >= slices) else {
            return Ok(());
        };
        let why = format!(
            "--slice {slice}: the stream has slices {}",
            range(0, slices.into())
        );
        Err(CliError::Usage(why))
    }
}

pub(crate) async fn run(args: &ShowArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let slices = log.manifest().stream().slices;
    args.check_slice(slices)?;
    let entry = locate(&mut log, args.step).await?;
    let wanted = match args.slice {
        Some(slice) if !args.slices => Some(slice..slice + 1),
        _ => (args.slices || args.decode).then_some(0..slices),
    };
    let objects = log.job_objects().await?;
    let readers = readers(log.manifest(), &objects, args.step);
    let quarantines = quarantines(log.manifest(), args.step);
    let stage = log.manifest().stage_of(&entry.producer, entry.seq).cloned();
    let mut report = StepReport::new(entry, quarantines, readers);
    report.stage = stage;
    if args.sources {
        report.sources = Some(documents::read(&mut log, &report.entry).await?);
    }
    if let Some(wanted) = wanted {
        let keep = args.slice.is_some() || args.decode;
        let frames = log.read_frames(&report.entry, wanted, keep).await?;
        report.digest_matches = args.slices.then(|| digest_matches(&report.entry, &frames));
        let arrays = |slice| arrays(&frames, slice, args.values);
        report.arrays = args.slice.and_then(arrays);
        if args.decode {
            let file = args.tokenizer.as_deref();
            report.rows = Some(decode::rows(&mut log, &report.entry, &frames, file).await?);
        }
        report.slices = Some(frames);
    }
    context.out.report(&report, render)?;
    report.fault().map_or(Ok(Exit::Ok), |fault| {
        let (step, root) = (args.step, log.store().root());
        Err(CliError::Unsound(format!("step {step} of {root}: {fault}")))
    })
}

/// The beginning of the first row of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FirstRow {
    /// `FILE:LINE` of its document.
    pub(crate) source: Option<String>,
    pub(crate) tokens: u64,
    pub(crate) text: String,
}

/// Reads the first slice of step 0 and decodes its first row; `None` where rows have no text.
pub(crate) async fn first_row(log: &mut Log) -> Result<Option<FirstRow>, CliError> {
    let entry = locate(log, 0).await?;
    let frames = log.read_frames(&entry, 0..1, true).await?;
    if let Some(fault) = StepReport::fault_of(&frames) {
        return Err(CliError::Unsound(format!("step 0: {fault}")));
    }
    let rows = decode::rows(log, &entry, &frames, None).await?;
    Ok(rows.first().and_then(decode::Decoded::beginning))
}

fn step(text: &str) -> Result<Step, String> {
    text.parse().map_err(|_| {
        "give the number of a step, from 0; `batchweave status` shows the newest".to_owned()
    })
}

async fn locate(log: &mut Log, step: Step) -> Result<Arc<StepEntry>, CliError> {
    let steps = count(log.manifest().next_step(), "step");
    let root = log.store().root().to_owned();
    let why = match log.locate(step).await? {
        Located::At(entry) => return Ok(entry),
        Located::NotYet => format!(
            "is not committed yet: the stream has {steps}; `batchweave log --follow` shows new ones"
        ),
        Located::Ended { end } => {
            format!(
                "does not exist: the stream ended with {}",
                count(end, "step")
            )
        }
        Located::Reclaimed { .. }
            if let Some(parent) = log.manifest().stream().parent_with(step) =>
        {
            format!("is not here: {parent}")
        }
        Located::Reclaimed { watermark } => {
            format!("is reclaimed: the oldest step that can be read is {watermark}")
        }
    };
    Err(CliError::Absent(format!("step {step} of {root} {why}")))
}

fn quarantines(m: &Manifest, step: Step) -> Vec<QuarantineState> {
    let mut all = m.quarantines().to_vec();
    all.retain(|q| (q.first..=q.last).contains(&step));
    all
}

fn readers(m: &Manifest, objects: &ObjectsByJob, step: Step) -> Vec<Reader> {
    let jobs = job_status::of_open_jobs(m, Some(objects));
    let reader = |job: &JobStatus| job.reader_of(step, m.quarantines());
    jobs.iter().filter_map(reader).collect()
}

fn digest_matches(entry: &StepEntry, frames: &[Frame]) -> bool {
    let crcs: Option<Vec<u32>> = frames.iter().map(|f| f.crc32c.map(|crc| crc.0)).collect();
    crcs.is_some_and(|crcs| Digest::from_crcs(crcs) == entry.tgb.digest)
}

/// Returns the arrays of a slice; `None` when it is damaged. A payload that has a correct checksum and
/// breaks the rules of the layout appears as one array that names the error.
fn arrays(frames: &[Frame], slice: u32, values: usize) -> Option<Vec<Array>> {
    let payload = frames.iter().find(|f| f.slice == slice)?.payload.as_ref()?;
    let array = |array: &batchweave_core::tgb::Array| {
        let start = array.offset as usize;
        let data = payload.get(start..start + array.bytes as usize);
        Array {
            name: array.name.clone(),
            dtype: array.dtype.name().to_owned(),
            shape: array.shape.clone(),
            first: values::first(array.dtype, data.unwrap_or_default(), values),
        }
    };
    Some(match Layout::parse(payload) {
        Ok(layout) => layout.arrays().iter().map(array).collect(),
        Err(e) => vec![Array {
            name: format!("(unreadable: {e})"),
            dtype: "-".into(),
            shape: Vec::new(),
            first: None,
        }],
    })
}

impl StepReport {
    /// The report of a step of which nothing was read but its entry in the log.
    fn new(entry: Arc<StepEntry>, quarantines: Vec<QuarantineState>, readers: Vec<Reader>) -> Self {
        Self {
            entry,
            stage: None,
            quarantines,
            readers,
            slices: None,
            digest_matches: None,
            arrays: None,
            rows: None,
            sources: None,
        }
    }

    /// Counts the damaged slices; `None` if all are whole.
    fn fault_of(frames: &[Frame]) -> Option<String> {
        let damaged = frames.iter().filter(|f| f.fault.is_some()).count() as u64;
        let slices = count(damaged, "slice");
        (damaged > 0).then(|| format!("{slices} damaged; each one's fault says what to do"))
    }

    /// Summarizes the damage in one line; the report has the details.
    fn fault(&self) -> Option<String> {
        let damaged = Self::fault_of(self.slices.as_deref().unwrap_or_default());
        if damaged.is_some() {
            return damaged;
        }
        (self.digest_matches == Some(false)).then(|| {
            "every slice is whole, but they are not those that were committed (the digest differs): \
             restore the objects or quarantine the step"
                .to_owned()
        })
    }
}

fn render(report: &StepReport, style: Style) -> String {
    let (entry, tgb) = (&report.entry, &report.entry.tgb);
    let stored: u64 = tgb.parts.iter().map(|p| p.length).sum();
    let producer = &entry.producer;
    let producer = format!("{producer}, term {}, seq {}", entry.epoch, entry.seq);
    let (rows, tokens) = (
        count(tgb.rows, if tgb.cost.is_some() { "bin" } else { "row" }),
        count(tgb.tokens, "token"),
    );
    let mut rows = vec![
        ("step", entry.step.to_string()),
        ("producer", producer),
        ("version", entry.version.to_string()),
        ("holds", format!("{rows}, {tokens}, {}", bytes(stored))),
        ("digest", tgb.digest.to_string()),
    ];
    rows.extend(report.stage.iter().map(|stage| {
        let (name, rows, seq_len) = (&stage.name, stage.rows_per_slice, stage.seq_len);
        (
            "stage",
            format!("{name}: {rows} x {seq_len} tokens per slice"),
        )
    }));
    rows.extend(tgb.cost.map(|cost| {
        let text = format!(
            "the dearest slice costs {:.3} times the mean",
            cost.imbalance()
        );
        ("balance", text)
    }));
    rows.extend(tgb.provenance.iter().map(|key| ("provenance", key.clone())));
    let quarantines = report.quarantines.iter();
    rows.extend(quarantines.map(|q| ("quarantine", quarantine(q))));
    rows.extend(report.readers.iter().map(|r| ("job", r.text())));
    let mut text = fields(&rows) + "\n" + &part_table(report, style);
    if let Some(frames) = &report.slices {
        text = text + "\n" + &slice_table(frames, style);
    }
    match report.digest_matches {
        Some(true) => text += &style.green("\nall slices are whole and match the digest\n"),
        Some(false) => text += &style.red("\nthe slices do not match the digest\n"),
        None => {}
    }
    for array in report.arrays.iter().flatten() {
        text = text + "\n" + &array.text();
    }
    for row in report.rows.iter().flatten() {
        text += &row.text();
    }
    let own = report.sources.iter().flatten().next();
    text.extend(own.map(|own| format!("\n{}", own.text(style))));
    text
}

fn quarantine(state: &QuarantineState) -> String {
    let lifted = state
        .lifted
        .map_or(String::new(), |v| format!(", and before version {v}"));
    let (id, added, reason) = (state.id.to_string(), state.added, &state.reason);
    format!("{id:.8}, for attempts opened after version {added}{lifted}: {reason}")
}

fn part_table(report: &StepReport, style: Style) -> String {
    let rows = report.entry.tgb.parts.iter().map(|p| {
        let slices = range(p.first_slice.into(), p.end_slice().into());
        cells![slices, p.offset, p.length, p.key]
    });
    table(style, &["SLICES", "OFFSET", "BYTES", "OBJECT"], rows)
}

fn slice_table(frames: &[Frame], style: Style) -> String {
    let rows = frames.iter().map(|f| {
        let verdict = f.fault.as_deref().unwrap_or("ok");
        cells![f.slice, f.offset, f.bytes, or_dash(f.crc32c), verdict]
    });
    let header = ["SLICE", "OFFSET", "BYTES", "CRC32C", "VERDICT"];
    table(style, &header, rows)
}

impl Array {
    fn text(&self) -> String {
        let head = format!(
            "{}  {} [{}]",
            self.name,
            self.dtype,
            joined(&self.shape, "")
        );
        match &self.first {
            Some(values) => {
                let values: Vec<_> = values.iter().map(Value::to_string).collect();
                format!("{head}\n  {} ...\n", values.join(" "))
            }
            None => format!("{head}\n"),
        }
    }
}
