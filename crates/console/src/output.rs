//! Printing of results: text with aligned columns, or JSON; colours on a terminal only.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{IsTerminal, Write};

use batchweave_daemon::figures::grouped;
use serde::Serialize;

use crate::error::CliError;

/// Standard output in the format of the command line.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// Whether to print JSON instead of text.
    pub json: bool,
    /// The colours of text.
    pub style: Style,
}

impl Output {
    /// Returns standard output, coloured on a terminal unless NO_COLOR is set and not empty (no-color.org).
    pub(crate) fn to_stdout(json: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let style = Style {
            color: std::io::stdout().is_terminal() && !refused,
        };
        Self { json, style }
    }

    /// Whether standard output is a terminal.
    pub fn is_terminal() -> bool {
        std::io::stdout().is_terminal()
    }

    /// Prints a report as one JSON object, or as the result of `text`.
    pub fn report<R: Serialize>(
        self,
        report: &R,
        text: impl FnOnce(&R, Style) -> String,
    ) -> Result<(), CliError> {
        if self.json {
            let json = serde_json::to_string(report).map_err(std::io::Error::from)?;
            return Self::line(&json);
        }
        Self::line(text(report, self.style).trim_end())
    }

    /// Prints a part of a text immediately; with JSON, nothing.
    pub fn part(self, text: impl FnOnce(Style) -> String) -> Result<(), CliError> {
        if self.json {
            return Ok(());
        }
        Self::line(text(self.style).trim_end())
    }

    /// Prints a line and flushes it, for readers of a pipe.
    pub fn line(line: &str) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()?;
        Ok(())
    }
}

/// The colours of text; none by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    pub color: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Returns the text in red where colours are on.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Returns the text in yellow where colours are on.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Returns the text in green where colours are on.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Returns the text in bold type where colours are on.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
}

/// Formats `name  value` lines with the values aligned.
pub fn fields(rows: &[(&str, String)]) -> String {
    fields_from(0, rows)
}

/// Formats `name  value` lines with the values aligned, in the third column after at least `width`.
pub fn fields_from(width: usize, rows: &[(&str, String)]) -> String {
    let names = rows.iter().map(|(name, _)| name.len());
    let width = names.max().unwrap_or(0).max(width);
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text
}

/// Whether a cell is a number. An id of hexadecimal digits, as `4e534497`, is none.
fn is_number(cell: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_digit() || "+-.".contains(c);
    cell.chars().all(is_plain) && cell.parse::<f64>().is_ok()
}

/// Formats a table with aligned columns; a column of numbers and `-` only is aligned to the right.
pub fn table(style: Style, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let columns: Vec<(usize, bool)> = header
        .iter()
        .enumerate()
        .map(|(i, title)| {
            let cells = rows.iter().filter_map(|row| row.get(i));
            let width = cells.clone().map(|cell| cell.chars().count()).max();
            let mut numbers = cells.map(|cell| cell == "-" || is_number(cell));
            (width.unwrap_or(0).max(title.len()), numbers.all(|is| is))
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&columns).map(|(cell, &(width, right))| {
            if right {
                format!("{cell:>width$}")
            } else {
                format!("{cell:width$}")
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = style.bold(&line(header.to_vec()));
    text.push('\n');
    for row in &rows {
        let _ = writeln!(text, "{}", line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// Returns the cells of a table's line, each as `Display` prints it.
#[macro_export]
macro_rules! cells {
    ($($cell:expr),+ $(,)?) => { vec![$($cell.to_string()),+] };
}
pub use cells;

/// Returns a name that others chose, as that of a file, with its control characters escaped: a terminal would obey
/// them, and a table is lines.
pub fn printable(name: &str) -> Cow<'_, str> {
    let control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !name.contains(control) {
        return Cow::Borrowed(name);
    }
    let mut out = String::new();
    for c in name.chars() {
        if control(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Formats a value; `-` for none.
pub fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Joins items by commas; `none` stands for no items.
pub fn joined(items: impl IntoIterator<Item = impl Display>, none: &str) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() {
        return none.to_owned();
    }
    items.join(", ")
}

/// Formats a number of bytes: 1536 is `1.5 KiB`.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        return format!("{count} B");
    }
    format!("{value:.1} {}", units[unit])
}

/// Formats a number with its noun: `1 step`, `2 steps`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if noun.ends_with("ch") || noun.ends_with("ss") => format!("{noun}es"),
        None => format!("{noun}s"),
    };
    format!("{number} {}", if number == 1 { noun } else { &plural })
}

/// Formats a number with separators and its noun: `1,234 steps`.
pub fn count_grouped(number: u64, noun: &str) -> String {
    let words = count(number, noun);
    let noun = words.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{}{noun}", grouped(number))
}

/// Formats the numbers from `first` up to `end`, exclusive, as `0..39`; `none` when the range is empty.
pub fn range(first: u64, end: u64) -> String {
    match end.checked_sub(first) {
        None | Some(0) => "none".to_owned(),
        Some(1) => first.to_string(),
        Some(_) => format!("{first}..{}", end - 1),
    }
}

/// Formats a range as [`range`] does, with separators: `1,200..3,399`.
pub fn grouped_range(first: u64, end: u64) -> String {
    match end.checked_sub(first) {
        None | Some(0 | 1) => range(first, end),
        Some(_) => format!("{}..{}", grouped(first), grouped(end - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_stand_right() {
        let rows = [
            vec!["p0".to_owned(), "7".to_owned(), "here".to_owned()],
            vec!["producer-1".to_owned(), "1234".to_owned(), String::new()],
        ];
        let text = table(Style::default(), &["NAME", "SEQ", "WHO"], rows);
        let expected = "NAME         SEQ  WHO\np0             7  here\nproducer-1  1234\n";
        assert_eq!(text, expected);
        let ids = [vec!["4e534497".to_owned()], vec!["53e75985".to_owned()]];
        let text = table(Style::default(), &["ID"], ids);
        assert_eq!(text, "ID\n4e534497\n53e75985\n");
    }

    #[test]
    fn names_can_not_command_a_terminal() {
        assert_eq!(
            printable("a\n\x1b[31mb\u{9b}\tü"),
            "a\\n\\u{1b}[31mb\\u{9b}\\tü"
        );
        assert!(matches!(
            printable("corpus/über 1.jsonl:7"),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn colours_are_for_terminals() {
        assert_eq!(Style { color: true }.red("x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::default().red("x"), "x");
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(count(1, "entry"), "1 entry");
        assert_eq!(count(0, "entry"), "0 entries");
        assert_eq!(count(2, "step"), "2 steps");
        assert_eq!(count_grouped(12_345, "step"), "12,345 steps");
        assert_eq!(count(2, "batch"), "2 batches");
        assert_eq!(
            [range(3, 3), range(3, 4), range(0, 40)],
            ["none", "3", "0..39"]
        );
    }
}
