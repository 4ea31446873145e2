//! `batchweave run`: one file, one machine, one command: starts a producer daemon and a consumer daemon,
//! restarts one that dies, shows their progress, and ends when training has taken everything.
//!
//! `file` divides the file between the daemons, `checks` has both check it, `lead` bounds the producer, `place` chooses socket, ports and
//! logs, `claim` and `running` keep runs apart, `child` and `rules` run the processes, `log_file` reads their logs, `numbers` and `progress`
//! their metrics, `pace` the end that is in sight, `training` recognizes the end, `page` serves the stream's page, and `display`
//! prints. `first_steps` makes the first steps of a stream, for `batchweave quickstart`.

mod checks;
mod child;
mod claim;
mod disk;
mod display;
mod error;
mod file;
pub(crate) mod first_steps;
mod lead;
mod log_file;
mod numbers;
mod pace;
mod page;
mod place;
mod progress;
mod rules;
mod running;
mod training;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_daemon::config::{self, Listen};
use batchweave_daemon::{Exit, shutdown};
use batchweave_views::ui::Addresses;
use clap::ValueEnum;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::child::{Daemon, Event, Launch};
use self::display::Display;
use self::error::RunError;
use self::file::{Role, RunFile};
use self::lead::Lead;
use self::log_file::LogFile;
use self::numbers::Numbers;
use self::page::Page;
use self::place::{Logs, Socket, Use};
use self::progress::{Known, Progress, Seen};
use self::training::Training;

const EXAMPLES: &str = "\
Examples:
  batchweave run mine.toml
  batchweave run mine.toml --check
  batchweave run mine.toml --until stopped     # serve the job again and again, until Ctrl-C

The file has the tables of config/producer.toml and of config/consumer.toml, each once;
config/run.toml is an example. Running the command again continues.";

/// Interval between looks at the processes, and between updates of a terminal.
const TICK: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_secs(1);
/// Time for both daemons to stop, above their own deadlines.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// A warning of the consumer that every first run has: the producer is about to create the stream.
const EXPECTED: &str = "WARN waiting for the stream";
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
    /// Address of the page of the whole stream, or off [default: 127.0.0.1:9466, or a free port]
    #[arg(long, value_name = "ADDRESS", value_parser = page::listen)]
    ui: Option<Listen>,
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
    let url = global.store.clone().unwrap_or_default();
    let lead = file.lead(&url);
    let options = |role, socket: &Socket| file.options(role, context.global(), &socket.path, &lead);
    let extent = if args.check {
        checks::ALL
    } else {
        checks::FILE_ONLY
    };
    let socket = place::CheckedSocket::new(file.socket(), args.check)?;
    let checked = checks::check(&args.file, |role| options(role, &socket.socket), extent).await?;
    drop(socket);
    if args.check || checked != Exit::Ok {
        return Ok(checked);
    }
    let logs = Logs::open(&args.file, args.logs.as_deref())?;
    let _producer = running::lock(place::locks().as_deref(), &url, file.producer())?;
    let mut training = Training::new(Context::new(global.clone()), file.producer(), file.jobs());
    let taken_over = running::look(&mut training, &url, file.producer()).await?;
    let socket = place::socket(file.socket(), Use::Run)?;
    let stop = shutdown::on_signals().map_err(RunError::Signals)?;
    let start = |role, admin, moves| -> Result<Daemon, RunError> {
        let log = LogFile::new(logs.fresh(Role::name(role))?);
        let launch = Launch {
            role,
            file: &args.file,
            options: &options(role, &socket),
            admin,
            moves,
            profile: context.global().profile.clone(),
            disk: file.disk(&url).filter(|_| role == Role::Producer),
        };
        Daemon::start(launch, log)
    };
    let page = Page::bind(args.ui).await;
    let producer = start(Role::Producer, place::free_address()?, true)?;
    let status_page = place::status_page(file.listen())?;
    let consumer = start(Role::Consumer, status_page, file.listen().is_none())?;
    let known = Known {
        opaque: file.opaque(),
        ..Known::default()
    };
    let mut run = Run {
        display: Display::new(context.json()),
        daemons: [producer, consumer],
        addresses: Addresses::default(),
        training,
        seen: Seen::default(),
        known,
        began: Instant::now(),
        report_at: Instant::now(),
        until: args.until,
        stop_within: file
            .deadline()
            .map_or(STOP_WITHIN, |own| STOP_WITHIN.max(own + LOOK)),
    };
    let jobs = file.jobs();
    run.introduce(&url, &jobs, &socket, page.url(), &logs.folder, &lead)?;
    for text in taken_over.iter().chain(&page.complaint) {
        run.display.complain(text)?;
    }
    let served = page.serve(Context::new(global), Arc::clone(&run.addresses));
    tokio::select! {
        biased;
        ended = Box::pin(run.until_end(stop)) => ended,
        never = Box::pin(served) => match never {},
    }
}

/// The reason to end a run, other than a signal.
#[derive(Debug)]
enum Ended {
    Trained(String),
    /// The daemon with this number ended, and a restart would not help.
    Failed {
        number: usize,
        text: String,
        exit: Exit,
    },
}

/// The state of a run.
#[derive(Debug)]
struct Run {
    display: Display,
    daemons: [Daemon; 2],
    /// Where both have their status pages, for the page of the stream.
    addresses: Addresses,
    training: Training,
    seen: Seen,
    known: Known,
    began: Instant,
    /// When the numbers are read next.
    report_at: Instant,
    until: Until,
    stop_within: Duration,
}

