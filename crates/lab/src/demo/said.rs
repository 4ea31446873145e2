//! The lines of a demo on standard error while it runs.

use std::io::{IsTerminal, Write};

use super::setup::RANKS;

/// Prints the progress over the line before it, on a terminal only.
pub(super) fn show(committed: u64, trained: u64) {
    if std::io::stderr().is_terminal() {
        let mut err = std::io::stderr().lock();
        let line =
            format!("{committed} steps committed, {trained} trained by all of {RANKS} ranks");
        let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
    }
}

/// Prints a line of its own.
pub(super) fn say(text: &str) {
    let clear = if std::io::stderr().is_terminal() {
        "\r\x1b[K"
    } else {
        ""
    };
    eprintln!("{clear}{text}");
}
