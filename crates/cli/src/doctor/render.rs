//! The text output of findings: by groups, aligned, one line each, the remedy beneath.

use std::fmt::Write as _;

use batchweave_console::output::{Style, cells, count, table};

use super::finding::{Check, Finding, Group, Level};
use super::latency::Latency;

/// Formats one group with its title.
pub(super) fn group(group: Group, findings: &[Finding], style: Style) -> String {
    let width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let mut text = format!("{}\n", style.bold(group.title()));
    for finding in findings {
        let mark = mark(finding.verdict, style);
        let (name, detail) = (&finding.name, &finding.detail);
        let _ = writeln!(text, "  {mark}  {name:width$}  {detail}");
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "        {:width$}  -> {remedy}", "");
        }
    }
    text.trim_end().to_owned()
}

fn mark(level: Level, style: Style) -> String {
    match level {
        Level::Ok => style.green("ok  "),
        Level::Warn => style.yellow("warn"),
        Level::Fail => style.red("FAIL"),
        Level::NotChecked => "?   ".to_owned(),
    }
}

/// Formats the last line, with the counts of all findings.
pub(super) fn verdict(checks: &[Check], style: Style) -> String {
    let verdicts = checks.iter().map(|check| check.finding.verdict);
    let of = |level| verdicts.clone().filter(|one| *one == level).count() as u64;
    let (failed, warned) = (of(Level::Fail), of(Level::Warn));
    let word = match (failed, warned) {
        (0, 0) => style.green("fit for use"),
        (0, _) => style.yellow("fit for use, with warnings"),
        _ => style.red("not fit for use"),
    };
    let mut text = format!("{word}: {} ok", of(Level::Ok));
    if warned > 0 {
        let _ = write!(text, ", {}", count(warned, "warning"));
    }
    if failed > 0 {
        let _ = write!(text, ", {failed} failed");
    }
    match of(Level::NotChecked) {
        0 => text,
        unchecked => format!("{text}, {unchecked} not checked (?)"),
    }
}

/// Formats the table of percentiles.
pub(super) fn latency(rows: &[Latency], style: Style) -> String {
    let cells = |row: &Latency| {
        let times = [row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms];
        let mut cells = cells![row.request, row.samples];
        cells.extend(times.map(milliseconds));
        cells
    };
    let header = ["REQUEST", "SAMPLES", "P50 MS", "P90 MS", "P99 MS", "MAX MS"];
    let table = table(style, &header, rows.iter().map(cells));
    let lines = table.lines().map(|line| format!("        {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats three significant digits.
fn milliseconds(ms: f64) -> String {
    if ms < 10.0 {
        format!("{ms:.2}")
    } else if ms < 100.0 {
        format!("{ms:.1}")
    } else {
        format!("{ms:.0}")
    }
}
