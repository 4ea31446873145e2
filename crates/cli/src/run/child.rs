//! A daemon as a child process: started in a process group of its own, so that Ctrl-C reaches only
//! `batchweave run`, and with an order to stop when its parent ends.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use batchweave_console::programs::{self, Start};
use batchweave_daemon::Exit;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::disk::Disk;
use super::error::RunError;
use super::file::{Role, assignment};
use super::log_file::LogFile;
use super::place;
use super::rules::{Reaction, is_taken, react};

/// A daemon of this run.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) role: Role,
    pub(super) log: LogFile,
    /// Address of its status page.
    pub(super) admin: String,
    program: Start,
    options: Vec<String>,
    /// Its status page may move to another port.
    moves: bool,
    /// The AWS profile of the command line.
    profile: Option<String>,
    /// Where it writes, if a full disk is to end the run.
    disk: Option<Disk>,
    state: State,
    restarts: u32,
}

/// The parameters with which a daemon is started.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) role: Role,
    /// The configuration file of the daemon.
    pub(super) file: &'a Path,
    /// Further options of its command line.
    pub(super) options: &'a [String],
    /// Address of its status page.
    pub(super) admin: String,
    /// The status page may move to another port.
    pub(super) moves: bool,
    /// The AWS profile of the command line.
    pub(super) profile: Option<String>,
    /// Where it writes, if a full disk is to end the run.
    pub(super) disk: Option<Disk>,
}

#[derive(Debug)]
enum State {
    Running {
        child: Child,
        began: Instant,
    },
    /// It ended, and is started again at this time.
    Pausing(Instant),
    /// It has done its work.
    Done,
}

/// A change in a daemon's life.
#[derive(Debug)]
pub(super) enum Event {
    /// It ended with code 0 and without a request.
    Ended,
    /// It ended and is started again; the text says why, and when.
    Restarts(String),
    /// It ended, and a restart would not help.
    Failed { text: String, exit: Exit },
}

impl Daemon {
    /// Starts the daemon; its output is appended to `log`.
    pub(super) fn start(launch: Launch<'_>, log: LogFile) -> Result<Self, RunError> {
        let mut options = vec!["--config".to_owned(), launch.file.display().to_string()];
        options.extend_from_slice(launch.options);
        options.extend(["--end-with".to_owned(), std::process::id().to_string()]);
        let mut daemon = Self {
            role: launch.role,
            log,
            admin: launch.admin,
            program: programs::start(launch.role.program()),
            options,
            moves: launch.moves,
            profile: launch.profile,
            disk: launch.disk,
            state: State::Done,
            restarts: 0,
        };
        daemon.spawn()?;
        Ok(daemon)
    }

