//! Reads all data and checks every checksum, in parallel, with a file that records the progress. The index and trailer
//! of each object are read, too: where all frames have one size, no reader of slices needs them.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_console::output::{bytes, count, range};
use batchweave_core::ids::{Step, StreamId};
use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::{Digest, ObjectPart};
use batchweave_log::{Checksums, Located, Log, StepCrcs, slice_crcs};
use batchweave_store::Store;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::bar::Bar;
use crate::{Problem, VerifyArgs};

/// Number of steps located together.
const CHUNK: u64 = 256;
/// Interval at which the file is written.
const SAVE_PERIOD: Duration = Duration::from_secs(2);

/// The data that this run read.
#[derive(Debug, Serialize)]
pub(crate) struct DataReport {
    /// The first step read by this run.
    pub(crate) from: Step,
    /// The step after the last one.
    pub(crate) to: Step,
    /// The first step that an earlier run read, according to the file.
    pub(crate) earlier: Option<Step>,
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResumeState {
    format: u32,
    stream: StreamId,
    first_step: Step,
    next_step: Step,
    problems: Vec<Problem>,
}

/// The result of one step.
#[derive(Default)]
struct StepCheck {
    frames: u64,
    bytes: u64,
    faults: Vec<Problem>,
}

/// Reads every step from the watermark on, or from where the file ends.
pub(crate) async fn check(
    store: &Arc<dyn Store>,
    args: &VerifyArgs,
    stream: StreamId,
    problems: &mut Vec<Problem>,
) -> Result<DataReport, CliError> {
    let mut log = context::open_log(Arc::clone(store)).await?;
    let mut indexes = Checksums::new(context::open_log(Arc::clone(store)).await?);
    let (watermark, head) = (log.manifest().watermark(), log.manifest().next_step());
    let mut state = match &args.resume {
        Some(file) => ResumeState::load(file, stream)?,
        None => None,
    };
    // The steps in the file must reach up to the watermark.
    state = state.filter(|s| s.next_step >= watermark && s.next_step <= head);
    let earlier = state.as_ref().map(|s| s.first_step.max(watermark));
    let mut state = state.unwrap_or(ResumeState {
        format: 1,
        stream,
        first_step: watermark,
        next_step: watermark,
        problems: Vec::new(),
    });
    let began = Instant::now();
    let mut saved = Instant::now();
    let mut bar = Bar::new("steps", head - state.next_step);
    let mut checked = DataReport {
        from: state.next_step,
        to: head,
        earlier,
        frames: 0,
        bytes: 0,
        seconds: 0.0,
    };
    while state.next_step < head {
        let steps = state.next_step..head.min(state.next_step + CHUNK);
        let entries = look_up(&mut log, steps).await?;
        let readable: Vec<Step> = entries.iter().flatten().map(|entry| entry.step).collect();
        let slices = 0..log.manifest().stream().slices;
        let indexed = indexes.for_steps(&readable, &[slices]).await?;
        let checks = entries.into_iter().map(|entry| {
            let indexed = entry.as_ref().and_then(|entry| indexed.get(&entry.step));
            step(&log, entry, indexed)
        });
        let mut checks = futures::stream::iter(checks).buffered(args.concurrency.max(1));
        while let Some(one) = checks.next().await {
            let one = one?;
            state.problems.extend(one.faults);
            state.next_step += 1;
            checked.frames += one.frames;
            checked.bytes += one.bytes;
            bar.add(1, one.bytes);
            if saved.elapsed() >= SAVE_PERIOD {
                saved = Instant::now();
                state.save(args.resume.as_deref())?;
            }
        }
    }
    bar.end();
    forget_reclaimed(&mut log, &mut state).await?;
    state.save(args.resume.as_deref())?;
    problems.append(&mut state.problems);
    checked.seconds = began.elapsed().as_secs_f64();
    Ok(checked)
}

/// Returns the entries of these steps; `None` for those reclaimed since.
async fn look_up(
    log: &mut Log,
    steps: std::ops::Range<Step>,
) -> Result<Vec<Option<Arc<StepEntry>>>, CliError> {
    let mut entries = Vec::new();
    for step in steps {
        entries.push(match log.locate(step).await? {
            Located::At(entry) => Some(entry),
            Located::Reclaimed { .. } | Located::NotYet | Located::Ended { .. } => None,
        });
    }
    Ok(entries)
}

/// Checks a step; `indexed` are the checksums by the indexes of its objects.
async fn step(
    log: &Log,
    entry: Option<Arc<StepEntry>>,
    indexed: Option<&StepCrcs>,
) -> Result<StepCheck, CliError> {
    let mut found = StepCheck::default();
    let Some(entry) = entry else {
        return Ok(found);
    };
    let slices = entry.tgb.parts.last().map_or(0, ObjectPart::end_slice);
    let mut fault = |key: String, why| {
        let mut problem = Problem::at("data", key, why);
        problem.step = Some(entry.step);
        found.faults.push(problem);
    };
    let first_key = || {
        let first = entry.tgb.parts.first();
        first.map_or_else(String::new, |part| part.key.clone())
    };
    let frames = match log.read_frames(&entry, 0..slices, false).await {
        Ok(frames) => frames,
        Err(why) if why.is_damage() => {
            fault(first_key(), why.to_string());
            return Ok(found);
        }
        Err(why) => return Err(why.into()),
    };
    let mut crcs = Vec::with_capacity(frames.len());
    for frame in &frames {
        match &frame.fault {
            Some(why) => fault(frame.key.clone(), why.clone()),
            None => crcs.extend(frame.crc32c.map(|crc| crc.0)),
        }
    }
    if crcs.len() == frames.len() {
        match slice_crcs(0..slices, indexed) {
            Err(why) => fault(first_key(), format!("its index is not usable: {why}")),
            Ok(known) if known != crcs => {
                let why = "its index has other checksums than its slices";
                fault(first_key(), why.to_owned());
            }
            Ok(_) => {}
        }
        if Digest::from_crcs(crcs) != entry.tgb.digest {
            let why = "its slices' checksums do not give the digest that the log names";
            fault(first_key(), why.to_owned());
        }
    }
    found.frames = frames.len() as u64;
    found.bytes = frames.iter().map(|f| f.bytes).sum();
    Ok(found)
}

/// Drops faults of steps that were reclaimed while they were read.
async fn forget_reclaimed(log: &mut Log, state: &mut ResumeState) -> Result<(), CliError> {
    if !state.problems.is_empty() {
        log.catch_up().await?;
        let watermark = log.manifest().watermark();
        let readable = |p: &Problem| p.step.is_none_or(|step| step >= watermark);
        state.problems.retain(readable);
    }
    Ok(())
}

impl ResumeState {
    fn load(file: &Path, stream: StreamId) -> Result<Option<Self>, CliError> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Self::bad(file, &e.to_string())),
        };
        let state: Self =
            serde_json::from_str(&text).map_err(|e| Self::bad(file, &e.to_string()))?;
        if state.format != 1 || state.stream != stream {
            let why = format!("it is of stream {}, format {}", state.stream, state.format);
            return Err(Self::bad(file, &why));
        }
        Ok(Some(state))
    }

    fn bad(file: &Path, why: &str) -> CliError {
        CliError::Input(format!(
            "--resume {}: {why}; name another file, or remove this one to begin again",
            file.display()
        ))
    }

    /// Replaces the file atomically, so that a crash leaves either version.
    fn save(&self, file: Option<&Path>) -> Result<(), CliError> {
        let Some(file) = file else { return Ok(()) };
        let write = || {
            let folder = file.parent().filter(|p| !p.as_os_str().is_empty());
            let mut new = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
            serde_json::to_writer(&mut new, self)?;
            new.write_all(b"\n")?;
            new.persist(file).map(drop).map_err(|e| e.error)
        };
        write().map_err(|e: std::io::Error| Self::bad(file, &e.to_string()))
    }
}

impl DataReport {
    pub(crate) fn text(&self) -> String {
        let speed = self.bytes as f64 / self.seconds.max(1e-3);
        let earlier = self
            .earlier
            .filter(|first| *first < self.from)
            .map_or(String::new(), |first| {
                format!("; {} by an earlier run", range(first, self.from))
            });
        format!(
            "steps {} read, {}, {} at {}/s{earlier}",
            range(self.from, self.to),
            count(self.frames, "slice"),
            bytes(self.bytes),
            bytes(speed as u64)
        )
    }
}
