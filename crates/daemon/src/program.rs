//! The `main` of a daemon around its work: command line, configuration, logs, runtime, signals, and the
//! exit code.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::{Args as _, FromArgMatches};
use rustix::process::{
    Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};
use tokio_util::sync::CancellationToken;

use crate::check::Findings;
use crate::config::{Config, Overrides};
use crate::notify::Notifier;
use crate::runtime::work;
use crate::telemetry::LogConfig;
use crate::{Exit, config, man_pages, notify, panics, reload, shutdown, telemetry};

/// The command line of every daemon.
#[derive(Debug, clap::Args)]
struct Args {
    /// Configuration file; the shipped one in config/ lists every key.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration, open everything that it names, and exit; nothing is left behind.
    /// `--check=file` reads the file only.
    #[arg(long, value_name = "EXTENT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    check: Option<Extent>,
    #[command(flatten)]
    run: RunArgs,
}

/// The extent of `--check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Extent {
    /// The file, and the store, input, tokenizer, memory and socket that it names.
    All,
    /// The file only: for service managers, which must not refuse a start while a store is down.
    File,
}

/// Options for `batchweave run`, which starts both daemons from one file.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// A top-level table of the file that belongs to another program.
    #[arg(long, value_name = "TABLE", hide = true)]
    ignore: Vec<String>,
    /// A key with another value than the file's.
    #[arg(long, value_name = "KEY=VALUE", hide = true)]
    set: Vec<String>,
    /// The process with whose end the daemon stops.
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<i32>,
}

impl Args {
    fn overrides(&self) -> Overrides {
        Overrides {
            ignored: self.run.ignore.clone(),
            set: self.run.set.clone(),
        }
    }
}

/// The texts of a daemon's command line.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name of the executable.
    pub name: &'static str,
    pub version: &'static str,
    /// One or two sentences for `--help`.
    pub about: &'static str,
    /// The end of the help text.
    pub exit_codes: &'static str,
}

/// A failure of the daemon: its message and exit code.
#[derive(Debug)]
pub struct Failure {
    text: String,
    exit: Exit,
}

impl Failure {
    /// Returns the failure of an error and its exit code.
    pub fn new(why: impl Display, exit: Exit) -> Self {
        Self {
            text: why.to_string(),
            exit,
        }
    }

    /// Prints the message, tells the service manager, and returns the exit code.
    pub(crate) fn report(&self, name: &str) -> Exit {
        eprintln!("{name}: {}", self.text);
        notify::ended(&self.text);
        self.exit
    }
}

impl Program {
    /// Runs `serve` with the configuration and a token that the first signal cancels; with `--check`, runs `check`
    /// with the configuration and prints its findings.
    pub fn main<
        C: Config + Send + 'static,
        K: Future<Output = Findings>,
        F: Future<Output = Result<(), Failure>>,
    >(
        self,
        log: fn(&C) -> &LogConfig,
        check: impl FnOnce(C) -> K,
        serve: impl FnOnce(C, CancellationToken) -> F,
    ) -> Exit {
        let words: Vec<OsString> = std::env::args_os().collect();
        // For `make install` only, therefore not in the help.
        if let [_, option, share] = &words[..]
            && option == "--generate"
        {
            return match man_pages::write(self.command(), Path::new(share)) {
                Ok(()) => Exit::Ok,
                Err(why) => {
                    eprintln!("{}: {}: {why}", self.name, share.display());
                    Exit::Failure
                }
            };
        }
        let args = match self.parse(words.into_iter()) {
            Ok(args) => args,
            Err(why) => {
                let asked = !why.use_stderr();
                // A closed terminal cannot be reported.
                let _ = why.print();
                return if asked { Exit::Ok } else { Exit::Config };
            }
        };
        no_core_files();
        match run(&args, log, check, serve) {
            Ok(()) => Exit::Ok,
            Err(failure) => failure.report(self.name),
        }
    }

    fn parse(self, words: impl Iterator<Item = OsString>) -> Result<Args, clap::Error> {
        let matches = self.command().try_get_matches_from(words)?;
        Args::from_arg_matches(&matches)
    }

