//! The text output of `batchweave status`: first what people ask.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use batchweave_console::describe;
use batchweave_console::job_status::JobStatus;
use batchweave_console::output::{Style, cells, count, fields_from, joined, or_dash, table};
use batchweave_console::stream;
use batchweave_core::manifest::state::QuarantineState;

use super::{StatusReport, internals, readers};

/// Columns of the names, so that the values stay where they are.
const NAMES: usize = 9;

/// Formats the summary and, if `verbose`, the folded state below it.
pub(super) fn render(report: &StatusReport, verbose: bool, style: Style) -> String {
    let mut text = fields_from(NAMES, &rows(report, style)) + "\n" + &producer_table(report, style);
    if !report.readers.is_empty() {
        text = text + "\n" + &readers::reader_table(&report.readers, style);
    }
    for shown in &report.quarantines {
        let line = quarantine(shown, &report.jobs);
        text += &style.yellow(&format!("\n{line}"));
    }
    if verbose {
        text = text + "\n" + &internals::render(report, style);
    }
    text
}

/// Returns the lines of the summary by name.
pub(super) fn rows(report: &StatusReport, style: Style) -> Vec<(&'static str, String)> {
    let mut rows = stream::rows(&report.root, &report.stream);
    rows.retain(|(name, _)| ["root", "parent", "batch"].contains(name));
    let first_step = report.stream.first_step();
    let own = report.head.steps.saturating_sub(first_step);
    rows.insert(1, ("data", report.totals.text(own)));
    if let Some(rate) = report.rate.text() {
        rows.push(("rate", rate));
    }
    if let Some(balance) = balance(report) {
        rows.push(("balance", balance));
    }
    // Nothing is known of the readers of a past state.
    if report.reclaim.is_some() {
        let lead = readers::lead(&report.readers, report.tokens_per_step);
        rows.push(("ahead", lead));
    }
    if !report.stages.is_empty() {
        let of = |p: &super::Producer| {
            let stage = p
                .stage
                .as_ref()
                .map_or("(stream.json)", |stage| stage.as_str());
            (p.state != "finished").then(|| stage.to_owned())
        };
        let now: BTreeSet<String> = report.producers.iter().filter_map(of).collect();
        let text = format!("{}; see `batchweave stage show`", joined(now, "-"));
        rows.push(("stage", text));
    }
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
    if report.watermark > first_step {
        let steps = count(report.watermark - first_step, "step");
        rows.push(("given up", format!("the first {steps}, which no job needs")));
    }
    if report.void_entries + report.void_records > 0 {
        let entries = count(report.void_entries, "entry");
        let records = count(report.void_records, "whole record");
        let hint = "a writer is faulty; `batchweave log --from 0` shows which";
        rows.push(("void", style.red(&format!("{entries}, {records}: {hint}"))));
    }
    rows
}

/// Describes the cost of the newest steps that have bins.
fn balance(report: &StatusReport) -> Option<String> {
    let commits = &report.commits;
    let imbalance = commits.cost?.imbalance();
    if !report.stages.is_empty() {
        // The newest steps may be of several shapes.
        return Some(format!(
            "the dearest slice costs {imbalance:.3} times the mean (newest steps with bins)"
        ));
    }
    let room = commits.tgbs.saturating_mul(report.stream.batch_items());
    let fill = 100.0 * commits.tokens as f64 / room.max(1) as f64;
    let steps = count(commits.tgbs, "step");
    Some(format!(
        "the dearest slice costs {imbalance:.3} times the mean, bins are {fill:.1} % full (newest {steps})"
    ))
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
        let input = report
            .inputs
            .iter()
            .find(|input| input.producer == p.name)
            .map(|input| input.text(p.state == "finished"));
        cells![p.name, p.state, p.next_seq, or_dash(input)]
    });
    table(style, &["PRODUCER", "STATE", "BATCHES", "INPUT"], rows)
}
