//! The command line: its verbs and their one-line descriptions.

use std::ffi::OsString;

use batchweave_console::GlobalArgs;
use batchweave_console::program::exit_codes_help;
use batchweave_verify::VerifyArgs;
use batchweave_views::{status, ui};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::lab::LabArgs;
use crate::{
    completions, delete, doctor, fork, inbox, init, job, locate, log, losses, mixture, quarantine,
    quickstart, reclaim, repair, retire, run, seal, show, stage,
};

const EXAMPLES: &str = "\
Examples:
  batchweave quickstart corpus
  batchweave run mine.toml
  batchweave status --store s3://bucket/stream
  batchweave log --store file:///data/stream --follow
  batchweave show 1200 --slices --json
  batchweave doctor --store s3://bucket/stream

Environment:
  BATCHWEAVE_STORE   root of the stream, when --store is absent
  BATCHWEAVE_ENCRYPTION, BATCHWEAVE_KMS_KEY
                     encryption of writes to S3, as store.encryption and store.kms_key of the daemons
  BATCHWEAVE_PATH_STYLE
                     whether S3 requests name the bucket in the path, as store.path_style of the daemons
  AWS_*              credentials, region, profile and endpoint of S3
  RUST_LOG           log filter on standard error (default: warn)
  NO_COLOR           no colours; without a terminal there are none anyway";

/// Manage streams of training batches in an object store
#[derive(Debug, Parser)]
#[command(
    name = "batchweave",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Look at your files, write run.toml and a training script, and make the first steps
    Quickstart(quickstart::QuickstartArgs),
    /// Start a producer and a consumer on this machine, from one file, until training ends
    Run(run::RunArgs),
    /// Create a stream (producers also do so when there is none)
    Init(init::InitArgs),
    /// Make a stream that goes on where another one stood at a step
    Fork(fork::ForkArgs),
    /// Show how much a stream has, how fast it grows and how far ahead of the jobs it is; or what nodes wait for
    Status(status::StatusArgs),
    /// List the commits of a stream, and whether their entries are valid
    Log(log::LogArgs),
    /// Show one step: its producer and objects, and with --slices whether it is intact
    Show(show::ShowArgs),
    /// Find the steps that hold a document
    Where(locate::LocateArgs),
    /// Show the losses that ranks reported, by step, source, row or document
    Losses(losses::LossesArgs),
    /// Show, plan or set the weights of the sources of producers
    Mixture(mixture::MixtureArgs),
    /// Show, plan or set the stages of a stream: another shape of its batches from a batch on
    Stage(stage::StageArgs),
    /// List the writers of an inbox, follow them, or check that a stream has each row once
    Inbox(inbox::InboxArgs),
    /// End a stream, or reopen it
    Seal(seal::SealArgs),
    /// Open, close, list and show the training runs that read a stream
    Job(job::JobArgs),
    /// Exclude steps from attempts opened from now on, or lift such an exclusion
    Quarantine(quarantine::QuarantineArgs),
    /// End the term of a producer that no longer runs
    Retire(retire::RetireArgs),
    /// Show data that is no longer needed and which job retains the rest; with --apply, delete the former
    Reclaim(reclaim::ReclaimArgs),
    /// Show what can be done about an unreadable record; with --apply, do it
    Repair(repair::RepairArgs),
    /// Show the objects of a stream; with --apply, delete them all
    Delete(delete::DeleteArgs),
    /// Check that a store and a stream are fit for use, with remedies
    Doctor(doctor::DoctorArgs),
    /// Check that a stream is intact, or prove what a run received
    Verify(VerifyArgs),
    /// Estimate latency, requests and cost of a stream before it is built
    Plan(LabArgs),
    /// Serve a page of the whole stream for a browser: producers, jobs, and the daemons that are named
    Ui(ui::UiArgs),
    /// Measure the log, the producer, the consumer and the hand-over to ranks
    Bench(LabArgs),
    /// Run an S3 server for tests, demos and laptops
    DevS3(LabArgs),
    /// Run the whole system on text of this machine, with crashes and a proof
    Demo(LabArgs),
    /// Print the completions of a shell
    Completions(completions::CompletionsArgs),
    /// Manual pages and completions, for make install
    #[command(hide = true)]
    Generate(LabArgs),
}

