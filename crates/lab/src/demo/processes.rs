//! The demo's processes: started with a log file each, killed with SIGKILL, never left behind.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rand::RngExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncBufReadExt;
use tokio::process::{Child, Command};

use super::DemoError;

/// Ports below Linux's ephemeral ports, of which the kernel gives one to each outgoing connection.
const PORTS: Range<u16> = 20_000..32_000;
/// Random ports to try before the search for a free one fails.
const PORT_TRIES: usize = 100;
/// Longest wait for the first line of output.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines of a program's log that an error shows.
const TAIL_LINES: usize = 12;

/// A program with its arguments, which can be started any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// The file to which standard error is appended; standard output is discarded.
    pub(crate) log: PathBuf,
}

/// A running program, killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) program: Program,
    child: Child,
    pub(crate) restarts: u32,
}

impl Program {
    fn spawn(&self, stdout: Stdio) -> Result<Child, DemoError> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|e| DemoError::io("write", &self.log, &e))?;
        let mut command = Command::new(&self.path);
        command.args(&self.args).envs(self.env.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(log)
            .kill_on_drop(true);
        command
            .spawn()
            .map_err(|e| DemoError::io("start", &self.path, &e))
    }

    pub(crate) fn start(self) -> Result<Running, DemoError> {
        let child = self.spawn(Stdio::null())?;
        Ok(Running {
            program: self,
            child,
            restarts: 0,
        })
    }

    /// Starts the program and returns its first line of output, which says that it is ready. It must not
    /// print more: the pipe is closed then.
    pub(crate) async fn start_with_line(self) -> Result<(Running, String), DemoError> {
        let mut child = self.spawn(Stdio::piped())?;
        let out = child.stdout.take();
        let mut running = Running {
            program: self,
            child,
            restarts: 0,
        };
        let Some(out) = out else {
            return Err(running.failed("has no output"));
        };
        let mut line = String::new();
        let mut out = tokio::io::BufReader::new(out);
        let read = out.read_line(&mut line);
        match tokio::time::timeout(READY_TIMEOUT, read).await {
            Ok(Ok(bytes)) if bytes > 0 => Ok((running, line)),
            _ => Err(running.failed("did not become ready")),
        }
    }
}

impl Running {
    /// Kills the program with SIGKILL and starts it again; does not wait until it is ready.
    pub(crate) async fn kill_and_restart(&mut self) -> Result<(), DemoError> {
        let _ = self.child.kill().await;
        self.child = self.program.spawn(Stdio::null())?;
        self.restarts += 1;
        Ok(())
    }

    /// Returns the process id while the program runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the exit status once the program has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM and waits for the exit status, at most `within`.
    pub(crate) async fn stop(&mut self, within: Duration) -> Result<ExitStatus, DemoError> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(Pid::from_raw) {
            // A small system has no command `kill`.
            let _ = kill_process(pid, Signal::TERM);
        }
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            _ => Err(self.failed("did not stop when asked to")),
        }
    }

    /// Returns the error that this program did `what`, with the end of its log.
    pub(crate) fn failed(&mut self, what: &str) -> DemoError {
        let what = format!("{} {what}", self.program.name);
        DemoError::Process {
            what,
            log: tail(&self.program.log),
        }
    }
}

/// Whether a program that got SIGTERM ended in order. One that was started again a moment ago does not catch the
/// signal yet: it has done nothing.
pub(crate) fn stopped(status: ExitStatus) -> bool {
    status.success() || status.signal() == Some(Signal::TERM.as_raw())
}

/// Returns a random port of `PORTS` that is free at this moment. An ephemeral port could be taken by an
/// outgoing connection before the program binds it, or while the program is restarted.
pub(crate) fn free_port() -> io::Result<u16> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..PORT_TRIES {
        let port = rand::rng().random_range(PORTS);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Returns the last lines of a log file, with its name.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    if lines.is_empty() {
        return format!("its log {} is empty or cannot be read", log.display());
    }
    let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n  ");
    format!("the end of {}:\n  {last}", log.display())
}
