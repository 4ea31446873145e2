//! The options of a connection.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use batchweave_wire::{BALANCED, Begin, Hello, Mode, STAGES};

use crate::state::hex;
use crate::{ClientError, State};

/// The position where reading begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    Step(u64),
    /// The position of a saved state: the text of `state_dict()`.
    State(String),
    /// Step 0, where the job has no restart point above it; else the daemon refuses the rank as one that forgot its
    /// state.
    Unstated,
    /// The newest restart point of the job; without one, where the job begins.
    Latest,
}

/// The options of a connection. `ConnectOptions::new(path)` reads all slices from step 0.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub socket: PathBuf,
    /// The job; without one the reader neither retains data nor holds producers back.
    pub job: Option<String>,
    /// The attempt's id, 32 hexadecimal digits, equal on all ranks. The only rank of a job may omit it and
    /// draws its own; with several ranks, the trainer draws and broadcasts it.
    pub attempt: Option<String>,
    /// Whether an attempt whose id is drawn here may end another one of the job that runs on this node. A given
    /// id always may.
    pub takeover: bool,
    /// Index on the flattened data-parallel axis.
    pub dp_rank: u32,
    /// Size of the data-parallel axis; divides the stream's slices.
    pub dp_size: u32,
    /// The rank in the whole job, where there is one.
    pub global_rank: Option<u32>,
    /// Whether other ranks of the attempt read the same coordinate, each with its own `global_rank`.
    pub shared: bool,
    pub start: Start,
    /// Whether only this rank was restarted, in a running attempt.
    pub resume: bool,
    /// Steps that may be held or queued at once; at least 2.
    pub credits: u32,
    /// Longest wait for the daemon and its welcome.
    pub timeout: Duration,
    /// Slices per step that the trainer expects; refused where the stream differs.
    pub slices: Option<u32>,
    /// Tokens per row that the trainer expects.
    pub seq_len: Option<u32>,
    /// Rows per slice that the trainer expects.
    pub rows_per_slice: Option<u32>,
}

impl ConnectOptions {
    /// Returns options to read all slices from step 0, with 4 credits and a time-out of 30 seconds.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            job: None,
            attempt: None,
            takeover: false,
            dp_rank: 0,
            dp_size: 1,
            global_rank: None,
            shared: false,
            start: Start::Step(0),
            resume: false,
            credits: 4,
            timeout: Duration::from_secs(30),
            slices: None,
            seq_len: None,
            rows_per_slice: None,
        }
    }

    /// Returns the hello of the first session.
    pub(crate) fn hello(&self) -> Result<Hello, ClientError> {
        let (next_step, stream, parent) = match &self.start {
            Start::Step(step) => (*step, None, None),
            Start::Unstated | Start::Latest => (0, None, None),
            Start::State(text) => {
                let state = State::parse(text)?;
                let parent = state.parent();
                (state.next_step, Some(state.stream_id), parent)
            }
        };
        let attempt = self.attempt()?;
        let hello = Hello {
            job: self.job.clone(),
            yields: attempt.is_some() && self.attempt.is_none() && !self.takeover,
            attempt,
            begin: self.begin(),
            parent,
            dp_rank: self.dp_rank,
            dp_size: self.dp_size,
            global_rank: self.global_rank,
            shared: self.shared,
            mode: if self.resume {
                Mode::Resume
            } else {
                Mode::Join
            },
            stream,
            credits: self.credits,
            slices: self.slices,
            seq_len: self.seq_len,
            rows_per_slice: self.rows_per_slice,
            forms: vec![BALANCED.to_owned(), STAGES.to_owned()],
            ..Hello::new(
                concat!("batchweave-rust ", env!("CARGO_PKG_VERSION")),
                next_step,
            )
        };
        hello.check().map_err(ClientError::BadHello)?;
        Ok(hello)
    }

    fn begin(&self) -> Begin {
        match self.start {
            _ if self.job.is_none() => Begin::Stated,
            Start::Unstated => Begin::Unstated,
            Start::Latest => Begin::Latest,
            Start::Step(_) | Start::State(_) => Begin::Stated,
        }
    }

    fn attempt(&self) -> Result<Option<String>, ClientError> {
        let alone = self.dp_size == 1 && self.global_rank.unwrap_or(0) == 0 && !self.resume;
        if self.attempt.is_some() || self.job.is_none() || !alone {
            return Ok(self.attempt.clone());
        }
        let mut id = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut id)?;
        Ok(Some(hex(&id)))
    }
}
