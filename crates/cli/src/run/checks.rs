//! The checks of both daemons, whose lines are printed once.

use std::path::Path;

use batchweave_console::CliError;
use batchweave_console::output::Output;
use batchweave_daemon::Exit;

use super::file::Role;
use super::{child, rules};

/// The checks of the daemons: of everything that the file names, and of the file alone.
pub(super) const ALL: &str = "--check";
pub(super) const FILE_ONLY: &str = "--check=file";

/// Runs the checks of both daemons and prints each line once.
pub(super) async fn check(
    file: &Path,
    options: impl Fn(Role) -> Vec<String>,
    extent: &str,
) -> Result<Exit, CliError> {
    let (producer, consumer) = (options(Role::Producer), options(Role::Consumer));
    let checks = tokio::try_join!(
        child::check(Role::Producer, file, &producer, extent),
        child::check(Role::Consumer, file, &consumer, extent),
    )?;
    let failed = [&checks.0, &checks.1]
        .map(|(code, _)| (*code != Some(0)).then_some(*code))
        .into_iter()
        .flatten()
        .next();
    let fine = format!("{}: ok", file.display());
    let mut shown: Vec<&str> = Vec::new();
    for line in checks.0.1.lines().chain(checks.1.1.lines()) {
        if line == fine || shown.contains(&line) {
            continue;
        }
        shown.push(line);
        if failed.is_some() {
            eprintln!("{line}");
        } else {
            Output::line(line)?;
        }
    }
    if let Some(code) = failed {
        return Ok(rules::exit_of(code));
    }
    if extent == ALL {
        Output::line(&fine)?;
    }
    Ok(Exit::Ok)
}
