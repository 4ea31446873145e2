//! Relative links point to files that are there, and to headings in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{lines, pages};
use crate::{assert_none, root};

#[test]
fn links_lead_somewhere() {
    let mut findings = Vec::new();
    let mut count = 0;
    for page in pages() {
        for (number, target) in targets(&page.text) {
            count += 1;
            if let Some(why) = broken(&page.name, &target) {
                findings.push(format!("{}:{number}: {target}: {why}", page.name));
            }
        }
    }
    assert!(
        count > 20,
        "only {count} links were found: the search is broken"
    );
    assert_none("links that lead nowhere", &findings);
}

/// The targets of a page's links, code and other hosts apart.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for line in lines(text).iter().filter(|l| l.block.is_none()) {
        // Every second piece between backticks is code.
        let prose: String = line
            .text
            .split('`')
            .step_by(2)
            .collect::<Vec<_>>()
            .join("x");
        for rest in prose.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((line.number, target.to_owned()));
            }
        }
    }
    found
}

fn broken(page: &str, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let file = if path.is_empty() {
        root().join(page)
    } else {
        root().join(folder).join(path)
    };
    if !file.exists() {
        return Some("there is no such file".to_owned());
    }
    if anchor.is_empty() {
        return None;
    }
    let Ok(text) = fs::read_to_string(&file) else {
        return Some("an anchor in what is not a text".to_owned());
    };
    let known = anchors(&text);
    (!known.iter().any(|k| k == anchor))
        .then(|| format!("there is no such heading; known: {}", known.join(" ")))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = lines(text)
        .into_iter()
        .filter(|l| l.block.is_none())
        .filter_map(|l| {
            l.text
                .trim_start_matches('#')
                .strip_prefix(' ')
                .filter(|_| l.text.starts_with('#'))
        });
    headings
        .map(|heading| {
            let kept = heading.trim().to_lowercase();
            let slug: String = kept
                .chars()
                .filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            let times = seen.entry(slug.clone()).or_default();
            *times += 1;
            if *times == 1 {
                slug
            } else {
                format!("{slug}-{}", *times - 1)
            }
        })
        .collect()
}

#[test]
fn anchors_match_github() {
    let text = "# A `b.c`\n## Jobs: progress, marks\n```sh\n# no heading\n```\n## Jobs: progress, marks\n#none\n";
    assert_eq!(
        anchors(text),
        ["a-bc", "jobs-progress-marks", "jobs-progress-marks-1"]
    );
}

#[test]
fn broken_links_are_found() {
    let text = "[a](x.md) and [b](https://x.org/) `[c](y.md)`\n\n    [d](z.md)\n\n[e](#f) [g](README.md#no)";
    let found: Vec<_> = targets(text)
        .into_iter()
        .map(|(_, target)| target)
        .collect();
    assert_eq!(found, ["x.md", "#f", "README.md#no"]);
    for target in &found {
        assert!(broken("README.md", target).is_some(), "{target}");
    }
    assert_eq!(
        broken("docs/architecture.md", "format.md#data-objects"),
        None
    );
}
