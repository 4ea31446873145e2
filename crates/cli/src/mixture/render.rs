//! Mixtures as text.

use std::fmt::Write as _;

use super::ChangeReport;
use super::change::ProducerChange;
use super::show_report::{MixtureShown, ShowReport, SourceShown};
use crate::admin;
use batchweave_console::output::{Style, cells, count, joined, or_dash, range, table};

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(super) fn change(report: &ChangeReport, style: Style) -> String {
    let (Some(id), Some(change)) = (report.id, &report.change) else {
        let text = "this request was done before, so nothing is written; `batchweave mixture show` has the mixtures";
        return style.green(text);
    };
    let head = if report.planned {
        format!("mixture {id} would be set; nothing is written")
    } else {
        format!("mixture {id} is set, {}", admin::by_version(report.version))
    };
    let row = |p: &ProducerChange| {
        let share = |s: &super::change::SourceChange| {
            format!("{} {} to {}", s.source, percent(s.before), percent(s.after))
        };
        let shares = joined(p.sources.iter().map(share), "-");
        cells![p.producer, p.committed, p.from, shares]
    };
    let header = ["PRODUCER", "COMMITTED", "FROM BATCH", "SHARES"];
    let rows = change.producers.iter().map(row);
    let mut text = format!("{}\n{}", style.green(&head), table(style, &header, rows));
    for (producer, why) in &change.unchanged {
        let _ = write!(text, "\n{producer} does not change: {why}");
    }
    text
}

pub(super) fn show(report: &ShowReport, style: Style) -> String {
    if report.mixtures.is_empty() {
        return "no producer of this stream has several sources".to_owned();
    }
    let header = [
        "PRODUCER", "MIXTURE", "BATCHES", "WANTED", "TAKEN", "GIVEN", "IN STEPS",
    ];
    let (first, end) = report.steps;
    let mut text = table(style, &header, report.mixtures.iter().map(cells_of));
    let _ = write!(
        text,
        "\nTAKEN counts since the mixture is in force, up to the producer's last commit, as `batchweave status` does; GIVEN the \
         steps {}; --steps N counts more. Mixture 0 is each producer's configuration.",
        range(first, end)
    );
    if report.without_provenance > 0 {
        let steps = count(report.without_provenance, "step");
        let _ = write!(
            text,
            "\n{steps} of them have no provenance (packing.provenance)"
        );
    }
    text
}

fn cells_of(m: &MixtureShown) -> Vec<String> {
    let wanted = |s: &SourceShown| {
        let share = s.wanted.map_or("?".to_owned(), percent);
        format!("{} {share}", s.source)
    };
    let taken = |s: &SourceShown| Some(format!("{} {}", s.source, percent(s.taken_share?)));
    let given = |s: &SourceShown| Some(format!("{} {}", s.source, percent(s.given?)));
    let batches = match m.until {
        Some(until) => range(m.from, until),
        None => format!("{}..", m.from),
    };
    let batches = if m.begun {
        batches
    } else {
        format!("{batches} (to come)")
    };
    let counted = m.counted.map(|(first, last)| range(first, last + 1));
    cells![
        m.producer,
        m.id,
        batches,
        joined(m.sources.iter().map(wanted), "-"),
        joined(m.sources.iter().filter_map(taken), "-"),
        joined(m.sources.iter().filter_map(given), "-"),
        or_dash(counted)
    ]
}
