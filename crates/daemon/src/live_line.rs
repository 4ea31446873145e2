//! A line at the bottom of the terminal that is drawn over again while a program works. Log lines appear above
//! it: `LogWriter` erases the line, writes, and draws it again, in one write.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// Goes to the first column and clears to the end of the line.
const ERASE: &str = "\r\x1b[K";
/// Columns of a terminal that does not report its width.
const COLUMNS: usize = 80;
/// Stands for what was cut.
const DOTS: &str = "...";
/// Fewest columns worth drawing on.
const COLUMNS_MIN: usize = 20;

/// Whether the log is started, as text.
static TEXT: AtomicBool = AtomicBool::new(false);

/// Sets whether the process logs text, for people.
pub(crate) fn expect_text(text: bool) {
    TEXT.store(text, Ordering::Relaxed);
}

/// The text that is drawn now; empty for none.
static DRAWN: Mutex<String> = Mutex::new(String::new());

fn drawn() -> MutexGuard<'static, String> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The line. A process draws one at a time; dropping it erases it.
#[derive(Debug, Default)]
pub struct LiveLine(());

impl LiveLine {
    /// Returns the columns to draw on, or `None` where a line cannot be drawn: standard error is not a terminal,
    /// cannot move its cursor, belongs to another job of the shell, or the log is JSON.
    pub fn columns(&self) -> Option<usize> {
        let err = io::stderr();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        if dumb || !TEXT.load(Ordering::Relaxed) || !err.is_terminal() {
            return None;
        }
        // A process in the background would draw over the shell's prompt.
        if tcgetpgrp(&err).ok()? != getpgrp() {
            return None;
        }
        let columns = tcgetwinsize(&err).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { COLUMNS } else { columns };
        // The last column stays free: some terminals wrap when it is written.
        (columns >= COLUMNS_MIN).then_some(columns - 1)
    }

    /// Draws `text`, which must fit into [`columns`](Self::columns), over the line before.
    pub fn draw(&mut self, text: &str) {
        let mut drawn = drawn();
        if *drawn == text {
            return;
        }
        text.clone_into(&mut drawn);
        put(format!("{ERASE}{text}").as_bytes());
    }

    /// Erases the line until the next drawing.
    pub fn erase(&mut self) {
        let mut drawn = drawn();
        if !drawn.is_empty() {
            drawn.clear();
            put(ERASE.as_bytes());
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.erase();
    }
}

/// A terminal that is gone is not reported.
fn put(bytes: &[u8]) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(bytes).and_then(|()| err.flush());
}

/// Writes log lines to standard error, above the line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let drawn = drawn();
        let mut err = io::stderr().lock();
        if drawn.is_empty() {
            err.write_all(lines)?;
        } else {
            err.write_all(&[ERASE.as_bytes(), lines, drawn.as_bytes()].concat())?;
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Appends `part` to `line`, after two blanks, if it fits into `columns`. Returns whether it did.
pub fn append(line: &mut String, part: &str, columns: usize) -> bool {
    let gap = if line.is_empty() { 0 } else { 2 };
    if part.is_empty() || width(line) + gap + width(part) > columns {
        return false;
    }
    let _ = write!(line, "{:gap$}{part}", "");
    true
}

/// Returns the most columns that `text` may take.
fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// Characters outside ASCII count twice, since some are wide.
fn columns_of(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

/// Returns the columns that [`append`] leaves for a further part.
pub fn room(line: &str, columns: usize) -> usize {
    let gap = if line.is_empty() { 0 } else { 2 };
    columns.saturating_sub(width(line) + gap)
}

/// Returns `text` without control characters and cut at its end to at most `columns`.
pub fn head(text: &str, columns: usize) -> String {
    let clean = clean(text);
    if width(&clean) <= columns {
        return clean;
    }
    let mut used = DOTS.len();
    let fits = |c: &char| {
        used += columns_of(*c);
        used <= columns
    };
    let kept: String = clean.chars().take_while(fits).collect();
    kept + DOTS
}

/// Returns `text` without control characters and cut at its beginning to at most `columns`: of a path the end says
/// more.
pub fn tail(text: &str, columns: usize) -> String {
    let clean = clean(text);
    if width(&clean) <= columns {
        return clean;
    }
    let (mut from, mut used) = (clean.len(), DOTS.len());
    for (at, c) in clean.char_indices().rev() {
        used += columns_of(c);
        if used > columns {
            break;
        }
        from = at;
    }
    format!("{DOTS}{}", &clean[from..])
}

fn clean(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_do_not_fit_are_left_out_whole() {
        let mut line = String::new();
        assert!(append(&mut line, "tokens-0", 20));
        assert!(append(&mut line, "12 batches", 20));
        assert!(!append(&mut line, "x", 20));
        assert_eq!(line, "tokens-0  12 batches");
        assert!(!append(&mut line, "", 80), "nothing to add");
        assert!(!append(&mut String::new(), "日本", 3), "wide characters");
    }

    #[test]
    fn of_a_long_path_the_end_is_shown() {
        assert_eq!(tail("a/b.jsonl", 9), "a/b.jsonl");
        assert_eq!(tail("corpus/of/a/b.jsonl", 12), "...a/b.jsonl");
        assert_eq!(tail("a\x1b[2J\n", 80), "a?[2J?");
        assert_eq!(tail("日本日本日本", 8), "...日本");
        assert_eq!(head("held back by a job", 12), "held back...");
        assert_eq!(room("tokens-0", 20), 10);
    }
}
