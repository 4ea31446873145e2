//! The text output of `batchweave status --nodes`: ranks, memory, stages; of a producer its own facts.

use std::collections::BTreeSet;

use batchweave_console::output::{Style, bytes, cells, fields, or_dash, printable, table};
use batchweave_daemon::figures::period;

use super::report::{NodeReport, RankReport};

/// The share of time above which a rank's waits count as limited by the data.
pub(super) const DATA_BOUND: f64 = 0.05;

pub(super) fn render(report: &NodeReport, style: Style) -> String {
    let (admin, state) = (&report.admin, state(report, style));
    let head = format!("{admin}  {state}: {}\n", printable(&report.doing));
    if report.ranks.is_none() {
        let facts: Vec<(&str, String)> = report
            .facts
            .iter()
            .map(|fact| (fact.name.as_str(), printable(&fact.text).into_owned()))
            .collect();
        return head + "\n" + &fields(&facts);
    }
    let arena = &report.arena;
    let [held, used, total] = [arena.held, arena.used, arena.total].map(bytes);
    let fetched = bytes(report.fetched_bytes_per_second as u64);
    let mut rows = vec![
        ("read ahead", bytes(report.ahead_bytes)),
        (
            "arena",
            format!("{held} held by ranks, {used} used, of {total}"),
        ),
        ("fetched", format!("{fetched}/s")),
    ];
    rows.extend(losses(report).map(|text| ("loss", text)));
    let rows = fields(&rows);
    let (ranks, stages) = (ranks(report, style), stages(report, style));
    format!("{head}\n{ranks}\n{rows}\n{stages}")
}

/// Returns the loss of all tokens and of each source, as ranks reported it; `None` without reports.
fn losses(report: &NodeReport) -> Option<String> {
    let all = report.losses.get("all")?;
    let by_source = report.losses.iter().filter(|(name, _)| *name != "all");
    let shown: Vec<String> = by_source
        .map(|(name, loss)| format!("source {} {loss:.3}", printable(name)))
        .collect();
    let beside = match shown.as_slice() {
        [] => String::new(),
        some => format!(" ({})", some.join(", ")),
    };
    Some(format!("{all:.3}{beside}"))
}

/// Returns the state of a daemon, a producer's with its name.
pub(super) fn state(report: &NodeReport, style: Style) -> String {
    let state = match report.state.as_str() {
        "ready" => style.green("ready"),
        "held" => style.yellow("held"),
        other => style.red(other),
    };
    if report.is_absent() || report.ranks.is_some() {
        return state;
    }
    format!("producer {}, {state}", report.name)
}

fn ranks(report: &NodeReport, style: Style) -> String {
    let ranks = report.all_ranks();
    if ranks.is_empty() {
        return "no rank is connected\n".to_owned();
    }
    let all: Vec<(&str, &RankReport)> = ranks.iter().map(|rank| ("", rank)).collect();
    let table = rank_table(&all, false, style);
    let waiting = ranks.iter().map(|r| r.waiting).fold(0.0, f64::max);
    let time = format!("{:.1} % of its time", waiting * 100.0);
    let verdict = if waiting > DATA_BOUND {
        style.yellow(&format!("the data: a rank waits {time}"))
    } else {
        format!("not the data: no rank waits more than {time}")
    };
    format!("{table}{verdict}\n")
}

/// Formats a table of ranks, each with its node; `by_node`: the node has a column.
pub(super) fn rank_table(ranks: &[(&str, &RankReport)], by_node: bool, style: Style) -> String {
    let causes: BTreeSet<&str> = ranks
        .iter()
        .flat_map(|(_, rank)| rank.causes.keys())
        .map(String::as_str)
        .collect();
    let mut header = vec!["RANK", "STEP", "STEPS/S", "WAITS %"];
    header.extend(&causes);
    header.extend(["AHEAD STEPS", "AHEAD TIME", "HELD FRAMES"]);
    let rows = ranks.iter().map(|(node, rank)| {
        let mut cells = row(rank, &causes);
        if by_node {
            cells.insert(0, (*node).to_owned());
        }
        cells
    });
    if by_node {
        header.insert(0, "NODE");
    }
    table(style, &header, rows)
}

fn row(rank: &RankReport, causes: &BTreeSet<&str>) -> Vec<String> {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let rate = format!("{:.1}", rank.steps_per_second);
    let mut row = cells![rank.dp_rank, rank.step, rate, percent(rank.waiting)];
    let shares = causes.iter().map(|cause| rank.causes.get(*cause));
    row.extend(shares.map(|share| or_dash(share.map(|share| percent(*share)))));
    let seconds = or_dash(rank.ahead_seconds.map(period));
    row.extend(cells![rank.ahead_steps, seconds, rank.held_frames]);
    row
}

fn stages(report: &NodeReport, style: Style) -> String {
    let rows = report.stages.iter().map(|stage| {
        let rate = format!("{:.1}", stage.per_second);
        let [p50, p99] = [stage.p50_seconds, stage.p99_seconds].map(|s| or_dash(s.map(duration)));
        cells![stage.stage, rate, p50, p99]
    });
    table(style, &["STAGE", "PER SECOND", "P50", "P99"], rows)
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}
