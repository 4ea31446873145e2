//! `batchweave generate`: manual pages and completions, for `make install`.

use std::path::PathBuf;

use batchweave_daemon::{Exit, pages};
use clap::CommandFactory;

use crate::args::Cli;
use crate::error::CliError;

/// Arguments of `batchweave generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    /// Folder that holds man/ and the shells' folders, as /usr/share
    share: PathBuf,
}

pub(crate) fn run(args: &GenerateArgs) -> Result<Exit, CliError> {
    pages::write(Cli::command(), &args.share)?;
    Ok(Exit::Ok)
}
