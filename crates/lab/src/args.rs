//! The command line of `batchweave-lab`. `batchweave` passes its own command line on unchanged, so both
//! programs accept the same global options and the same arguments of these verbs.

use std::ffi::OsString;

use batchweave_console::GlobalArgs;
use batchweave_dev_s3::DevS3Args;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::demo::DemoArgs;
use crate::demo::rank::RankArgs;
use crate::generate::GenerateArgs;
use crate::plan::PlanArgs;

/// Measure and demonstrate BatchWeave: the verbs that `batchweave` runs for development and planning
#[derive(Debug, Parser)]
#[command(
    name = "batchweave-lab",
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
    /// Estimate latency, requests and cost of a stream before it is built
    Plan(PlanArgs),
    /// Measure the log, the producer, the consumer and the hand-over to ranks
    Bench(BenchArgs),
    /// Run an S3 server for tests, demos and laptops
    DevS3(DevS3Args),
    /// Run the whole system on text of this machine, with crashes and a proof
    Demo(DemoArgs),
    /// A training rank of the demo
    #[command(hide = true)]
    DemoRank(RankArgs),
    /// Manual pages and completions, for make install
    #[command(hide = true)]
    Generate(GenerateArgs),
}

impl Cli {
    /// Parses a command line whose first word is the program's name.
    pub(crate) fn parse_args(
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let command = Self::command().after_help(batchweave_console::program::exit_codes_help());
        Self::from_arg_matches(&command.try_get_matches_from(args)?)
    }
}

impl Verb {
    /// Returns the log filter that applies without RUST_LOG. The S3 library of `dev-s3` logs each request that
    /// it refuses, and the client receives that refusal anyway.
    pub(crate) fn log_level(&self) -> &'static str {
        match self {
            Self::DevS3(_) => "warn,s3s=off",
            _ => "warn",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn batchweave_lists_these_verbs_with_the_same_words() {
        let operators = batchweave_cli::command();
        for verb in Cli::command().get_subcommands() {
            if verb.get_name() == "demo-rank" {
                continue;
            }
            let listed = operators.find_subcommand(verb.get_name()).unwrap();
            let words = |command: &clap::Command| command.get_about().map(ToString::to_string);
            assert_eq!(words(listed), words(verb), "{}", verb.get_name());
            assert_eq!(listed.is_hide_set(), verb.is_hide_set());
        }
    }
}
