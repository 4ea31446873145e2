//! The text output of `batchweave top`: ranks, memory, stages.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::report::{NodeReport, RankReport};
use crate::output::{Style, bytes, fields, table};

/// The share of time above which a rank's waits count as limited by the data.
const DATA_BOUND: f64 = 0.05;

pub(super) fn render(report: &NodeReport, style: Style) -> String {
    let state = if report.ready {
        style.green("ready")
    } else {
        style.red("not ready")
    };
    let mut text = format!("{}  {state}: {}\n\n", report.admin, report.doing);
    text += &ranks(report, style);
    let arena = &report.arena;
    let rows = [
        ("read ahead", bytes(report.ahead_bytes)),
        (
            "arena",
            format!(
                "{} held by ranks, {} used, of {}",
                bytes(arena.held),
                bytes(arena.used),
                bytes(arena.total)
            ),
        ),
        (
            "fetched",
            format!("{}/s", bytes(report.fetched_bytes_per_second as u64)),
        ),
    ];
    let _ = write!(text, "\n{}\n{}", fields(&rows), stages(report, style));
    text
}

fn ranks(report: &NodeReport, style: Style) -> String {
    if report.ranks.is_empty() {
        return "no rank is connected\n".to_owned();
    }
    let causes: BTreeSet<&str> = report
        .ranks
        .iter()
        .flat_map(|rank| rank.causes.keys().map(String::as_str))
        .collect();
    let mut header = vec!["RANK", "STEP", "STEPS/S", "WAITS %"];
    header.extend(&causes);
    header.extend(["AHEAD STEPS", "AHEAD S", "HELD FRAMES"]);
    let rows: Vec<Vec<String>> = report.ranks.iter().map(|r| row(r, &causes)).collect();
    let mut text = table(style, &header, &rows);
    let waiting = report.ranks.iter().map(|r| r.waiting).fold(0.0, f64::max);
    let verdict = if waiting > DATA_BOUND {
        style.yellow(&format!(
            "the data: a rank waits {:.1} % of its time",
            waiting * 100.0
        ))
    } else {
        format!(
            "not the data: no rank waits more than {:.1} % of its time",
            waiting * 100.0
        )
    };
    let _ = writeln!(text, "{verdict}");
    text
}

fn row(rank: &RankReport, causes: &BTreeSet<&str>) -> Vec<String> {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let mut row = vec![
        rank.dp_rank.clone(),
        rank.step.to_string(),
        format!("{:.1}", rank.steps_per_second),
        percent(rank.waiting),
    ];
    row.extend(causes.iter().map(|cause| {
        let share = rank.causes.get(*cause);
        share.map_or("-".to_owned(), |share| percent(*share))
    }));
    row.push(rank.ahead_steps.to_string());
    let seconds = rank.ahead_seconds;
    row.push(seconds.map_or("-".to_owned(), |s| format!("{s:.1}")));
    row.push(rank.held_frames.to_string());
    row
}

fn stages(report: &NodeReport, style: Style) -> String {
    let cell = |seconds: Option<f64>| seconds.map_or("-".to_owned(), duration);
    let rows: Vec<Vec<String>> = report
        .stages
        .iter()
        .map(|stage| {
            vec![
                stage.stage.to_owned(),
                format!("{:.1}", stage.per_second),
                cell(stage.p50_seconds),
                cell(stage.p99_seconds),
            ]
        })
        .collect();
    table(style, &["STAGE", "PER SECOND", "P50", "P99"], &rows)
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}
