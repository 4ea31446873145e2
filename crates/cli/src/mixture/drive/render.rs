//! Turns and replays of a driver as text.

use std::fmt::Write as _;

use batchweave_console::output::{Style, cells, count, joined, printable, range, table};

use super::dry_run_report::{DryRunReport, Replayed};
use super::{DriveReport, DrivenSource};

pub(in crate::mixture) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(in crate::mixture) fn loss(loss: Option<f64>) -> String {
    loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.4}"))
}

pub(super) fn turn(report: &DriveReport, style: Style) -> String {
    let mut text = String::new();
    if !report.without_values.is_empty() {
        let ranges = report.without_values.iter();
        let ranges = joined(ranges.map(|(from, to)| range(*from, *to)), "");
        let line = format!(
            "passed over steps {ranges}: fewer than 95 % of their losses by source are stored"
        );
        let _ = writeln!(text, "{}", style.yellow(&line));
    }
    if report.closed {
        let _ = write!(
            text,
            "job {} is closed: nothing changes any more",
            report.job
        );
    }
    if let Some(waiting) = &report.waiting {
        let _ = write!(text, "waiting: {waiting}");
    }
    let Some(change) = &report.change else {
        return text;
    };
    let steps = range(change.from, change.to);
    let head = format!(
        "mixture {} is set by version {}: change {}, from the losses of steps {steps}",
        change.id, change.version, change.change
    );
    let row = |one: &DrivenSource| {
        cells![
            printable(&one.source),
            loss(one.loss),
            percent(one.before),
            percent(one.after)
        ]
    };
    let header = ["SOURCE", "LOSS", "BEFORE", "AFTER"];
    let rows = change.sources.iter().map(row);
    text + &format!("{}\n{}", style.green(&head), table(style, &header, rows))
}

pub(super) fn dry_run(report: &DryRunReport, style: Style) -> String {
    let mut text = format!(
        "what rule {} would have done with the losses of job {} in {}, steps {}; nothing is written\n",
        report.rule,
        report.job,
        report.root,
        range(report.from, report.to)
    );
    let names = report.changes.first().map(|first| &first.sources);
    let names = names.into_iter().flatten();
    let mut header = vec!["CHANGE".to_owned(), "STEPS".to_owned()];
    for one in names {
        header.push(format!("{} LOSS", printable(&one.source)));
        header.push("SHARE".to_owned());
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let row = |change: &Replayed| {
        let mut row = cells![change.change, range(change.from, change.to)];
        for one in &change.sources {
            row.push(loss(one.loss));
            row.push(percent(one.share));
        }
        row
    };
    text += &table(style, &header, report.changes.iter().map(row));
    if report.without_values > 0 {
        let windows = count(report.without_values, "window");
        let line = format!(
            "\n{windows} passed over: fewer than 95 % of their losses by source are stored"
        );
        text += &style.yellow(&line);
    }
    text
}
