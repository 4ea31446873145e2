//! The text output of `batchweave reclaim`.

use std::fmt::Write as _;

use batchweave_log::reclaim::Tally;

use super::report::{Holder, ReclaimReport, Row};
use crate::output::{Style, bytes, count, table};

pub(super) fn text(report: &ReclaimReport, style: Style) -> String {
    let mut text = head(report, style);
    for job in &report.jobs {
        text.push_str(&holder(job));
    }
    text.push_str(&classes(report, style));
    if !report.applied && report.classes.iter().any(|row| row.dead.objects > 0) {
        text.push_str("nothing was written; add --apply to do it\n");
    }
    if report.more {
        text.push_str(&style.yellow("there is more: run the command again\n"));
    }
    let cost = &report.requests;
    let _ = write!(
        text,
        "requests   {} LIST, {} GET, {} PUT, {} DELETE",
        cost.lists, cost.gets, cost.puts, cost.deletes
    );
    text
}

fn head(report: &ReclaimReport, style: Style) -> String {
    let (from, to) = (report.watermark, report.watermark_after);
    let mut text = format!("root       {}\n", report.root);
    let moved = match report.published {
        Some(version) => style.green(&format!("{from} -> {to}, by version {version}")),
        None if from == to => format!("stays at {from}"),
        None => format!("{from} -> {to}"),
    };
    let ahead = count(report.head - to.min(report.head), "step");
    let _ = writeln!(
        text,
        "watermark  {moved}; {ahead} to the head at {}",
        report.head
    );
    let _ = writeln!(text, "given up   {}", count(report.steps, "step"));
    if let Some(reason) = report.reason {
        let job = report.held_by.as_ref();
        let by = job.map_or(String::new(), |job| format!("held by {job}: "));
        let _ = writeln!(text, "held back  {by}{reason}");
    }
    for job in &report.closed {
        let _ = writeln!(text, "closed     {job}: its lease has run out");
    }
    text
}

fn holder(job: &Holder) -> String {
    let floor = match job.floor {
        Some(floor) => format!("may need step {floor} on ({})", count(job.steps, "step")),
        None => format!("keeps {} restart points and has fewer", job.keep),
    };
    let mut text = format!("job        {}@{} {floor}", job.job, job.opened);
    let points: Vec<_> = job.restart_points.iter().map(u64::to_string).collect();
    if !points.is_empty() {
        let _ = write!(text, "; restarts from {}", points.join(", "));
    }
    match (job.attempt, job.attempt_opened, job.position) {
        (Some(attempt), Some(opened), Some(position)) => {
            let _ = write!(
                text,
                "; attempt {attempt}, opened by version {opened}, is at {position}, {}",
                match &job.last_progress {
                    Some(at) => format!("last seen {at}"),
                    None => "never seen".to_owned(),
                }
            );
        }
        _ => text.push_str("; no attempt yet"),
    }
    text.push('\n');
    for (step, missing) in &job.incomplete_marks {
        let missing = count(missing.len() as u64, "coordinate");
        let _ = writeln!(text, "           the mark at {step} lacks {missing}");
    }
    text
}

fn classes(report: &ReclaimReport, style: Style) -> String {
    let cell = |amount: Tally| match amount.objects {
        0 => "-".to_owned(),
        objects => format!("{objects} ({})", bytes(amount.bytes)),
    };
    let line = |row: &Row| {
        let last = if report.applied { row.deleted } else { None };
        let gone = last.map_or_else(|| cell(row.dead), cell);
        vec![
            row.class.to_owned(),
            cell(row.needed),
            cell(row.uncommitted),
            cell(row.foreign),
            gone,
        ]
    };
    let rows: Vec<_> = report.classes.iter().map(line).collect();
    let last = if report.applied {
        "DELETED"
    } else {
        "TO DELETE"
    };
    table(
        style,
        &["OBJECTS", "NEEDED", "UNCOMMITTED", "FOREIGN", last],
        &rows,
    )
}
