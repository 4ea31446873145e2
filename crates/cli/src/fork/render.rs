//! The text output of `batchweave fork`.

use batchweave_console::output::{Style, count, fields, joined, table};

use super::ForkReport;

pub(super) fn text(report: &ForkReport, style: Style) -> String {
    let head = match report.outcome {
        "created" => style.green("fork created"),
        "existed" => style.green("the same fork was there"),
        _ => "nothing was written; without --dry-run this fork is made".to_owned(),
    };
    let mut rows = vec![("root", report.root.clone())];
    rows.extend(report.stream.map(|id| ("stream", id.to_string())));
    let version = report.version;
    let behind = version.map_or("its beginning".to_owned(), |v| format!("version {v}"));
    rows.push((
        "parent",
        format!("{} (stream {})", report.parent, report.parent_stream),
    ));
    rows.push((
        "begins",
        format!(
            "with step {}, behind {behind}; the parent has {}",
            report.step,
            count(report.head, "step")
        ),
    ));
    rows.push(("mixture", mixture(report)));
    if !report.stages.is_empty() {
        rows.push(("stages", joined(&report.stages, "")));
    }
    if !report.fresh {
        rows.push(("input", report.inputs.text()));
    }
    rows.push(("left", left(report)));
    let mut text = format!("{head}\n{}", fields(&rows));
    if report.fresh {
        text.push_str("producers begin their input anew\n");
    } else if !report.producers.is_empty() {
        let header = ["producer", "next batch", "made again", "files"];
        let rows = report.producers.iter().map(|p| {
            let numbers = [p.next, p.made_again, p.files as u64];
            let mut cells = vec![p.producer.to_string()];
            cells.extend(numbers.map(|number| number.to_string()));
            cells
        });
        text.push_str(&table(style, &header, rows));
    }
    for warning in &report.warnings {
        text.push_str(&style.yellow(&format!("\nwarning: {warning}")));
    }
    text
}

fn mixture(report: &ForkReport) -> String {
    match report.mixture {
        0 => "that of the configuration".to_owned(),
        id => format!("{id}, and those before it"),
    }
}

/// Lists the parts of the parent that the fork does not have.
fn left(report: &ForkReport) -> String {
    let left = &report.left_behind;
    let mut parts = Vec::new();
    if !left.mixtures.is_empty() {
        parts.push(format!("later mixtures {}", joined(&left.mixtures, "")));
    }
    if !left.stages.is_empty() {
        parts.push(format!("later stages {}", joined(&left.stages, "")));
    }
    if !left.finished.is_empty() {
        parts.push(format!("the finish of {}", joined(&left.finished, "")));
    }
    if !left.quarantines.is_empty() {
        let ranges = left
            .quarantines
            .iter()
            .map(|(first, last)| format!("{first}-{last}"));
        parts.push(format!("quarantined steps {}", joined(ranges, "")));
    }
    if left.sealed {
        parts.push("the seal".to_owned());
    }
    if left.jobs > 0 {
        parts.push(count(left.jobs as u64, "job"));
    }
    joined(parts, "nothing")
}
