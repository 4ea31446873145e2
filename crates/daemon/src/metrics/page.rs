//! The tables of docs/metrics.md: generated from the registered metrics, compared by tests, and checked
//! against Prometheus's naming rules.

use std::fmt::Write as _;
use std::path::Path;

use super::Described;

/// Returns a Markdown table with one line per metric.
pub fn table(metrics: &[Described]) -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in metrics {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind,
            labels.join(", "),
            metric.help
        );
    }
    text
}

/// Returns the rules, Prometheus's and ours, that a metric's name, help or labels break.
pub fn faults(metric: &Described) -> Vec<String> {
    let name = metric.name.as_str();
    let mut found = Vec::new();
    let mut fault = |broken: bool, rule: &str| {
        if broken {
            found.push(format!("{name}: {rule}"));
        }
    };
    let snake = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let total = name.ends_with("_total");
    fault(!name.starts_with("batchweave_"), "begins with batchweave_");
    fault(!snake(name), "lower case and underscores only");
    fault(
        (metric.kind == "counter") != total,
        "a counter, and nothing else, ends with _total",
    );
    let base = name.trim_end_matches("_total");
    for unit in [
        "_ms", "_millis", "_us", "_minutes", "_kb", "_mb", "_mib", "_percent",
    ] {
        fault(base.ends_with(unit), "base units: seconds, bytes, ratios");
    }
    for word in ["_seconds_", "_bytes_"] {
        fault(base.contains(word), "the unit stands last");
    }
    fault(!metric.help.ends_with('.'), "its help is a sentence");
    fault(metric.help.contains('|'), "its help would break the table");
    for label in &metric.labels {
        fault(!snake(label), "labels: lower case and underscores only");
        // Scrapers add these labels themselves and would rename ours.
        fault(
            ["job", "instance", "le"].contains(&label.as_str()),
            "a label that scrapers own",
        );
    }
    found
}

/// Compares the part of the page between `<!-- NAME -->` and `<!-- end NAME -->` with the metrics; where it
/// differs and `BATCHWEAVE_BLESS` is set, writes it. The error shows the lines that differ.
pub fn compare(page: &Path, name: &str, metrics: &[Described]) -> Result<(), String> {
    let text = std::fs::read_to_string(page).map_err(|why| format!("{}: {why}", page.display()))?;
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end {name} -->"));
    let missing = || format!("{}: no {begin} or no {end}", page.display());
    let (head, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (old, tail) = rest.split_once(&end).ok_or_else(missing)?;
    let new = table(metrics);
    if old == new {
        return Ok(());
    }
    if std::env::var_os("BATCHWEAVE_BLESS").is_some() {
        let whole = [head, &begin, &new, &end, tail].concat();
        return std::fs::write(page, whole).map_err(|why| why.to_string());
    }
    // The lines of `a` that `b` lacks, each after `sign`.
    let only = |a: &str, b: &str, sign: &str| {
        let lines = a
            .lines()
            .filter(|line| !b.lines().any(|other| other == *line));
        let marked: Vec<String> = lines.map(|line| [sign, line].join(" ")).collect();
        marked.join("\n")
    };
    Err(format!(
        "{} and the code differ; with BATCHWEAVE_BLESS=1 this test writes the page:\n{}\n{}",
        page.display(),
        only(old, &new, "-"),
        only(&new, old, "+")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, kind: &'static str, help: &str) -> Described {
        Described {
            name: name.into(),
            kind,
            labels: vec!["op".into()],
            help: help.into(),
        }
    }

    #[test]
    fn names_that_break_the_rules_are_found() {
        let good = [
            metric("batchweave_a_bytes_total", "counter", "Bytes."),
            metric("batchweave_a_seconds", "histogram", "Times."),
        ];
        for metric in good {
            assert_eq!(faults(&metric), Vec::<String>::new());
        }
        for (name, kind, help) in [
            ("a_total", "counter", "A."),
            ("batchweave_a", "counter", "A."),
            ("batchweave_a_total", "gauge", "A."),
            ("batchweave_a_ms", "gauge", "A."),
            ("batchweave_a_seconds_wait", "gauge", "A."),
            ("batchweave_A", "gauge", "A."),
            ("batchweave_a", "gauge", "No sentence"),
            ("batchweave_a", "gauge", "A | b."),
        ] {
            assert_eq!(
                faults(&metric(name, kind, help)).len(),
                1,
                "{name} {kind} {help}"
            );
        }
        let mut taken = metric("batchweave_a", "gauge", "A.");
        taken.labels = vec!["job".into()];
        assert_eq!(faults(&taken).len(), 1);
    }

    #[test]
    fn an_outdated_page_is_reported_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("metrics.md");
        let old = [metric("batchweave_old", "gauge", "Old.")];
        let text = format!("# M\n<!-- x -->\n{}<!-- end x -->\n", table(&old));
        std::fs::write(&page, text).unwrap();
        assert_eq!(compare(&page, "x", &old), Ok(()));
        let new = [metric("batchweave_new_bytes", "gauge", "New.")];
        let why = compare(&page, "x", &new).unwrap_err();
        assert!(why.contains("- | `batchweave_old` | gauge |"), "{why}");
        assert!(
            why.contains("+ | `batchweave_new_bytes` | gauge | `op` | New. |"),
            "{why}"
        );
        assert!(
            compare(&page, "y", &new)
                .unwrap_err()
                .contains("<!-- y -->")
        );
    }
}
