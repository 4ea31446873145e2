//! The verbs that the program `batchweave-lab` runs: it replaces this process and receives the command line
//! unchanged. This program therefore contains neither the producer nor an S3 server.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::CliError;

const PROGRAM: &str = "batchweave-lab";

/// The arguments of a verb that `batchweave-lab` runs and parses.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    _arguments: Vec<OsString>,
}

/// Whether the command line asks for help on such a verb, as `batchweave help bench` does.
pub(crate) fn is_help(args: &[OsString], cli: &clap::Command) -> bool {
    let [_, help, verb, ..] = args else {
        return false;
    };
    let verb = verb.to_str().and_then(|name| cli.find_subcommand(name));
    help == "help" && verb.is_some_and(clap::Command::is_disable_help_flag_set)
}

/// Replaces this process by `batchweave-lab` with the command line `args`; returns only when that fails.
pub(crate) fn exec(args: &[OsString]) -> CliError {
    let mut command = Command::new(find(PROGRAM));
    command.args(args.iter().skip(1));
    if let Some(name) = args.first() {
        // Usage lines show the name that the command was called by.
        command.arg0(name);
    }
    let error = command.exec();
    CliError::Failed(format!(
        "cannot run {PROGRAM}, which this verb needs: {error}; install it beside batchweave or in a folder of \
         PATH (`make install` does)"
    ))
}

/// Returns the path of a program of this release: beside this one, or else found in PATH.
pub(crate) fn find(program: &str) -> PathBuf {
    let here = std::env::current_exe().ok();
    let beside = here.map(|path| path.with_file_name(program));
    let found = beside.filter(|path| path.is_file());
    found.unwrap_or_else(|| program.into())
}
