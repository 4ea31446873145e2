//! `batchweave run`: one file, one machine, one command: starts a producer daemon and a consumer daemon,
//! restarts one that dies, shows their progress, and ends when training has taken everything.
//!
//! `file` divides the file between the daemons, `place` chooses socket, ports and logs, `child` and `rules` run
//! the processes, `log_file` reads their logs, `numbers` and `progress` their metrics, `training` recognizes
//! the end, and `display` prints.

mod child;
mod display;
mod error;
mod file;
mod log_file;
mod numbers;
mod place;
mod progress;
mod rules;
mod training;

use std::path::{Path, PathBuf};
use std::time::Duration;

use batchweave_daemon::config;
use batchweave_daemon::{Exit, shutdown};
use clap::ValueEnum;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::child::{Daemon, Event};
use self::display::Display;
pub use self::error::RunError;
use self::file::{Role, RunFile};
use self::log_file::LogFile;
use self::numbers::Numbers;
use self::place::{Logs, Socket};
use self::progress::{Known, Progress, Seen};
use self::training::Training;
use crate::context::Context;
use crate::error::CliError;

const EXAMPLES: &str = "\
Examples:
  batchweave run mine.toml
  batchweave run mine.toml --check
  batchweave run mine.toml --until stopped     # serve the job again and again, until Ctrl-C

The file has the tables of config/producer.toml and of config/consumer.toml, each once; config/run.toml is an
example. Running the command again continues.";

/// Interval between looks at the processes, and between updates of a terminal.
const TICK: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_secs(1);
/// Time for both daemons to stop, above the producer's own deadline.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Time for the second daemon to report its mistakes when the first one has ended with some.
const MISTAKES_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The file with both daemons' tables
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Check the file as both daemons do, and end
    #[arg(long)]
    check: bool,
    /// trained: end when the job has taken all steps and its ranks have gone. stopped: run until Ctrl-C
    #[arg(long, value_name = "WHEN", default_value = "trained")]
    until: Until,
    /// Folder of the daemons' logs [default: FILE with the ending .logs]
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
}

/// The end of a run without a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Until {
    Trained,
    Stopped,
}

pub(crate) async fn run(args: &RunArgs, context: &Context) -> Result<Exit, CliError> {
    let file: RunFile = config::load(&args.file).map_err(|why| CliError::Usage(why.to_string()))?;
    let global = file.global(context.global());
    if args.check {
        let socket = place::socket(file.socket(), false)?;
        let options = |role| file.options(role, context.global(), &socket.path);
        return check(&args.file, options).await;
    }
    let logs = Logs::open(&args.file, args.logs.as_deref())?;
    let socket = place::socket(file.socket(), true)?;
    let stop = shutdown::on_signals().map_err(RunError::Signals)?;
    let start = |role, admin| -> Result<Daemon, RunError> {
        let log = LogFile::new(logs.fresh(Role::name(role))?);
        let options = file.options(role, context.global(), &socket.path);
        Daemon::start(role, &args.file, &options, log, admin)
    };
    let producer = start(Role::Producer, place::free_address()?)?;
    let consumer = start(Role::Consumer, place::status_page(file.listen())?)?;
    let training = Training::new(Context::new(global), file.producer(), file.job());
    let known = Known {
        opaque: file.opaque(),
        ..Known::default()
    };
    let mut run = Run {
        display: Display::new(context.json()),
        daemons: [producer, consumer],
        training,
        seen: Seen::default(),
        known,
        began: Instant::now(),
        until: args.until,
    };
    run.introduce(&file, &socket, &logs.folder)?;
    Box::pin(run.until_end(stop)).await
}

/// Runs the checks of both daemons and prints each line once.
async fn check(file: &Path, options: impl Fn(Role) -> Vec<String>) -> Result<Exit, CliError> {
    let (producer, consumer) = (options(Role::Producer), options(Role::Consumer));
    let checks = tokio::try_join!(
        child::check(Role::Producer, file, &producer),
        child::check(Role::Consumer, file, &consumer),
    )?;
    let failed = [&checks.0, &checks.1].map(|(code, _)| (*code != Some(0)).then_some(*code));
    let Some(code) = failed.into_iter().flatten().next() else {
        crate::output::Output::line(&format!("{}: ok", file.display()))?;
        return Ok(Exit::Ok);
    };
    let mut shown: Vec<&str> = Vec::new();
    for line in checks.0.1.lines().chain(checks.1.1.lines()) {
        let fine = line == format!("{}: ok", file.display());
        if !fine && !shown.contains(&line) {
            eprintln!("{line}");
            shown.push(line);
        }
    }
    Ok(rules::exit_of(code))
}

/// The state of a run.
#[derive(Debug)]
struct Run {
    display: Display,
    daemons: [Daemon; 2],
    training: Training,
    seen: Seen,
    known: Known,
    began: Instant,
    until: Until,
}