impl Run {
    /// Prints where everything is.
    fn introduce(
        &self,
        url: &str,
        jobs: &[String],
        socket: &Socket,
        page: Option<String>,
        logs: &Path,
        lead: &Lead,
    ) -> Result<(), CliError> {
        let path = socket.path.display().to_string();
        let place = if socket.found {
            String::new()
        } else {
            format!("{path:?}, ")
        };
        let connect = |job: &String| format!("batchweave.connect({place}job={job:?})");
        let connect: Vec<String> = jobs.iter().map(connect).collect();
        let [producer, consumer] = &self.daemons;
        let page = page.map(|url| ("ui", url));
        let mut rows = vec![("stream", url.to_owned())];
        rows.extend(page);
        rows.extend([
            ("logs", logs.display().to_string()),
            ("producer", format!("http://{}/", producer.admin)),
            ("consumer", format!("http://{}/", consumer.admin)),
            ("lead", lead.text()),
            ("connect", connect.join(" or ")),
        ]);
        self.display.introduce(&rows)
    }

    /// Runs until training ends, a daemon fails for good, or `stop`.
    async fn until_end(&mut self, stop: CancellationToken) -> Result<Exit, CliError> {
        let end = loop {
            let look = Box::pin(self.look());
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => break None,
                ended = look => ended?,
            };
            if ended.is_some() {
                break ended;
            }
        };
        match end {
            None => {
                self.display
                    .event("stopping the producer and the consumer; Ctrl-C again ends at once")?;
                self.stop().await?;
                self.display.end("stopped; the same command continues")?;
                Ok(Exit::Ok)
            }
            Some(Ended::Trained(words)) => {
                self.stop().await?;
                self.display.end(&words)?;
                Ok(Exit::Ok)
            }
            Some(Ended::Failed { number, text, exit }) => {
                self.display.error(&text)?;
                if exit == Exit::Config {
                    self.mistakes_of(1 - number).await?;
                }
                self.stop().await?;
                Ok(exit)
            }
        }
    }

    /// Waits a moment, looks at both daemons and prints what is due; returns the reason to end.
    async fn look(&mut self) -> Result<Option<Ended>, CliError> {
        tokio::time::sleep(TICK).await;
        if let Some(ended) = self.look_after().await? {
            return Ok(Some(ended));
        }
        if Instant::now() < self.report_at {
            return Ok(None);
        }
        self.report_at = Instant::now() + LOOK;
        self.report().await?;
        if self.until == Until::Stopped || self.known.finished.is_none() {
            return Ok(None);
        }
        let sessions = self.seen.consumer.as_ref().map(|numbers| {
            let [now, ever] = ["sessions", "sessions_total"].map(|name| numbers.sum(name) as u64);
            (now, ever)
        });
        let ended = self.training.ended(sessions).await;
        self.known.left = self.training.left().to_vec();
        Ok(ended.map(Ended::Trained))
    }

    /// Shows news of the logs and reacts to ends of processes; returns a daemon that ended for good.
    async fn look_after(&mut self) -> Result<Option<Ended>, CliError> {
        for number in 0..self.daemons.len() {
            let daemon = &mut self.daemons[number];
            let (name, path) = (daemon.role.name(), daemon.log.path.display().to_string());
            let news = daemon.log.news().into_iter();
            for line in news.filter(|line| !line.contains(EXPECTED)) {
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
                    return Ok(Some(Ended::Failed { number, text, exit }));
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

    /// Prints the mistakes that the other daemon finds in its part of the file, if it ends with some.
    async fn mistakes_of(&mut self, number: usize) -> Result<(), CliError> {
        let daemon = &mut self.daemons[number];
        let until = Instant::now() + MISTAKES_WITHIN;
        while Instant::now() < until && daemon.runs() {
            if let Some(Event::Failed { text, .. }) = daemon.poll()? {
                return self.display.error(&text);
            }
            if Numbers::read(&daemon.admin).await.is_some() {
                break;
            }
            tokio::time::sleep(TICK / 10).await;
        }
        Ok(())
    }

    /// Reads the numbers and prints the progress.
    async fn report(&mut self) -> Result<(), CliError> {
        if self.known.batch_tokens == 0 && self.seen.producer.as_ref().is_some_and(|n| n.ready) {
            self.training.open().await;
            self.known.batch_tokens = self.training.batch_tokens();
        }
        let [producer, consumer] = &self.daemons;
        let addresses = vec![producer.admin.clone(), consumer.admin.clone()];
        *self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = addresses;
        let now = Seen {
            producer: read(producer).await,
            consumer: read(consumer).await,
        };
        self.known.elapsed = self.began.elapsed();
        let progress = Progress::new(&self.seen, &now, &mut self.known);
        self.seen = now;
        self.display.progress(&progress)
    }

    /// Stops both daemons, with a deadline.
    async fn stop(&mut self) -> Result<(), CliError> {
        let deadline = Instant::now() + self.stop_within;
        for daemon in &self.daemons {
            daemon.ask_to_stop();
        }
        for daemon in &mut self.daemons {
            if !daemon.end(deadline).await {
                let (name, log) = (daemon.role.name(), daemon.log.path.display());
                let seconds = self.stop_within.as_secs();
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