    fn command(self) -> clap::Command {
        // Last, because the about text of `Args` would replace the daemon's.
        Args::augment_args(clap::Command::new(self.name))
            .version(self.version)
            .about(self.about)
            .after_help(self.exit_codes)
    }
}

/// Forbids core files, because credentials are in memory.
fn no_core_files() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit is always allowed.
    let _ = setrlimit(Resource::Core, none);
}

fn run<
    C: Config + Send + 'static,
    K: Future<Output = Findings>,
    F: Future<Output = Result<(), Failure>>,
>(
    args: &Args,
    log: fn(&C) -> &LogConfig,
    check: impl FnOnce(C) -> K,
    serve: impl FnOnce(C, CancellationToken) -> F,
) -> Result<(), Failure> {
    let overrides = args.overrides();
    let config = config::load_with::<C>(&args.config, &overrides)
        .map_err(|why| Failure::new(why, Exit::Config))?;
    match args.check {
        Some(Extent::All) => return report(&args.config, work(Box::pin(check(config)))?),
        Some(Extent::File) => return report(&args.config, Findings::default()),
        None => {}
    }
    if let Some(parent) = args.run.end_with {
        end_with(parent)?;
    }
    // First: a daemon whose service manager is unreachable must not start.
    Notifier::from_env().map_err(|why| Failure::new(why, Exit::Config))?;
    telemetry::init(log(&config));
    panics::log_panics();
    work(Box::pin(async {
        let stop = shutdown::on_signals().map_err(|why| no_handlers(&why))?;
        reload::on_hangup(args.config.clone(), overrides, &config, log)
            .map_err(|why| no_handlers(&why))?;
        serve(config, stop).await
    }))?
}

fn no_handlers(why: &std::io::Error) -> Failure {
    let text = format!("cannot install signal handlers: {why}");
    Failure::new(text, Exit::Failure)
}

/// Prints what `--check` opened; fails with all faults.
fn report(file: &Path, findings: Findings) -> Result<(), Failure> {
    if let Some(problems) = findings.problems(file) {
        return Err(Failure::new(problems, Exit::Config));
    }
    println!("{}", findings.report(file));
    Ok(())
}

/// Stops this process when its parent ends, however that happens.
fn end_with(parent: i32) -> Result<(), Failure> {
    // Without the signal the daemon would run on alone; all systems of this program have it.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    let alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    let text = || format!("the process {parent}, with which this daemon ends, has ended");
    alive
        .then_some(())
        .ok_or_else(|| Failure::new(text(), Exit::Failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        name: "batchweave-test",
        version: "1.2.3",
        about: "Tests.",
        exit_codes: "Exit codes: 0",
    };

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        let words = ["batchweave-test"].iter().chain(words);
        PROGRAM.parse(words.map(std::ffi::OsString::from))
    }

    #[test]
    fn the_command_line() {
        let args = parse(&["--config", "a.toml", "--check"]).unwrap();
        assert!(args.check == Some(Extent::All) && args.config.ends_with("a.toml"));
        let args = parse(&["--check=file", "--config", "a.toml"]).unwrap();
        assert_eq!(args.check, Some(Extent::File));
        assert!(parse(&[]).unwrap_err().use_stderr());
        assert!(
            parse(&["--config", "a", "--chek"])
                .unwrap_err()
                .use_stderr()
        );
        let run = ["--ignore", "arena", "--set", "a.b=1", "--end-with", "7"];
        let args = parse(&[&["--config", "a"], &run[..]].concat()).unwrap();
        assert_eq!(args.overrides().ignored, ["arena"]);
        assert_eq!(args.overrides().set, ["a.b=1"]);
        let help = parse(&["--help"]).unwrap_err();
        assert!(!help.use_stderr());
        for part in ["Tests.", "--config <FILE>", "--check", "Exit codes: 0"] {
            assert!(help.to_string().contains(part), "{part} in {help}");
        }
    }
}
