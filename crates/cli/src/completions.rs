//! `batchweave completions`: prints the completions of a shell.

use std::io::Write as _;

use batchweave_console::CliError;
use batchweave_daemon::{Exit, man_pages};

const EXAMPLES: &str = "\
Examples:
  source <(batchweave completions bash)
  batchweave completions zsh > ~/.zfunc/_batchweave
  batchweave completions fish > ~/.config/fish/completions/batchweave.fish

`make install` puts them where the shells look for them.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads them
    shell: man_pages::CompletedShell,
}

/// Prints the completions of `command`.
pub(crate) fn run(args: &CompletionsArgs, command: clap::Command) -> Result<Exit, CliError> {
    let script = man_pages::completions(command, args.shell);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Exit::Ok)
}
