//! The first steps of a run's stream, made by its producer with the options of `batchweave run`, which then continues it.

use std::path::Path;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_core::manifest::Manifest;
use batchweave_daemon::{Exit, config, shutdown};
use tokio::time::Instant;

use super::checks::{self, Checked};
use super::child::{Daemon, Event, Launch};
use super::error::RunError;
use super::file::{Role, RunFile};
use super::lead::Lead;
use super::log_file::LogFile;
use super::place::{self, CheckedSocket, Logs};
use super::training::Training;
use super::{STOP_WITHIN, running};

/// Interval between two polls of the log.
const POLL: Duration = Duration::from_millis(100);

/// The steps that were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstSteps {
    pub(crate) steps: u64,
    /// The producer has finished: these are all steps of the input.
    pub(crate) finished: bool,
}

/// The end of an attempt to make the first steps.
#[derive(Debug)]
pub(crate) enum Outcome {
    Made(FirstSteps),
    /// A daemon refused the file, or the producer failed: its lines, and its exit code.
    Failed {
        lines: Vec<String>,
        exit: Exit,
    },
    /// A signal ended it.
    Stopped,
}

/// Checks `path` as `batchweave run --check` does, and lets the producer make the steps below `wanted`.
pub(crate) async fn first_steps(
    path: &Path,
    context: &Context,
    wanted: u64,
) -> Result<Outcome, CliError> {
    let file: RunFile = config::load(path).map_err(|why| CliError::Usage(why.to_string()))?;
    let global = file.global(context.global());
    let url = global.store.clone().unwrap_or_default();
    let checked = checked(path, &file, context, &url).await?;
    if checked.exit != Exit::Ok {
        let Checked { lines, exit } = checked;
        return Ok(Outcome::Failed { lines, exit });
    }
    let _producer = running::lock(place::locks().as_deref(), &url, file.producer())?;
    let logs = Logs::open(path, None)?;
    // No job is open, so that this is the bound of the whole stream.
    let lead = Lead::Set {
        steps: wanted,
        bytes: None,
    };
    let role = Role::Producer;
    let launch = Launch {
        role,
        file: path,
        options: &file.options(role, context.global(), Path::new(""), &lead),
        admin: place::free_address()?,
        moves: true,
        profile: context.global().profile.clone(),
        disk: file.disk(&url),
    };
    let stop = shutdown::on_signals().map_err(RunError::Signals)?;
    let mut making = Making {
        producer: Daemon::start(launch, LogFile::new(logs.fresh(role.name())?))?,
        training: Training::new(Context::new(global), file.producer(), file.jobs()),
        wanted,
    };
    let outcome = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(Outcome::Stopped),
        outcome = making.until_made() => outcome,
    };
    making.producer.ask_to_stop();
    making.producer.end(Instant::now() + STOP_WITHIN).await;
    outcome
}

/// Runs the checks of both daemons.
async fn checked(
    path: &Path,
    file: &RunFile,
    context: &Context,
    url: &str,
) -> Result<Checked, CliError> {
    let lead = file.lead(url);
    let socket = CheckedSocket::new(file.socket(), true)?;
    let place = &socket.socket.path;
    let options = |role| file.options(role, context.global(), place, &lead);
    Ok(checks::checked(path, options, checks::ALL).await?)
}

/// The producer while it makes the first steps.
struct Making {
    producer: Daemon,
    training: Training,
    wanted: u64,
}

impl Making {
    /// Waits until the log has the steps, or the producer has ended.
    async fn until_made(&mut self) -> Result<Outcome, CliError> {
        loop {
            tokio::time::sleep(POLL).await;
            let mut event = self.producer.poll()?;
            if matches!(event, Some(Event::Ended)) {
                if self.training.produced().await.is_some() {
                    self.producer.done();
                    return Ok(self.made().await);
                }
                event = Some(self.producer.unfinished());
            }
            match event {
                Some(Event::Failed { text, exit }) => {
                    let lines = text.lines().map(str::to_owned).collect();
                    return Ok(Outcome::Failed { lines, exit });
                }
                Some(Event::Restarts(text)) => eprintln!("{text}"),
                Some(Event::Ended) | None => {}
            }
            let log = self.training.open().await;
            if log.is_some_and(|log| log.manifest().next_step() >= self.wanted) {
                return Ok(self.made().await);
            }
        }
    }

    async fn made(&mut self) -> Outcome {
        let log = self.training.open().await;
        let manifest = log.map(|log| log.manifest());
        Outcome::Made(FirstSteps {
            steps: manifest.map_or(0, Manifest::next_step),
            finished: manifest.is_some_and(|m| m.end().is_some()),
        })
    }
}
