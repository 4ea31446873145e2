//! Stages as text.

use std::fmt::Write as _;

use batchweave_console::output::{Style, cells, range, table};

use super::ChangeReport;
use super::begin::ProducerBegin;
use super::show_report::ShowReport;
use crate::admin;

pub(super) fn change(report: &ChangeReport, style: Style) -> String {
    let stage = &report.stage;
    let Some(id) = report.id else {
        let text = "this request was done before, so nothing is written; `batchweave stage show` has the stages";
        return style.green(text);
    };
    let shape = format!(
        "stage {id} {:?} ({} x {} tokens per slice)",
        stage.name.as_str(),
        stage.rows_per_slice,
        stage.seq_len
    );
    let head = if report.planned {
        format!("{shape} would be set; nothing is written")
    } else {
        format!("{shape} is set, {}", admin::by_version(report.version))
    };
    let row = |p: &ProducerBegin| cells![p.producer, p.committed, p.from];
    let header = ["PRODUCER", "COMMITTED", "FROM BATCH"];
    let rows = report.producers.iter().map(row);
    let mut text = format!("{}\n{}", style.green(&head), table(style, &header, rows));
    if let Some(step) = report.earliest_step {
        let _ = write!(
            text,
            "\nSteps get their order by commits, so from step {step} at the earliest both shapes occur, until each producer has \
             reached its first batch of the stage."
        );
    }
    text
}

pub(super) fn show(report: &ShowReport, style: Style) -> String {
    let header = [
        "STAGE",
        "NAME",
        "ROWS x TOKENS",
        "FORM",
        "PRODUCER",
        "BATCHES",
    ];
    let mut rows = Vec::new();
    for stage in &report.stages {
        let name = stage
            .name
            .as_ref()
            .map_or("(stream.json)", |name| name.as_str());
        let shape = format!("{} x {}", stage.rows_per_slice, stage.seq_len);
        let form = if stage.form.is_empty() {
            "-"
        } else {
            &stage.form
        };
        if stage.producers.is_empty() {
            rows.push(cells![stage.id, name, shape, form, "-", "-"]);
        }
        for p in &stage.producers {
            let batches = match p.until {
                Some(until) => range(p.from, until),
                None => format!("{}..", p.from),
            };
            let batches = if p.begun {
                batches
            } else {
                format!("{batches} (to come)")
            };
            rows.push(cells![stage.id, name, shape, form, p.producer, batches]);
        }
    }
    table(style, &header, rows)
}
