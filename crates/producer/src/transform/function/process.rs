//! One worker process: Python, which applies the function to one document after another.

use std::ffi::OsStr;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::family::MARK;
use super::message::{Answer, AnswerFrame, Document, Request, Wanted};
use super::output::{LastLines, Limiter};
use super::watch::{Start, Verdict, WatchList, Watched};
use crate::transform::frames::{read_frame, write_frame};

const WORKER: &str = include_str!("worker.py");
/// Size of the buffers at the ends of a pipe: as much as a new pipe holds.
const BUFFER: usize = 64 << 10;
/// Bytes that a pipe of answers holds where the system allows it, so that a worker waits less for the thread that reads.
const PIPE_BYTES: usize = 1 << 20;
/// Most bytes of a header.
const HEADER_MAX: u64 = 64 << 20;
/// Time to import the function's modules.
const START_MAX: Duration = Duration::from_mins(5);
/// Most time to read what an ended process printed last.
const LAST_WORDS_MAX: Duration = Duration::from_secs(5);
/// Processes that try a document which a signal ended: it may have come from outside.
const TRIES_OF_SIGNALS: u32 = 3;
/// Processes that try a document which took too long, or whose answer was not understood: the cause may be a machine that
/// stood still, or what an earlier document left behind.
const TRIES_OF_DELAYS: u32 = 2;
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
    /// To the thread that starts processes.
    pub(super) starts: SyncSender<Start>,
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
    /// Processes that try the document before it counts as bad.
    pub(super) tries: u32,
}

pub(super) struct Process {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
    watched: Arc<Watched>,
    last: LastLines,
    /// Number of requests until now, and of the document that is answered next.
    request: u64,
    document: u64,
    /// The thread that reads what it prints.
    follower: Option<JoinHandle<()>>,
}

/// Returns the command of a process, whose descendants have `mark` in their environment.
fn command(python: &str, mark: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", WORKER]);
    for name in THREADS {
        if std::env::var_os(name).is_none() {
            command.env(name, OsStr::new("1"));
        }
    }
    // A group of its own, so that Ctrl-C ends this program first, and all that the function started ends with it.
    command.env(MARK, mark).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

impl Process {
    /// Starts a process and loads the function in it.
    pub(super) fn start(launch: &Launch) -> Result<Self, StartFailure> {
        let mark = next_mark();
        let command = command(&launch.python, &mark);
        let mut child = launch.spawn(command).map_err(StartFailure::Spawn)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let ((Some(input), Some(output), Some(printed)), Some(pid)) = (pipes, pid) else {
            return Err(StartFailure::Spawn(io::Error::other(
                "its pipes are missing",
            )));
        };
        // A smaller pipe is slower and does the same.
        let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE_BYTES);
        let last = LastLines::default();
        let reader = last.clone();
        let limiter = launch.limiter.clone();
        let mut process = Self {
            child,
            input: BufWriter::with_capacity(BUFFER, input),
            output: BufReader::with_capacity(BUFFER, output),
            watched: Arc::new(Watched::new(pid, mark)),
            last,
            request: 0,
            document: 0,
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
        self.request += 1;
        self.document = 0;
        let request = Request {
            number: self.request,
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
        let header = self.frame(HEADER_MAX)?;
        let header: AnswerFrame = serde_json::from_slice(&header).map_err(|_| foreign_answer())?;
        if (header.request, header.document) != (self.request, self.document) {
            return Err(foreign_answer());
        }
        self.document += 1;
        let data = self.frame(launch.limit)?;
        header.answer.with(data).ok_or_else(foreign_answer)
    }

    /// Says that all documents are answered.
    pub(super) fn rest(&self) {
        self.watched.allow(None);
    }

    fn frame(&mut self, most: u64) -> io::Result<Vec<u8>> {
        let frame = read_frame(&mut self.output, most).map_err(|why| match why.kind() {
            // Longer than any answer.
            io::ErrorKind::Other => foreign_answer(),
            _ => why,
        })?;
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
        let after = |tries, detail: String| Death { detail, tries };
        let by_itself = |detail| after(1, detail);
        let last = self.last_words();
        match (verdict, status) {
            (Some(Verdict::TimedOut), _) => after(
                TRIES_OF_DELAYS,
                format!(
                    "takes longer than {} s, the most of transform.timeout{last}",
                    timeout.as_secs_f64()
                ),
            ),
            (None, _) if why.kind() == io::ErrorKind::InvalidData => {
                after(TRIES_OF_DELAYS, format!("{why}{last}"))
            }
            (Some(Verdict::TooLarge), _) => by_itself(format!(
                "takes more memory than transform.memory allows{last}"
            )),
            (None, Ok(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => {
                    by_itself(format!("ended its process with exit code {code}{last}"))
                }
                (None, signal) => after(
                    TRIES_OF_SIGNALS,
                    format!("ended its process by signal {}{last}", signal.unwrap_or(0)),
                ),
            },
            (None, Err(_)) => by_itself(format!("lost its process: {why}{last}")),
        }
    }
}

impl Launch {
    /// Starts a program by the thread that lasts as long as all processes.
    fn spawn(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts processes has ended");
        let (reply, started) = sync_channel(1);
        let start = Start { command, reply };
        self.starts.send(start).map_err(|_| gone())?;
        started.recv().map_err(|_| gone())?
    }
}

/// Returns a name that no other process on this machine has.
fn next_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    let nanos = since.unwrap_or_default().as_nanos();
    format!("{}-{number}-{nanos:x}", std::process::id())
}

/// Returns the failure of a process that wrote other bytes to its pipe than the answer to its document.
fn foreign_answer() -> io::Error {
    let why =
        "wrote to the pipe of its answers: the bytes there are not the answer to this document";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watched.end();
        // The process may be waited for already.
        let _ = self.child.wait();
    }
}
