//! The result as text.

use std::fmt::Write as _;

use batchweave_console::output::{Style, cells, count, joined, printable, range, table};

use super::table::{DetailLoss, SourceLoss, StepLoss, Table};
use super::{By, LossesReport};

/// Lines of a run's steps: more are joined into ranges.
const LINES: usize = 20;
/// Documents of a row that are named.
const NAMED: usize = 3;

pub(super) fn text(report: &LossesReport, style: Style) -> String {
    let (job, steps) = (&report.job, range(report.from, report.to));
    let mut text = format!(
        "losses of job {job} in {}, steps {steps}, as its ranks reported them\n",
        report.root
    );
    let lines = match &report.losses {
        Table::Steps(all) => of_steps(all, style),
        Table::Sources(all) => of_sources(all, style),
        Table::Details(all) => of_details(all, report.by, style),
        Table::Written(file, lines) => {
            format!(
                "{} written to {}\n",
                count(*lines as u64, "line"),
                file.display()
            )
        }
    };
    text += &lines;
    let lacking = report.read.saturating_sub(report.with_losses);
    for (n, what) in [
        (
            lacking,
            "have no loss of some coordinate: it was not reported, or lost before it was stored",
        ),
        (
            report.cut,
            "lack rows, documents or sources, for which ranks had no room",
        ),
    ] {
        if n > 0 {
            let _ = writeln!(
                text,
                "{}",
                style.yellow(&format!("{} {what}", count(n, "step")))
            );
        }
    }
    if report.nonfinite > 0 {
        let nonfinite = count(report.nonfinite, "token");
        let line = format!("{nonfinite} had a NaN or infinite loss, which is in no mean");
        let _ = writeln!(text, "{}", style.yellow(&line));
    }
    if report.unjoined > 0 {
        let unjoined = count(report.unjoined, "loss");
        let line = format!(
            "{unjoined} could not be joined with input files: no provenance (packing.provenance), reclaimed, or another number \
             of documents"
        );
        let _ = writeln!(text, "{}", style.yellow(&line));
    }
    text
}

fn shown(loss: Option<f64>) -> String {
    loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.4}"))
}

fn whole(tokens: f64) -> String {
    format!("{tokens:.0}")
}

/// Shows steps, or ranges of them where there are many.
fn of_steps(all: &[StepLoss], style: Style) -> String {
    let in_order = all.windows(2).all(|pair| pair[0].step < pair[1].step);
    let each = if in_order {
        all.len().div_ceil(LINES).max(1)
    } else {
        1
    };
    let line = |some: &[StepLoss]| {
        let tokens: f64 = some.iter().map(|one| one.tokens).sum();
        let sums = some.iter().filter_map(|one| Some(one.loss? * one.tokens));
        let loss = (tokens > 0.0).then(|| sums.sum::<f64>() / tokens);
        let highest = some.iter().filter_map(|one| one.loss).reduce(f64::max);
        let (first, last) = (some[0].step, some[some.len() - 1].step);
        let steps = range(first, last + 1);
        cells![steps, shown(loss), shown(highest), whole(tokens)]
    };
    let header = ["STEPS", "LOSS", "HIGHEST", "TOKENS"];
    table(style, &header, all.chunks(each).map(line))
}

fn of_sources(all: &[SourceLoss], style: Style) -> String {
    let tokens: f64 = all.iter().map(|one| one.tokens).sum();
    let line = |one: &SourceLoss| {
        let name = one.source.as_deref().unwrap_or("-");
        let share = if tokens > 0.0 {
            one.tokens / tokens
        } else {
            0.0
        };
        let share = format!("{:.1} %", 100.0 * share);
        cells![
            one.number,
            printable(name),
            shown(one.loss),
            whole(one.tokens),
            share,
            one.steps
        ]
    };
    let header = ["NUMBER", "SOURCE", "LOSS", "TOKENS", "SHARE", "STEPS"];
    table(style, &header, all.iter().map(line))
}

fn of_details(all: &[DetailLoss], by: By, style: Style) -> String {
    let line = |one: &DetailLoss| {
        let named = one.documents.iter().take(NAMED).map(|name| printable(name));
        let mut documents = joined(named, "-");
        if one.documents.len() > NAMED {
            let _ = write!(documents, " and {} more", one.documents.len() - NAMED);
        }
        if let Some(first) = one.first_token.filter(|first| *first > 0) {
            let _ = write!(documents, ", from token {first} on");
        }
        let loss = shown(Some(one.loss));
        cells![
            loss,
            one.step,
            one.slice,
            one.row,
            whole(one.tokens),
            documents
        ]
    };
    let what = if by == By::Row {
        "DOCUMENTS"
    } else {
        "DOCUMENT"
    };
    let header = ["LOSS", "STEP", "SLICE", "ROW", "TOKENS", what];
    let mut text = table(style, &header, all.iter().map(line));
    if all.iter().any(|one| one.of_row) {
        text +=
            "the loss of each document is that of its row: losses of documents were not reported\n";
    }
    for one in all {
        if let Some(words) = &one.text {
            let name = one.documents.first().map_or("a row", String::as_str);
            let _ = writeln!(text, "--- step {}, {}\n{words}", one.step, printable(name));
        }
    }
    text
}
