//! The text output of `batchweave status --nodes` for several daemons: a table by node, then one by rank.

use batchweave_console::output::{Style, bytes, cells, count, or_dash, printable, table};
use batchweave_daemon::figures::period;

use super::render::{self, DATA_BOUND};
use super::report::{NodeReport, RankReport};

/// Most columns of a daemon's own words.
const DOING_COLUMNS: usize = 60;

/// Formats the reports; one alone in full.
pub(super) fn render(reports: &[NodeReport], style: Style) -> String {
    if let [only] = reports {
        return render::render(only, style);
    }
    let ready = reports.iter().filter(|node| node.ready).count() as u64;
    let mut head = format!("{}, {ready} ready", count(reports.len() as u64, "node"));
    if reports.iter().any(|node| node.ranks.is_some()) {
        head = head + "; " + &verdict(reports, style);
    }
    let rows = reports.iter().map(|node| row(node, style));
    let header = [
        "NODE",
        "RANKS",
        "STEP",
        "STEPS/S",
        "WAITS %",
        "AHEAD TIME",
        "FETCHED/S",
        "STATE",
    ];
    let mut text = format!("{head}\n\n{}", table(style, &header, rows));
    let ranks: Vec<(&str, &RankReport)> = reports
        .iter()
        .flat_map(|node| {
            let ranks = node.all_ranks().iter();
            ranks.map(|rank| (node.admin.as_str(), rank))
        })
        .collect();
    if !ranks.is_empty() {
        text = text + "\n" + &render::rank_table(&ranks, true, style);
    }
    text
}

/// Names the rank that waits most.
fn verdict(reports: &[NodeReport], style: Style) -> String {
    let ranks = reports
        .iter()
        .flat_map(|node| node.all_ranks().iter().map(move |rank| (node, rank)));
    let most = ranks.max_by(|a, b| a.1.waiting.total_cmp(&b.1.waiting));
    let Some((node, rank)) = most else {
        return "no rank is connected".to_owned();
    };
    let time = format!("{:.1} % of its time", rank.waiting * 100.0);
    if rank.waiting > DATA_BOUND {
        let (name, admin) = (&rank.dp_rank, &node.admin);
        style.yellow(&format!("the data: rank {name} of {admin} waits {time}"))
    } else {
        format!("not the data: no rank waits more than {time}")
    }
}

fn row(node: &NodeReport, style: Style) -> Vec<String> {
    let ranks = node.all_ranks();
    let (first, last) = (
        ranks.iter().map(|rank| rank.step).min(),
        ranks.iter().map(|rank| rank.step).max(),
    );
    let step = first.zip(last).map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}..{last}"),
    });
    let slowest = ranks
        .iter()
        .map(|rank| rank.steps_per_second)
        .min_by(f64::total_cmp);
    let waiting = ranks.iter().map(|rank| rank.waiting).max_by(f64::total_cmp);
    let ahead = ranks
        .iter()
        .filter_map(|rank| rank.ahead_seconds)
        .min_by(f64::total_cmp);
    let short: String = node.doing.chars().take(DOING_COLUMNS).collect();
    let dots = if short.len() < node.doing.len() {
        " ..."
    } else {
        ""
    };
    let consumer = node.ranks.is_some();
    let fetched = bytes(node.fetched_bytes_per_second as u64);
    let state = render::state(node, style);
    cells![
        node.admin,
        or_dash(consumer.then_some(ranks.len())),
        or_dash(step),
        or_dash(slowest.map(|rate| format!("{rate:.1}"))),
        or_dash(waiting.map(|share| format!("{:.1}", share * 100.0))),
        or_dash(ahead.map(period)),
        or_dash(consumer.then_some(fetched)),
        format!("{state}: {}{dots}", printable(&short)),
    ]
}
