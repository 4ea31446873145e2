//! The verbs that the program `batchweave-lab` runs: it replaces this process and receives the command line
//! unchanged. This program therefore contains neither the producer nor an S3 server.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use batchweave_console::CliError;
use batchweave_console::programs::{self, Name};

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

/// Returns whether `batchweave-lab` runs the command line `args`.
pub fn runs_in_lab(args: &[OsString]) -> bool {
    let cli = crate::command();
    if is_help(args, &cli) {
        return true;
    }
    let Ok(matches) = cli.clone().try_get_matches_from(args) else {
        return false;
    };
    let verb = matches.subcommand_name();
    verb.is_some_and(|verb| is_lab_verb(&cli, verb))
}

/// Whether the command line asks for help on such a verb, as `batchweave help bench` does.
pub(crate) fn is_help(args: &[OsString], cli: &clap::Command) -> bool {
    let [_, help, verb, ..] = args else {
        return false;
    };
    help == "help" && verb.to_str().is_some_and(|name| is_lab_verb(cli, name))
}

fn is_lab_verb(cli: &clap::Command, name: &str) -> bool {
    let verb = cli.find_subcommand(name);
    verb.is_some_and(clap::Command::is_disable_help_flag_set)
}

/// Replaces this process by `batchweave-lab` with the command line `args`; returns only when that fails.
pub(crate) fn exec(args: &[OsString]) -> CliError {
    let mut command = programs::start(Name::Lab).command();
    command.args(args.iter().skip(1));
    if let Some(name) = args.first() {
        // Usage lines show the name that the command was called by.
        command.arg0(name);
    }
    let error = command.exec();
    CliError::Failed(format!(
        "cannot run {}, which this verb needs: {error}; install it beside batchweave or in a folder of \
         PATH (`make install` does)",
        Name::Lab
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_of_the_lab_are_told_apart() {
        let lab = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            runs_in_lab(&words)
        };
        for line in [
            "batchweave demo --seed 7",
            "batchweave help plan",
            "batchweave bench --help",
            "batchweave --store memory://x dev-s3 --listen 127.0.0.1:0",
            "batchweave generate share",
        ] {
            assert!(lab(line), "{line}");
        }
        for line in [
            "batchweave",
            "batchweave status --store memory://x",
            "batchweave help status",
            "batchweave --store demo status",
            "batchweave --help",
            "batchweave nothing",
        ] {
            assert!(!lab(line), "{line}");
        }
    }
}
