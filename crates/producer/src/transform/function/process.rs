//! One worker process: Python, which applies the function to one document after another.

use std::ffi::OsStr;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::message::{Answer, AnswerHeader, Document, Request, Wanted};
use super::output::{LastLines, Limiter};
use super::watch::{Verdict, WatchList, Watched};
use crate::transform::frames::{read_frame, write_frame};

const WORKER: &str = include_str!("worker.py");
/// Size of the buffers at the ends of a pipe: as much as a pipe holds.
const BUFFER: usize = 64 << 10;
/// Most bytes of a header.
const HEADER_MAX: u64 = 64 << 20;
/// Time to import the function's modules.
const START_MAX: Duration = Duration::from_mins(5);
/// Most time to read what an ended process printed last.
const LAST_WORDS_MAX: Duration = Duration::from_secs(5);
/// Variables for the threads of numeric libraries, of which each process would start one per core.
const THREADS: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

/// The settings of all processes.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) python: String,
    /// The first message, in JSON.
    pub(super) setup: Vec<u8>,
    /// Most time for one document.
    pub(super) timeout: Duration,
    /// Most bytes of an answer.
    pub(super) limit: u64,
    pub(super) processes: Arc<WatchList>,
    pub(super) limiter: Arc<Limiter>,
}

/// The reason why a process does not start.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// The program is missing, or the system allows no more processes.
    Spawn(io::Error),
    /// The function can't be loaded.
    Load(String),
    /// It ended before it was ready.
    Ended(Death),
}

/// The end of a process while it had work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Death {
    /// The end as people read it, after the name of the function.
    pub(super) detail: String,
    /// It was ended by a signal, which may have come from outside; another process may succeed.
    pub(super) may_be_foreign: bool,
}

pub(super) struct Process {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
    watched: Arc<Watched>,
    last: LastLines,
    /// The thread that reads what it prints.
    follower: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a process and loads the function in it.
    pub(super) fn start(launch: &Launch) -> Result<Self, StartFailure> {
        let mut command = Command::new(&launch.python);
        command.args(["-c", WORKER]);
        for name in THREADS {
            if std::env::var_os(name).is_none() {
                command.env(name, OsStr::new("1"));
            }
        }
        // A group of its own, so that Ctrl-C ends this program first, and all that the function started ends with it.
        let command = command.process_group(0).stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(StartFailure::Spawn)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let ((Some(input), Some(output), Some(printed)), Some(pid)) = (pipes, pid) else {
            return Err(StartFailure::Spawn(io::Error::other(
                "its pipes are missing",
            )));
        };
        let last = LastLines::default();
        let (reader, limiter) = (last.clone(), launch.limiter.clone());
        let mut process = Self {
            child,
            input: BufWriter::with_capacity(BUFFER, input),
            output: BufReader::with_capacity(BUFFER, output),
            watched: Arc::new(Watched::new(pid)),
            last,
            follower: None,
        };
        let thread = std::thread::Builder::new().name("function-output".to_owned());
        let follow = move || reader.follow(printed, &limiter);
        process.follower = Some(thread.spawn(follow).map_err(StartFailure::Spawn)?);
        launch.processes.add(&process.watched);
        process.watched.allow(Some(START_MAX));
        let ready = process.load(&launch.setup);
        process.watched.allow(None);
        match ready {
            Ok(None) => Ok(process),
            Ok(Some(why)) => Err(StartFailure::Load(why)),
            Err(why) => Err(StartFailure::Ended(process.death(&why, START_MAX))),
        }
    }

    fn load(&mut self, setup: &[u8]) -> io::Result<Option<String>> {
        write_frame(&mut self.input, setup)?;
        Ok(serde_json::from_slice(&self.frame(HEADER_MAX)?)?)
    }

    /// Sends documents, which are then answered one after another.
    pub(super) fn send(
        &mut self,
        wanted: &Wanted,
        documents: &[Document],
        launch: &Launch,
    ) -> io::Result<()> {
        self.watched.allow(Some(launch.timeout));
        let request = Request {
            wanted,
            documents: documents.iter().map(|document| &*document.parts).collect(),
        };
        write_frame(&mut self.input, &serde_json::to_vec(&request)?)?;
        let all = documents.iter().flat_map(|document| &document.bytes);
        let length: usize = all.clone().map(bytes::Bytes::len).sum();
        self.input.write_all(&(length as u64).to_le_bytes())?;
        for bytes in all {
            self.input.write_all(bytes)?;
        }
        self.input.flush()
    }

    /// Receives the answer to the next document.
    pub(super) fn answer(&mut self, launch: &Launch) -> io::Result<Answer> {
        self.watched.allow(Some(launch.timeout));
        let header: AnswerHeader = serde_json::from_slice(&self.frame(HEADER_MAX)?)?;
        let data = self.frame(launch.limit)?;
        let fit = header.with(data);
        fit.ok_or_else(|| io::Error::other("its answer has too few or too many bytes"))
    }

    /// Says that all documents are answered.
    pub(super) fn rest(&self) {
        self.watched.allow(None);
    }

    fn frame(&mut self, most: u64) -> io::Result<Vec<u8>> {
        let frame = read_frame(&mut self.output, most)?;
        Ok(frame.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    /// Returns the last lines that the process printed, which has ended.
    fn last_words(&self) -> String {
        let began = Instant::now();
        let open = || {
            self.follower
                .as_ref()
                .is_some_and(|thread| !thread.is_finished())
        };
        // A process that left the group may keep the pipe open.
        while open() && began.elapsed() < LAST_WORDS_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.last.quoted()
    }

    /// Ends the process, which failed with `why`, and says how it ended.
    pub(super) fn death(mut self, why: &io::Error, timeout: Duration) -> Death {
        let verdict = self.watched.end();
        let status = self.child.wait();
        let by_itself = |detail: String| Death {
            detail,
            may_be_foreign: false,
        };
        let last = self.last_words();
        match (verdict, status) {
            (Some(Verdict::TimedOut), _) => by_itself(format!(
                "takes longer than {} s, the most of transform.timeout{last}",
                timeout.as_secs_f64()
            )),
            (Some(Verdict::TooLarge), _) => by_itself(format!(
                "takes more memory than transform.memory allows{last}"
            )),
            (None, Ok(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => {
                    by_itself(format!("ended its process with exit code {code}{last}"))
                }
                (None, signal) => Death {
                    detail: format!("ended its process by signal {}{last}", signal.unwrap_or(0)),
                    may_be_foreign: true,
                },
            },
            (None, Err(_)) => by_itself(format!("lost its process: {why}{last}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watched.end();
        // The process may be waited for already.
        let _ = self.child.wait();
    }
}
