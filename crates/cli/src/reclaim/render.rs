//! The text output of `batchweave reclaim`.

use std::fmt::Write as _;

use batchweave_console::output::{Style, bytes, cells, count, joined, table};
use batchweave_log::reclaim::{JobRetention, Tally};

use super::report::{ReclaimReport, Row};

pub(super) fn text(report: &ReclaimReport, style: Style) -> String {
    let mut text = head(report, style);
    for job in &report.jobs {
        text.push_str(&holder(job));
    }
    text.push_str(&classes(report, style));
    let dead = report.classes.iter().any(|row| row.totals.dead.objects > 0);
    if !report.applied && (dead || report.steps > 0) {
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

fn holder(job: &JobRetention) -> String {
    let floor = match job.floor {
        Some(floor) => format!("may need step {floor} on ({})", count(job.steps, "step")),
        None => format!("keeps {} restart points and has fewer", job.keep),
    };
    let mut text = format!("job        {}@{} {floor}", job.job, job.opened);
    if !job.restart_points.is_empty() {
        let _ = write!(text, "; restarts from {}", joined(&job.restart_points, ""));
    }
    let seen = job
        .last_progress
        .as_ref()
        .map_or("never seen".to_owned(), |at| format!("last seen {at}"));
    let _ = match (job.attempt, job.attempt_opened, job.position) {
        (Some(attempt), Some(opened), Some(position)) => writeln!(
            text,
            "; attempt {attempt}, opened by version {opened}, is at {position}, {seen}"
        ),
        _ => writeln!(text, "; no attempt yet"),
    };
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
        let of = row.totals;
        let gone = row.deleted.unwrap_or(of.dead);
        let [needed, uncommitted, foreign, gone] =
            [of.needed, of.uncommitted, of.foreign, gone].map(cell);
        cells![row.class, needed, uncommitted, foreign, gone]
    };
    let last = ["TO DELETE", "DELETED"][usize::from(report.applied)];
    let header = ["OBJECTS", "NEEDED", "UNCOMMITTED", "FOREIGN", last];
    table(style, &header, report.classes.iter().map(line))
}
