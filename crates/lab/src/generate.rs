//! `batchweave generate`: manual pages and completions of `batchweave` and of `batchweave-lab`, for
//! `make install`.

use std::path::PathBuf;

use batchweave_console::CliError;
use batchweave_daemon::{Exit, man_pages};
use clap::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    /// Folder that holds man/ and the shells' folders, as /usr/share
    share: PathBuf,
}

/// Writes the pages of `batchweave` and of this program, whose command line is `lab`.
pub(crate) fn run(args: &GenerateArgs, lab: Command) -> Result<Exit, CliError> {
    for command in [operators(&lab), lab] {
        man_pages::write(command, &args.share)?;
    }
    Ok(Exit::Ok)
}

/// Returns the command `batchweave` with all arguments of the verbs that this program runs for it.
fn operators(lab: &Command) -> Command {
    lab.get_subcommands()
        .filter(|verb| verb.get_name() != "demo-rank")
        .fold(batchweave_cli::command(), |command, verb| {
            command.mut_subcommand(verb.get_name(), |_| verb.clone())
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn pages_of_batchweave_describe_the_verbs_of_this_program_in_full() {
        let command = operators(&Cli::command());
        let plan = command.find_subcommand("plan").unwrap();
        assert!(plan.get_arguments().any(|arg| arg.get_id() == "tgb_bytes"));
        let status = command.find_subcommand("status").unwrap();
        assert!(status.get_arguments().any(|arg| arg.get_id() == "watch"));
    }
}
