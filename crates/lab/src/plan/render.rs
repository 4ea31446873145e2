//! The text output of a plan, and its explanation.

use std::fmt::Write as _;

use super::PlanReport;
use super::estimate::{LINGER_S, OBJECT_BYTES, READ_BYTES, READS_PER_RECORD, STEPS_PER_PROGRESS};
use super::limits::{READS_AT_ONCE, REQUEST_BYTES_PER_SECOND, UPLOADS_AT_ONCE};
use super::simulated::Requests;
use batchweave_console::output::{Style, bytes, count, fields, table};

pub(super) fn text(plan: &PlanReport, style: Style) -> String {
    let (load, e) = (&plan.load, &plan.estimate);
    let per_day = e.tokens_per_second * 86_400.0;
    let rows = [
        (
            "load",
            format!(
                "{} of {} batches/s of {}, {} on {}",
                count(u64::from(load.producers), "producer"),
                number(load.rate),
                bytes(load.tgb_bytes),
                count(u64::from(load.nodes), "node"),
                plan.store.name(),
            ),
        ),
        (
            "stream",
            format!(
                "{} steps/s, {}/s, {} tokens/s, {} tokens per day",
                number(e.steps_per_second),
                bytes(e.bytes_per_second as u64),
                large(e.tokens_per_second),
                large(per_day),
            ),
        ),
        (
            "commit",
            format!(
                "{} p50, {} p99 from uploaded to visible ({})",
                time(e.commit_latency_ms.p50),
                time(e.commit_latency_ms.p99),
                plan.source,
            ),
        ),
        (
            "log",
            format!(
                "{} records/s; entries per record: {}; batches per entry: {}",
                number(e.records_per_second),
                number(e.entries_per_second / e.records_per_second),
                number(e.tgbs_per_entry),
            ),
        ),
        (
            "network",
            format!(
                "{} Gbit/s up a producer, {} Gbit/s down a node",
                number(e.producer_bytes_per_second * 8e-9),
                number(e.node_bytes_per_second * 8e-9),
            ),
        ),
    ];
    let mut text = fields(&rows);
    let _ = write!(text, "\n{}", requests(plan, style));
    let _ = write!(text, "\n{}", money(plan));
    let _ = write!(text, "\n{}", limits(plan, style));
    for note in &plan.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn requests(plan: &PlanReport, style: Style) -> String {
    let (requests, dollars) = (
        &plan.estimate.requests_per_second,
        &plan.estimate.dollars_per_day,
    );
    let row = |name: &str, r: Requests, dollars: f64| {
        let kinds = [r.put, r.get, r.list, r.delete].map(number);
        [name.to_owned()]
            .into_iter()
            .chain(kinds)
            .chain([cents(dollars)])
            .collect()
    };
    let sum = dollars.commits + dollars.uploads + dollars.consumers;
    let rows: Vec<Vec<String>> = vec![
        row("commits", requests.commits, dollars.commits),
        row("uploads", requests.uploads, dollars.uploads),
        row("consumers", requests.consumers, dollars.consumers),
        row("all", requests.total(), sum),
    ];
    let header = ["REQUESTS/S", "PUT", "GET", "LIST", "DELETE", "$ PER DAY"];
    table(style, &header, rows)
}

fn money(plan: &PlanReport) -> String {
    let e = &plan.estimate;
    let mut parts = vec![format!(
        "${} per day, ${} per trillion tokens",
        cents(e.total_dollars_per_day),
        cents(e.dollars_per_trillion_tokens)
    )];
    if e.transfer_dollars_per_day > 0.0 {
        parts.push(format!(
            "${} of it for bytes moved",
            cents(e.transfer_dollars_per_day)
        ));
    }
    parts.push(match (e.storage_dollars_per_day, plan.load.keep_days) {
        (Some(storage), Some(days)) => {
            format!(
                "${} of it to keep {} days of data",
                cents(storage),
                number(days)
            )
        }
        _ => "storage not counted (--keep-days)".to_owned(),
    });
    format!(
        "cost  {} ({} of {})\n",
        parts.join(", "),
        plan.prices.currency,
        plan.prices.date
    )
}

fn limits(plan: &PlanReport, style: Style) -> String {
    let rows: Vec<Vec<String>> = plan
        .limits
        .iter()
        .map(|limit| {
            vec![
                limit.name.to_owned(),
                format!("{:.1}%", limit.share * 100.0),
                format!(
                    "{} of {} {}",
                    large(limit.used),
                    large(limit.most),
                    limit.unit
                ),
                format!("at {} times this load", number(1.0 / limit.share)),
            ]
        })
        .collect();
    let mut text = table(style, &["LIMIT", "USED", "", "REACHED"], rows);
    if let Some(first) = plan.limits.first() {
        let word = if first.share >= 1.0 {
            style.red(&format!("{} is exceeded", first.name))
        } else {
            format!("{} comes first", first.name)
        };
        let _ = writeln!(text, "{word}: {}", first.remedy);
    }
    text
}

/// Lists the formulas in the order in which they are used.
pub(super) fn explanation(plan: &PlanReport, style: Style) -> String {
    let e = &plan.estimate;
    let r = e.requests_per_entry;
    let lines = [
        format!(
            "latency and requests per entry come from a table ({}), with straight lines over the logarithm of the number of producers between its rows",
            plan.source
        ),
        format!(
            "here: {} PUT, {} GET, {} LIST, {} DELETE per entry, including announcements, lost races and catching up",
            number(r.put), number(r.get), number(r.list), number(r.delete)
        ),
        format!(
            "entries/s = producers x min(rate, 1 / max({LINGER_S} s, p50)): batches finished while a commit is under way go into the next one"
        ),
        format!(
            "records/s = min(entries/s, {}): beyond that a leader writes one record per round for all waiting producers",
            number(plan.store.records_per_second())
        ),
        format!(
            "uploads: entries/s x ceil(batches per entry x bytes / {}) PUT",
            bytes(OBJECT_BYTES as u64)
        ),
        format!(
            "consumers: nodes x (steps/s x ceil(bytes / nodes / {}) + {READS_PER_RECORD} x records/s) GET, since each node reads its share of each step and follows the log; nodes x steps/s / {STEPS_PER_PROGRESS} PUT of progress",
            bytes(READ_BYTES as u64)
        ),
        "each slice is read by one node; ranks that share slices over several nodes multiply the reads".to_owned(),
        format!(
            "cost: requests by the list of {} ({}); per trillion tokens = dollars per day / tokens per day x 10^12",
            plan.prices.date, plan.prices.source
        ),
        format!(
            "limits: {} writes/s and {} reads/s, the whole root taken as one prefix; a request moves {} MB/s, of which a node has {READS_AT_ONCE} in flight and a producer {UPLOADS_AT_ONCE}; the speed of network cards is not known here",
            large(plan.store.writes_per_second()),
            large(plan.store.reads_per_second()),
            REQUEST_BYTES_PER_SECOND / 1e6
        ),
    ];
    let mut text = format!("\n{}\n", style.bold("how this was computed"));
    for line in lines {
        let _ = writeln!(text, "  - {line}");
    }
    text
}

/// Formats three significant digits.
fn number(value: f64) -> String {
    match value {
        v if v >= 99.95 || v.fract() < 1e-9 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.01 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

fn cents(dollars: f64) -> String {
    format!("{dollars:.2}")
}

/// Formats a large number with a unit, as 16.8M.
fn large(value: f64) -> String {
    let units = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    match units.into_iter().find(|(size, _)| value >= *size) {
        Some((1e4, unit)) => format!("{}{unit}", number(value / 1e3)),
        Some((size, unit)) => format!("{}{unit}", number(value / size)),
        None => number(value),
    }
}

fn time(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{} s", number(ms / 1000.0))
    } else {
        format!("{ms:.0} ms")
    }
}
