//! The checks of both daemons, whose lines are printed once.

use std::path::Path;

use batchweave_console::CliError;
use batchweave_console::output::Output;
use batchweave_daemon::Exit;

use super::error::RunError;
use super::file::Role;
use super::{child, rules};

/// The checks of the daemons: of everything that the file names, and of the file alone.
pub(super) const ALL: &str = "--check";
pub(super) const FILE_ONLY: &str = "--check=file";

/// The result of the checks of both daemons.
#[derive(Debug)]
pub(super) struct Checked {
    /// The exit code of the first daemon that refused the file.
    pub(super) exit: Exit,
    /// The lines of both reports, each once.
    pub(super) lines: Vec<String>,
}

/// Runs the checks of both daemons.
pub(super) async fn checked(
    file: &Path,
    options: impl Fn(Role) -> Vec<String>,
    extent: &str,
) -> Result<Checked, RunError> {
    let (producer, consumer) = (options(Role::Producer), options(Role::Consumer));
    let checks = tokio::try_join!(
        child::check(Role::Producer, file, &producer, extent),
        child::check(Role::Consumer, file, &consumer, extent),
    )?;
    let codes = [&checks.0, &checks.1].map(|(code, _)| (*code != Some(0)).then_some(*code));
    let fine = fine(file);
    let mut lines: Vec<String> = Vec::new();
    for line in checks.0.1.lines().chain(checks.1.1.lines()) {
        if line != fine && !lines.iter().any(|shown| shown == line) {
            lines.push(line.to_owned());
        }
    }
    Ok(Checked {
        exit: codes
            .into_iter()
            .flatten()
            .next()
            .map_or(Exit::Ok, rules::exit_of),
        lines,
    })
}

/// Runs the checks of both daemons and prints each line once.
pub(super) async fn check(
    file: &Path,
    options: impl Fn(Role) -> Vec<String>,
    extent: &str,
) -> Result<Exit, CliError> {
    let checked = checked(file, options, extent).await?;
    for line in &checked.lines {
        if checked.exit == Exit::Ok {
            Output::line(line)?;
        } else {
            eprintln!("{line}");
        }
    }
    if checked.exit == Exit::Ok && extent == ALL {
        Output::line(&fine(file))?;
    }
    Ok(checked.exit)
}

fn fine(file: &Path) -> String {
    format!("{}: ok", file.display())
}
