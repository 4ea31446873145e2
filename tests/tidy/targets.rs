//! `test = false` and `doctest = false` hide no test: cargo then starts no program for nothing.

use serde_json::Value;

use crate::files::sources;
use crate::metadata::{list, load, members, text};
use crate::{assert_none, root};

/// Words after the fence of a block of another language in a doc comment.
const OTHER: [&str; 4] = ["text", "json", "toml", "sh"];

fn has_test(source: &str) -> bool {
    let starts = ["#[test]", "#[tokio::test", "proptest! {"];
    let mut lines = source.lines().map(str::trim_start);
    lines.any(|line| starts.iter().any(|start| line.starts_with(start)))
}

fn has_example(source: &str) -> bool {
    let mut open = false;
    source.lines().any(|line| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let fence = comment.and_then(|words| words.trim().strip_prefix("```"));
        open ^= fence.is_some();
        open && fence.is_some_and(|word| !OTHER.contains(&word))
    })
}

/// Names the files that belong to this target and hold what is never run.
fn hidden(target: &Value, all: &[(String, String)]) -> Vec<String> {
    let root = format!("{}/", root().display());
    let path = text(target, "src_path").replace(&root, "");
    let folder = path.trim_end_matches("lib.rs");
    let library = list(target, "kind").any(|kind| kind == "lib");
    let of_target = |name: &str| name == path || (library && name.starts_with(folder));
    let files = all.iter().filter(|(name, _)| of_target(name));
    let (tests, examples) = (target["test"] == true, target["doctest"] == true);
    files
        .filter(|(_, source)| {
            !tests && has_test(source) || library && !examples && has_example(source)
        })
        .map(|(name, _)| name.clone())
        .collect()
}

#[test]
fn no_test_is_left_out() {
    let (all, metadata) = (sources(&["rs"]), load());
    let targets = members(&metadata).flat_map(|package| list(package, "targets"));
    let findings: Vec<_> = targets.flat_map(|target| hidden(target, &all)).collect();
    assert_none(
        "a test or an example in a target with `test = false` or `doctest = false`",
        &findings,
    );
}

#[test]
fn tests_and_examples_are_recognized() {
    assert!(has_test("mod tests {\n    #[test]\n    fn a() {}\n}"));
    assert!(!has_test("// #[test] is written above\nfn a() {}"));
    assert!(has_example("/// ```no_run\n/// a();\n/// ```"));
    assert!(!has_example("//! ```text\n//! a\n//! ```"));
}