impl Run {
    /// Prints where everything is.
    fn introduce(&self, file: &RunFile, socket: &Socket, logs: &Path) -> Result<(), CliError> {
        let job = file.job();
        let connect = if socket.found {
            format!("batchweave.connect(job={job:?})")
        } else {
            let path = socket.path.display().to_string();
            format!("batchweave.connect({path:?}, job={job:?})")
        };
        let [producer, consumer] = &self.daemons;
        self.display.introduce(&[
            ("stream", file.url().to_owned()),
            ("logs", logs.display().to_string()),
            ("producer", format!("http://{}/", producer.admin)),
            ("consumer", format!("http://{}/", consumer.admin)),
            ("connect", connect),
        ])
    }

    /// Runs until training ends, a daemon fails for good, or `stop`.
    async fn until_end(&mut self, stop: CancellationToken) -> Result<Exit, CliError> {
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.display.event("stopping the producer and the consumer; Ctrl-C again to end at once")?;
                    self.stop().await?;
                    self.display.end("stopped; the same command continues")?;
                    return Ok(Exit::Ok);
                }
                () = tokio::time::sleep(TICK) => {}
            }
            if let Some(exit) = self.look_after().await? {
                return Ok(exit);
            }
            if Instant::now() < look_at {
                continue;
            }
            look_at = Instant::now() + LOOK;
            self.report().await?;
            let sessions = self.seen.consumer.as_ref().map(|n| {
                let [now, ever] = ["sessions", "sessions_total"].map(|name| n.sum(name) as u64);
                (now, ever)
            });
            let finished = self.known.finished.is_some() && self.until == Until::Trained;
            if finished && let Some(end) = self.training.ended(sessions).await {
                self.stop().await?;
                self.display.end(&end)?;
                return Ok(Exit::Ok);
            }
        }
    }

    /// Shows news of the logs and reacts to ends of processes; returns the exit code if one ended for good.
    async fn look_after(&mut self) -> Result<Option<Exit>, CliError> {
        for number in 0..self.daemons.len() {
            let daemon = &mut self.daemons[number];
            let (name, path) = (daemon.role.name(), daemon.log.path.display().to_string());
            for line in daemon.log.news() {
                self.display
                    .complain(&format!("{name}: {line}; log: {path}"))?;
            }
            let mut event = daemon.poll()?;
            if matches!(event, Some(Event::Ended)) {
                event = self.ended(number).await?;
            }
            match event {
                None | Some(Event::Ended) => {}
                Some(Event::Restarts(text)) => self.display.complain(&text)?,
                Some(Event::Failed { text, exit }) => {
                    self.fail(number, &text, exit).await?;
                    return Ok(Some(exit));
                }
            }
        }
        Ok(None)
    }

    /// Decides whether a daemon that ended with code 0 had done its work.
    async fn ended(&mut self, number: usize) -> Result<Option<Event>, CliError> {
        let daemon = &mut self.daemons[number];
        if daemon.role == Role::Producer
            && let Some(batches) = self.training.produced().await
        {
            daemon.done();
            self.known.finished = Some(batches);
            self.known.batch_tokens = self.training.batch_tokens();
            let made = progress::batches(batches, &self.known);
            self.display
                .event(&format!("the producer has finished: {made}"))?;
            return Ok(None);
        }
        Ok(Some(daemon.unfinished()))
    }

    /// Prints the message of a daemon that ended for good, and the other's, if that ends with one too.
    async fn fail(&mut self, number: usize, text: &str, exit: Exit) -> Result<(), CliError> {
        self.display.error(text)?;
        if exit == Exit::Config {
            let other = &mut self.daemons[1 - number];
            let until = Instant::now() + MISTAKES_WITHIN;
            while Instant::now() < until
                && other.runs()
                && Numbers::read(&other.admin).await.is_none()
            {
                if let Some(Event::Failed { text, .. }) = other.poll()? {
                    self.display.error(&text)?;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.stop().await
    }

    /// Reads the numbers and prints the progress.
    async fn report(&mut self) -> Result<(), CliError> {
        if self.known.batch_tokens == 0 && self.seen.producer.as_ref().is_some_and(|n| n.ready) {
            self.training.open().await;
            self.known.batch_tokens = self.training.batch_tokens();
        }
        let [producer, consumer] = &self.daemons;
        let now = Seen {
            producer: read(producer).await,
            consumer: read(consumer).await,
        };
        self.known.elapsed = self.began.elapsed();
        let progress = Progress::new(&self.seen, &now, &self.known);
        self.seen = now;
        self.display.progress(&progress)
    }

    /// Stops both daemons, with a deadline.
    async fn stop(&mut self) -> Result<(), CliError> {
        let deadline = Instant::now() + STOP_WITHIN;
        for daemon in &self.daemons {
            daemon.ask_to_stop();
        }
        for daemon in &mut self.daemons {
            if !daemon.end(deadline).await {
                let (name, log) = (daemon.role.name(), daemon.log.path.display());
                let seconds = STOP_WITHIN.as_secs();
                self.display.complain(&format!(
                    "{name}: did not stop within {seconds} s and was killed; a restart repeats what was in flight; log: {log}"
                ))?;
            }
        }
        Ok(())
    }
}

async fn read(daemon: &Daemon) -> Option<Numbers> {
    if !daemon.runs() {
        return None;
    }
    Numbers::read(&daemon.admin).await
}