impl Cli {
    /// Parses a command line whose first word is the program's name.
    pub(crate) fn parse_args(
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let command = Self::command().after_help(format!("{EXAMPLES}\n\n{}", exit_codes_help()));
        let mut command = negative_values(crate::groups::grouped(command));
        let matches = command
            .try_get_matches_from_mut(args)
            .map_err(|error| renamed(error, &mut command))?;
        Self::from_arg_matches(&matches)
    }
}

/// Names the present command in the error of a line with a former one.
fn renamed(error: clap::Error, command: &mut clap::Command) -> clap::Error {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(verb)) if verb == "top" => command.error(
            ErrorKind::InvalidSubcommand,
            "there is no command top: `batchweave status --nodes` shows nodes, with --watch live",
        ),
        _ => error,
    }
}

impl Cli {
    /// Returns the stream that the command line names, by an option or by its URL alone.
    pub(crate) fn store(&self) -> Option<&str> {
        let url = match &self.verb {
            Verb::Delete(args) => args.url(),
            _ => None,
        };
        url.or(self.global.store.as_deref())
    }
}

/// Lets a value begin as an option does: -1 is then a wrong number, which its parser explains.
fn negative_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes)
    });
    command.mut_subcommands(negative_values)
}

impl Verb {
    /// Returns the log filter that applies without RUST_LOG. `log` and `verify` print void entries themselves.
    pub(crate) fn log_level(&self) -> &'static str {
        match self {
            Self::Log(_) => "warn,batchweave_log::read::tail=error",
            Self::Verify(_) | Self::Losses(_) => "warn,batchweave_log=error",
            _ => "warn",
        }
    }
}

#[cfg(test)]
mod remedies;

#[cfg(test)]
mod tests {
    use batchweave_daemon::Exit;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::parse_args(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_may_stand_before_and_behind_the_verb() {
        for line in [
            "batchweave --store memory://x --json status",
            "batchweave status --store memory://x --json",
        ] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.global.store.as_deref(), Some("memory://x"), "{line}");
            assert!(cli.global.json, "{line}");
        }
    }

    #[test]
    fn nodes_may_be_named_in_every_way() {
        let this = vec!["127.0.0.1:9465".to_owned()];
        let two = vec!["a:1".to_owned(), "b:2".to_owned()];
        for (line, nodes) in [
            ("batchweave status --nodes", &this),
            ("batchweave status --nodes --watch --every 1s", &this),
            ("batchweave status --nodes a:1 b:2 --json", &two),
            ("batchweave status --nodes a:1,b:2", &two),
            ("batchweave status --nodes a:1 --nodes b:2", &two),
        ] {
            let Verb::Status(args) = parse(line).unwrap().verb else {
                panic!("{line}");
            };
            assert_eq!(args.nodes(), Some(nodes.as_slice()), "{line}");
        }
        for line in ["--nodes http://a:1", "--nodes --at 3", "--nodes --verbose"] {
            assert!(
                parse(&format!("batchweave status {line}")).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn a_former_command_names_the_present_one() {
        for line in [
            "batchweave top",
            "batchweave top --once --admin 127.0.0.1:9465",
        ] {
            let why = parse(line).unwrap_err();
            assert_eq!(why.kind(), ErrorKind::InvalidSubcommand);
            let text = why.to_string();
            assert!(text.contains("`batchweave status --nodes`"), "{text}");
        }
    }

    #[test]
    fn the_help_lists_every_exit_code() {
        let help = parse("batchweave --help").unwrap_err().to_string();
        for exit in Exit::ALL {
            assert!(help.contains(exit.meaning()), "{help}");
        }
    }
}
