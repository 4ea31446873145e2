//! The text output of `batchweave status`.

use std::fmt::Write as _;

use batchweave_core::manifest::state::QuarantineState;

use super::{StatusReport, stream_rows};
use crate::describe;
use crate::job_status::{self, JobStatus, ReclaimStatus};
use crate::output::{Style, bytes, cells, count, fields, joined, or_dash, range, table};

pub(super) fn render(report: &StatusReport, style: Style) -> String {
    let mut text = fields(&rows(report, style)) + "\n" + &producer_table(report, style);
    if !report.jobs.is_empty() {
        text = text + "\n" + &job_status::job_table(&report.jobs, style);
    }
    for shown in &report.quarantines {
        let line = quarantine(shown, &report.jobs);
        text += &style.yellow(&format!("\n{line}"));
    }
    text
}

fn rows(report: &StatusReport, style: Style) -> Vec<(&'static str, String)> {
    let mut rows = stream_rows(&report.root, &report.stream);
    let version = report.head.version;
    let version = version.map_or("no commit yet".to_owned(), |v| format!("version {v}"));
    let steps = report.head.steps;
    let held = match range(0, steps).as_str() {
        "none" => String::new(),
        held => format!(" ({held})"),
    };
    rows.push(("head", format!("{version}; {}{held}", count(steps, "step"))));
    rows.push(("commits", report.commits.text()));
    rows.push(("watermark", watermark(report)));
    let end = match (report.end, report.sealed) {
        (Some(end), true) => format!("sealed at step {end}"),
        (Some(end), false) => format!("all producers have finished: {}", count(end, "step")),
        (None, _) => "open".to_owned(),
    };
    rows.push(("end", end));
    if let Some(lane) = &report.awaited_lane {
        let since = report.awaited_since.unwrap_or_default();
        let waiting = count(report.waiting as u64, "TGB");
        let text = format!("{lane}, since version {since}; {waiting} of other lanes wait for it");
        rows.push(("next lane", text));
    }
    if report.mixture.id > 0 {
        rows.push(("mixture", report.mixture.id.to_string()));
    }
    let snapshots = report.snapshots.iter();
    let snapshots = snapshots.map(|s| format!("{} ({})", s.version, bytes(s.bytes)));
    rows.push(("snapshots", joined(snapshots, "none")));
    if report.void_entries + report.void_records > 0 {
        let entries = count(report.void_entries, "entry");
        let records = count(report.void_records, "whole record");
        let hint = "a writer is faulty; `batchweave log --from 0` shows which";
        rows.push(("void", style.red(&format!("{entries}, {records}: {hint}"))));
    }
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

fn quarantine(shown: &QuarantineState, jobs: &[JobStatus]) -> String {
    let steps = describe::steps(shown.first, shown.last);
    let mut text = format!("quarantine  {steps}: {}", shown.reason);
    if let Some(version) = shown.lifted {
        let _ = write!(text, ", lifted at version {version}");
    }
    let readers = jobs.iter().filter_map(|job| job.reader(shown));
    for reader in readers.filter(|reader| reader.does == "reads") {
        let _ = write!(text, "; {} still reads them", reader.attempt_text());
    }
    text
}

fn producer_table(report: &StatusReport, style: Style) -> String {
    if report.producers.is_empty() {
        return "no producer was opened yet\n".to_owned();
    }
    let rows = report.producers.iter().map(|p| {
        let (opened, instance) = (or_dash(p.opened), or_dash(p.instance.as_ref()));
        cells![p.name, p.state, p.epoch, p.next_seq, opened, instance]
    });
    let header = "PRODUCER|STATE|EPOCH|NEXT SEQ|OPENED AT|INSTANCE";
    table(style, &header.split('|').collect::<Vec<_>>(), rows)
}