    fn spawn(&mut self) -> Result<(), RunError> {
        self.log.begin();
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log.path)
            .map_err(|why| {
                let path = self.log.path.clone();
                RunError::LogFile { path, why }
            })?;
        let mut command = self.program.command();
        command
            .args(&self.options)
            .args(["--set".to_owned(), assignment("admin.listen", &self.admin)])
            .envs(self.profile.iter().map(|name| ("AWS_PROFILE", name)))
            .process_group(0)
            // This program talks to a service manager itself, if anyone does.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = Command::from(command)
            .spawn()
            .map_err(|why| no_program(self.role, why))?;
        let began = Instant::now();
        self.state = State::Running { child, began };
        Ok(())
    }

    /// Notes that the daemon has done its work.
    pub(super) fn done(&mut self) {
        self.state = State::Done;
    }

    /// Returns whether the process runs.
    pub(super) fn runs(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Returns an end since the last call; starts the daemon again once its pause is over.
    pub(super) fn poll(&mut self) -> Result<Option<Event>, RunError> {
        match &mut self.state {
            State::Done => Ok(None),
            State::Pausing(until) if Instant::now() < *until => Ok(None),
            State::Pausing(_) => self.spawn().map(|()| None),
            State::Running { child, began } => {
                let Ok(Some(status)) = child.try_wait() else {
                    return Ok(None);
                };
                let lived = began.elapsed();
                if status.success() {
                    return Ok(Some(Event::Ended));
                }
                Ok(Some(self.ended(status, lived)))
            }
        }
    }

    /// Decides what follows an end of the process.
    fn ended(&mut self, status: ExitStatus, lived: Duration) -> Event {
        if let Some(moved) = self.moved(status) {
            return moved;
        }
        let name = self.role.name();
        let log = self.log.path.display();
        let words = self
            .log
            .last_words(self.role.program().as_str())
            .unwrap_or_else(|| format!("ended with {status}"));
        let code = status
            .code()
            .filter(|code| *code == i32::from(Exit::StoreUnavailable.code()));
        let disk = self.disk.as_ref().filter(|_| code.is_some());
        if let Some(full) = disk.and_then(Disk::full) {
            self.state = State::Done;
            let text = format!("{name}: {full}\n  log: {log}");
            let exit = Exit::StoreUnavailable;
            return Event::Failed { text, exit };
        }
        match react(status.code(), lived, self.restarts) {
            Reaction::Restart { pause, restarts } => {
                let text = format!(
                    "{name}: {words}; starting it again in {} s; log: {log}",
                    pause.as_secs()
                );
                self.restarts = restarts;
                self.state = State::Pausing(Instant::now() + pause);
                Event::Restarts(text)
            }
            Reaction::End(exit) => {
                self.state = State::Done;
                let text = format!("{name}: {words}\n  log: {log}");
                Event::Failed { text, exit }
            }
        }
    }

    /// Moves the status page to a free port, where another program took its own between the choice and the start, or
    /// starts the daemon again where that program has left it.
    fn moved(&mut self, status: ExitStatus) -> Option<Event> {
        let refused = status.code() == Some(i32::from(Exit::Config.code()));
        if !refused || !self.moves {
            return None;
        }
        let (name, taken) = (self.role.name(), self.admin.clone());
        let then = if !place::is_free_text(&taken) {
            self.admin = place::free_address().ok()?;
            format!("; its status page is at http://{}/", self.admin)
        } else if is_taken(self.log.last_words(self.role.program().as_str()), &taken) {
            " for a moment; starting it again".to_owned()
        } else {
            return None;
        };
        // Once: then the reason is another.
        self.moves = false;
        self.state = State::Pausing(Instant::now());
        Some(Event::Restarts(format!(
            "{name}: {taken} was taken by another program{then}"
        )))
    }

    /// Starts the daemon again, which ended with code 0 before its work was done.
    pub(super) fn unfinished(&mut self) -> Event {
        self.ended(ExitStatus::default(), Duration::ZERO)
    }

    /// Asks the process to stop.
    pub(super) fn ask_to_stop(&self) {
        let State::Running { child, .. } = &self.state else {
            return;
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(Pid::from_raw) {
            // It fails when the process has ended, which is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits until the process has ended, and kills it at `deadline`; returns whether it ended by itself.
    pub(super) async fn end(&mut self, deadline: Instant) -> bool {
        let State::Running { child, .. } = &mut self.state else {
            return true;
        };
        let in_time = tokio::time::timeout_at(deadline, child.wait())
            .await
            .is_ok();
        if !in_time {
            let _ = child.kill().await;
        }
        self.state = State::Done;
        in_time
    }
}

/// Runs the check of a daemon, and returns its exit code and what it printed.
pub(super) async fn check(
    role: Role,
    file: &Path,
    options: &[String],
    extent: &str,
) -> Result<(Option<i32>, String), RunError> {
    let mut command = Command::from(programs::start(role.program()).command());
    command.arg("--config").arg(file).args(options).arg(extent);
    let output = command
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|why| no_program(role, why))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    Ok((output.status.code(), text))
}

fn no_program(role: Role, why: io::Error) -> RunError {
    let program = role.program().as_str();
    RunError::NoProgram { program, why }
}
