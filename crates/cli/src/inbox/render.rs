//! Inboxes as text.

use batchweave_console::output::{
    Style, bytes, cells, count, count_grouped, joined, or_dash, table,
};

use super::verify_report::VerifyReport;
use super::{LsReport, WriterRow};

pub(super) fn ls(report: &LsReport, style: Style) -> String {
    if report.writers.is_empty() {
        let inbox = &report.inbox;
        return match report.wanted.as_slice() {
            [] => format!("{inbox} has no writers"),
            wanted => format!("{inbox} has no files of {}", joined(wanted, "")),
        };
    }
    let header = [
        "WRITER",
        "STATE",
        "FILES",
        "SIZE",
        "ROWS",
        "COMMITTED",
        "WAITING",
        "PRODUCER",
    ];
    let mut text = table(style, &header, report.writers.iter().map(cells_of));
    if let Some(stream) = &report.stream {
        let steps = count_grouped(stream.steps, "step");
        let jobs = match stream.job_steps {
            Some(at) => format!(
                "; the slowest job has received {}, {} less",
                count_grouped(at, "step"),
                stream.steps.saturating_sub(at)
            ),
            None => "; no job is open".to_owned(),
        };
        text = format!("{text}\n{} has {steps}{jobs}", stream.root);
    }
    text
}

fn cells_of(w: &WriterRow) -> Vec<String> {
    let state = match (w.stored.job, w.stored.ended) {
        (true, _) => "job",
        (_, true) => "ended",
        _ => "open",
    };
    let own = &w.stored;
    let waits = w
        .rows_committed
        .map(|rows| own.rows_durable.saturating_sub(rows));
    cells![
        own.name,
        state,
        own.files,
        or_dash(own.bytes.map(bytes)),
        own.rows_durable,
        or_dash(w.rows_committed),
        or_dash(waits),
        or_dash(w.producer.as_ref())
    ]
}

pub(super) fn verify(report: &VerifyReport, style: Style) -> String {
    let mut lines: Vec<String> = report.faults.clone();
    if report.more_faults > 0 {
        lines.push(format!(
            "and {}",
            count_grouped(report.more_faults, "more file")
        ));
    }
    let rows = count_grouped(report.rows_once, "row");
    let writers = count(report.writers, "writer");
    let once = format!("{rows} of {writers} are in the stream");
    let (twice, missing) = (report.rows_twice, report.rows_missing);
    lines.push(if report.faults.is_empty() {
        style.green(&format!("{once}, each once"))
    } else if twice == 0 && report.steps_unknown > 0 {
        style.yellow(&format!("{once} once, {missing} in no step that is known"))
    } else {
        style.red(&format!(
            "{once} once, {missing} are missing and {twice} doubled"
        ))
    });
    if report.steps_unknown > 0 {
        lines.push(format!(
            "{} are reclaimed or have no provenance, so rows that are missing may be in them",
            count_grouped(report.steps_unknown, "step")
        ));
    }
    lines.join("\n")
}
