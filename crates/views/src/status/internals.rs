//! The text output of `batchweave status --verbose`, below the summary: the folded state.

use batchweave_console::job_status::{self, ReclaimStatus};
use batchweave_console::output::{
    Style, bytes, cells, count, fields, joined, or_dash, range, table,
};
use batchweave_console::stream;

use super::StatusReport;

/// Formats the state of the log, producers and jobs.
pub(super) fn render(report: &StatusReport, style: Style) -> String {
    let mut text = fields(&rows(report)) + "\n" + &producer_table(report, style);
    if !report.jobs.is_empty() {
        text = text + "\n" + &job_status::job_table(&report.jobs, style);
    }
    text
}

fn rows(report: &StatusReport) -> Vec<(&'static str, String)> {
    let mut rows = stream::rows(&report.root, &report.stream);
    // The summary has these.
    rows.retain(|(name, _)| !["root", "batch"].contains(name));
    let version = report
        .head
        .version
        .map_or("no commit yet".to_owned(), |v| format!("version {v}"));
    let steps = report.head.steps;
    let held = match range(0, steps).as_str() {
        "none" => String::new(),
        held => format!(" ({held})"),
    };
    rows.push(("head", format!("{version}; {}{held}", count(steps, "step"))));
    rows.push(("commits", report.commits.text()));
    rows.push(("watermark", watermark(report)));
    if report.mixture.id > 0 {
        rows.push(("mixture", report.mixture.id.to_string()));
    }
    let snapshots = report
        .snapshots
        .iter()
        .map(|s| format!("{} ({})", s.version, bytes(s.bytes)));
    rows.push(("snapshots", joined(snapshots, "none")));
    rows
}

fn watermark(report: &StatusReport) -> String {
    let text = match report.watermark {
        0 => "0: every step can be read".to_owned(),
        w => format!("{w}: older steps may be gone"),
    };
    match &report.reclaim {
        // Nothing else is known of a stream without jobs.
        None | Some(ReclaimStatus::NoJob | ReclaimStatus::Nothing) => text,
        Some(reclaim) => format!("{text}; {}", reclaim.text()),
    }
}

fn producer_table(report: &StatusReport, style: Style) -> String {
    let rows = report.producers.iter().map(|p| {
        let (opened, instance) = (or_dash(p.opened), or_dash(p.instance.as_ref()));
        cells![p.name, p.state, p.epoch, p.next_seq, opened, instance]
    });
    let header = "PRODUCER|STATE|TERM|NEXT SEQ|OPENED AT|INSTANCE";
    table(style, &header.split('|').collect::<Vec<_>>(), rows)
}
