//! The output of a run: on a terminal one line that is refreshed, elsewhere a line every ten seconds; with
//! `--json` one object per line.

use std::io::Write;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::output::{Output, fields};
use batchweave_daemon::live_line::head;
use rustix::termios::tcgetwinsize;
use serde_json::json;
use tokio::time::Instant;

use super::progress::Progress;

/// Interval between lines where standard output is not a terminal.
const EVERY: Duration = Duration::from_secs(10);
/// Clears the line of progress on a terminal.
const CLEAR: &str = "\r\x1b[K";
/// Columns of a terminal that does not report its width.
const COLUMNS: usize = 80;

/// Returns the columns for the line; the last one stays free, since some terminals wrap when it is written.
fn columns() -> usize {
    let size = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let columns = if size == 0 { COLUMNS } else { size };
    columns.saturating_sub(1).max(1)
}

#[derive(Debug)]
pub(super) struct Display {
    json: bool,
    terminal: bool,
    /// When the next line is due, elsewhere than on a terminal.
    due: Instant,
}

impl Display {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            terminal: Output::is_terminal() && !json,
            due: Instant::now() + EVERY,
        }
    }

    /// Prints where the parts of the run are.
    pub(super) fn introduce(&self, rows: &[(&str, String)]) -> Result<(), CliError> {
        if self.json {
            let rows: serde_json::Map<_, _> = rows
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            return Output::line(&json!({ "run": rows }).to_string());
        }
        Output::line(fields(rows).trim_end())
    }

    /// Shows the progress, when it is due.
    pub(super) fn progress(&mut self, progress: &Progress) -> Result<(), CliError> {
        if self.terminal {
            let mut out = std::io::stdout().lock();
            write!(out, "{CLEAR}{}", head(&progress.line(), columns()))?;
            out.flush()?;
            return Ok(());
        }
        if Instant::now() < self.due {
            return Ok(());
        }
        self.due = Instant::now() + EVERY;
        if self.json {
            return Output::line(&json!({ "progress": progress }).to_string());
        }
        Output::line(&progress.line())
    }

    /// Prints a change of the run.
    pub(super) fn event(&self, text: &str) -> Result<(), CliError> {
        self.clear()?;
        if self.json {
            return Output::line(&json!({ "event": text }).to_string());
        }
        Output::line(text)
    }

    /// Prints the last line.
    pub(super) fn end(&self, text: &str) -> Result<(), CliError> {
        self.clear()?;
        if self.json {
            return Output::line(&json!({ "ended": text }).to_string());
        }
        Output::line(text)
    }

    /// Prints a warning or an error of a daemon.
    pub(super) fn complain(&self, text: &str) -> Result<(), CliError> {
        self.clear()?;
        eprintln!("{text}");
        Ok(())
    }

    /// Prints the error that ends the run.
    pub(super) fn error(&self, text: &str) -> Result<(), CliError> {
        self.complain(&format!("error: {text}"))
    }

    fn clear(&self) -> Result<(), CliError> {
        if self.terminal {
            let mut out = std::io::stdout().lock();
            write!(out, "{CLEAR}")?;
            out.flush()?;
        }
        Ok(())
    }
}
