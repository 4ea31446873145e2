//! Verbs run by `batchweave-lab`: this process is replaced by that program, with the same arguments. This program therefore contains neither the producer nor an S3 server.

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
    if asks_for_lab_help(args, &cli) {
        return true;
    }
    let Ok(matches) = cli.clone().try_get_matches_from(args) else {
        return false;
    };
    let verb = matches.subcommand_name();
    verb.is_some_and(|verb| is_lab_verb(&cli, verb))
}

/// Whether the command line asks for help on such a verb, as `batchweave help bench` does.
pub(crate) fn asks_for_lab_help(args: &[OsString], cli: &clap::Command) -> bool {
    let Some(at) = args.iter().position(|word| word == "help") else {
        return false;
    };
    // Without the word this is a command of the verb, unless the word is the value of an option.
    let (before, after) = (args[..at].iter(), args[at + 1..].iter().take(1));
    let matches = cli.clone().try_get_matches_from(before.chain(after));
    matches.is_ok_and(|matches| {
        let verb = matches.subcommand_name();
        verb.is_some_and(|verb| is_lab_verb(cli, verb))
    })
}

/// Returns whether a verb leaves `--help` to `batchweave-lab`, as only [`LabArgs`] do.
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
    fn lab_verbs_are_recognized() {
        let lab = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            runs_in_lab(&words)
        };
        for line in [
            "batchweave demo --seed 7",
            "batchweave help plan",
            "batchweave --json help bench",
            "batchweave --store memory://x help demo",
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
            "batchweave --store help status",
            "batchweave help",
            "batchweave --store demo status",
            "batchweave --help",
            "batchweave nothing",
        ] {
            assert!(!lab(line), "{line}");
        }
    }
}
