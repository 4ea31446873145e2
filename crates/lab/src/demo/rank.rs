//! A training rank of the demo, in Rust: `batchweave-lab demo-rank`. The Python one is
//! `batchweave.demo_rank`; both write the same records:
//!
//! ```text
//! u64 step | u32 slice | u32 bytes | the array `tokens` as it lies in memory (little-endian)
//! ```
//!
//! The state file holds the valid size of the output file. When the rank is restarted, it truncates the
//! output to that size and continues from the state, so that each step is in it once, whenever the rank was
//! killed.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use batchweave_client::{Batch, Client, ClientError, ConnectOptions, Start};
use batchweave_daemon::Exit;
use serde::{Deserialize, Serialize};

use super::DemoError;

/// A training rank of the demo.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RankArgs {
    /// The consumer daemon's socket
    #[arg(long)]
    socket: PathBuf,
    /// Name of the job
    #[arg(long)]
    job: String,
    /// The attempt's id, 32 hexadecimal digits
    #[arg(long)]
    attempt: String,
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    world: u32,
    /// Read the steps below this one; all by default
    #[arg(long)]
    steps: Option<u64>,
    #[arg(long)]
    state_file: PathBuf,
    /// Output file of the records
    #[arg(long)]
    out: PathBuf,
    /// Output file of the seconds that each read waited
    #[arg(long)]
    waits: PathBuf,
    /// Milliseconds of training per step
    #[arg(long, default_value_t = 0)]
    step_ms: u64,
    /// Make every step divisible by this number, and the end, a restart point of the job; never by default
    #[arg(long, default_value_t = 0)]
    mark_every: u64,
}

/// Longest time to wait for a daemon that is restarted, or for a batch.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Serialize, Deserialize)]
struct Saved {
    state: String,
    bytes: u64,
}

/// Reads to the end, or to `--steps`.
pub(crate) fn run(args: &RankArgs) -> Result<Exit, DemoError> {
    let saved = load(&args.state_file);
    let mut reader = Client::connect(options(args, saved.as_ref()))?;
    let io = |verb, path: &Path| {
        let path = path.to_path_buf();
        move |e: std::io::Error| DemoError::io(verb, &path, &e)
    };
    let mut out = open_out(&args.out, saved.as_ref().map_or(0, |s| s.bytes))
        .map_err(io("open", &args.out))?;
    let mut waits = open_waits(&args.waits).map_err(io("open", &args.waits))?;
    let marks = |step: u64| args.mark_every > 0 && step.is_multiple_of(args.mark_every);
    if let Some(saved) = saved.filter(|_| marks(reader.next_step())) {
        // The rank may have been killed between saving and marking; repeating a mark is harmless.
        reader.checkpoint(&saved.state)?;
    }
    while args.steps.is_none_or(|steps| reader.next_step() < steps) {
        let began = Instant::now();
        let Some(batch) = reader.next(PATIENCE)? else {
            break;
        };
        let waited = began.elapsed().as_secs_f64();
        writeln!(waits, "{waited:.6}").map_err(io("write", &args.waits))?;
        std::thread::sleep(Duration::from_millis(args.step_ms));
        out.write_all(&records(&batch)?)
            .map_err(io("write", &args.out))?;
        let state = batch.state_dict();
        drop(batch);
        let bytes = out.stream_position().map_err(io("write", &args.out))?;
        let saved = Saved { state, bytes };
        save(&args.state_file, &saved).map_err(io("write", &args.state_file))?;
        if marks(reader.next_step()) {
            reader.checkpoint(&saved.state)?;
        }
    }
    if args.mark_every > 0 {
        // `close` waits until this mark is stored, and the ledgers before it: no kill of the daemon leaves a hole.
        let last = reader.state_dict();
        reader.checkpoint(&last)?;
    }
    reader.close(PATIENCE)?;
    Ok(Exit::Ok)
}

/// Returns what an earlier process of the rank saved, if it can be read.
fn load(path: &Path) -> Option<Saved> {
    let bytes = fs::read(path).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Returns the options of a session that resumes at the saved state, or begins at step 0.
fn options(args: &RankArgs, saved: Option<&Saved>) -> ConnectOptions {
    let state = saved.map(|s| Start::State(s.state.clone()));
    ConnectOptions {
        job: Some(args.job.clone()),
        attempt: Some(args.attempt.clone()),
        dp_rank: args.rank,
        dp_size: args.world,
        global_rank: Some(args.rank),
        resume: state.is_some(),
        start: state.unwrap_or(Start::Step(0)),
        timeout: PATIENCE,
        ..ConnectOptions::new(&args.socket)
    }
}

fn open_waits(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

fn open_out(path: &Path, bytes: u64) -> std::io::Result<File> {
    let mut out = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)?;
    out.set_len(bytes)?;
    out.seek(SeekFrom::Start(bytes))?;
    Ok(out)
}

fn records(batch: &Batch) -> Result<Vec<u8>, ClientError> {
    let mut record = Vec::new();
    for slice in batch.slices() {
        // Tokens of a small vocabulary have half the width.
        let tokens: Vec<u8> = if let Ok(tokens) = slice.array::<u16>("tokens") {
            tokens.iter().flat_map(|t| t.to_le_bytes()).collect()
        } else {
            let tokens = slice.array::<u32>("tokens")?;
            tokens.iter().flat_map(|t| t.to_le_bytes()).collect()
        };
        record.extend(batch.step().to_le_bytes());
        record.extend(slice.index().to_le_bytes());
        record.extend((tokens.len() as u32).to_le_bytes());
        record.extend(tokens);
    }
    Ok(record)
}

/// Replaces the file atomically: a kill leaves the old or the new state.
fn save(path: &Path, saved: &Saved) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, serde_json::to_vec(saved)?)?;
    fs::rename(&fresh, path)
}
