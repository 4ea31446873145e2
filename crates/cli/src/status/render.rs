//! The text output of `batchweave status`.

use batchweave_core::manifest::state::QuarantineState;

use super::{StatusReport, stream_rows};
use crate::describe;
use crate::job_status::{self, JobStatus, ReclaimStatus};
use crate::output::{Style, bytes, count, fields, range, table};

pub(super) fn render(report: &StatusReport, style: Style) -> String {
    let mut text = fields(&rows(report, style));
    text.push('\n');
    text.push_str(&producer_table(report, style));
    if !report.jobs.is_empty() {
        text.push('\n');
        text.push_str(&job_status::job_table(&report.jobs, style));
    }
    for shown in &report.quarantines {
        let line = quarantine(shown, &report.jobs);
        text.push_str(&style.yellow(&format!("\n{line}")));
    }
    text
}

fn rows(report: &StatusReport, style: Style) -> Vec<(&'static str, String)> {
    let mut rows = stream_rows(&report.root, &report.stream);
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
    rows.push((
        "end",
        match (report.end, report.sealed) {
            (Some(end), true) => format!("sealed at step {end}"),
            (Some(end), false) => format!("all producers have finished: {}", count(end, "step")),
            (None, _) => "open".to_owned(),
        },
    ));
    if let Some(lane) = &report.awaited_lane {
        let since = report.awaited_since.unwrap_or_default();
        let waiting = count(report.waiting as u64, "TGB");
        rows.push((
            "next lane",
            format!("{lane}, since version {since}; {waiting} of other lanes wait for it"),
        ));
    }
    if report.mixture.id > 0 {
        rows.push(("mixture", report.mixture.id.to_string()));
    }
    let snapshots = report.snapshots.iter();
    let snapshots: Vec<_> = snapshots
        .map(|s| format!("{} ({})", s.version, bytes(s.bytes)))
        .collect();
    let snapshots = if snapshots.is_empty() {
        "none".to_owned()
    } else {
        snapshots.join(", ")
    };
    rows.push(("snapshots", snapshots));
    let (entries, records) = (report.void_entries, report.void_records);
    if entries + records > 0 {
        let text = format!(
            "{}, {}: a writer is faulty; `batchweave log --from 0` shows which",
            count(entries, "entry"),
            count(records, "whole record")
        );
        rows.push(("void", style.red(&text)));
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
    let lifted = shown
        .lifted
        .map_or(String::new(), |v| format!(", lifted at version {v}"));
    let readers = jobs.iter().filter_map(|job| job.reader(shown));
    let readers: Vec<_> = readers
        .filter(|reader| reader.does == "reads")
        .map(|reader| format!("; {} still reads them", reader.attempt_text()))
        .collect();
    format!(
        "quarantine  {steps}: {}{lifted}{}",
        shown.reason,
        readers.concat()
    )
}

fn producer_table(report: &StatusReport, style: Style) -> String {
    if report.producers.is_empty() {
        return "no producer was opened yet\n".to_owned();
    }
    let dash = || "-".to_owned();
    let rows: Vec<Vec<String>> = report
        .producers
        .iter()
        .map(|p| {
            vec![
                p.name.to_string(),
                p.state.to_owned(),
                p.epoch.to_string(),
                p.next_seq.to_string(),
                p.opened.map_or_else(dash, |v| v.to_string()),
                p.instance.clone().unwrap_or_else(dash),
            ]
        })
        .collect();
    let header = [
        "PRODUCER",
        "STATE",
        "EPOCH",
        "NEXT SEQ",
        "OPENED AT",
        "INSTANCE",
    ];
    table(style, &header, &rows)
}
