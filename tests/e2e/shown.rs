//! `show --decode` and `where` on the demo's stream: the decoded text is compared, line by line, with
//! the documents that the commands name as its sources.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use batchweave_tests::{program, seed};
use serde_json::Value;

use crate::demo::check;

/// The number of steps that are compared.
const LOOKED_AT: usize = 6;

struct Left {
    store: String,
    folder: PathBuf,
    summary: Value,
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs the demo on a folder and keeps its files.
fn left() -> Left {
    let out = Command::new(program("batchweave"))
        .args(["demo", "--store", "file", "--kills", "2", "--seed"])
        .args([&seed().to_string(), "--keep", "--json"])
        .output()
        .unwrap();
    let (text, log) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    let kept = log.lines().find_map(|line| line.strip_prefix("kept: "));
    let folder = PathBuf::from(kept.unwrap_or_else(|| panic!("{text}{log}")));
    let summary: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap();
    let left = Left {
        store: summary["store"].as_str().unwrap().to_owned(),
        folder,
        summary,
    };
    assert!(out.status.success(), "{text}{log}");
    check(&left.summary);
    left
}

impl Left {
    fn output(&self, args: &[&str]) -> Value {
        let out = Command::new(program("batchweave"))
            .args(["--store", &self.store, "--json"])
            .args(args)
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {log}");
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// Returns the steps that reclamation left, from the first to the last.
    fn steps(&self) -> Vec<u64> {
        let number = |field: &str| self.summary[field].as_u64().unwrap();
        let (from, to) = (number("steps_reclaimed"), number("steps"));
        assert!(to > from + 10, "{}", self.summary);
        let count = LOOKED_AT as u64;
        (0..count)
            .map(|n| from + n * (to - 1 - from) / (count - 1))
            .collect()
    }
}

/// Returns the text of the line of a JSONL file that begins at a byte: `FILE@BYTE`.
fn text_of(files: &mut BTreeMap<String, String>, source: &str) -> String {
    let (file, byte) = source.rsplit_once('@').unwrap();
    let text = files
        .entry(file.to_owned())
        .or_insert_with(|| std::fs::read_to_string(file).unwrap());
    let byte: usize = byte.parse().unwrap();
    assert!(byte == 0 || text.as_bytes()[byte - 1] == b'\n', "{source}");
    let line = text[byte..].lines().next().unwrap();
    let document: Value = serde_json::from_str(line).unwrap();
    document["text"].as_str().unwrap().to_owned()
}

/// Returns the place of a document without the name of its source: `FILE@BYTE (SOURCE)`.
fn place(document: &Value) -> &str {
    let place = document["source"].as_str().unwrap();
    let (place, source) = place.split_once(" (").unwrap();
    assert!(["code)", "text)"].contains(&source), "{source}");
    place
}

#[test]
fn what_the_demo_leaves_is_the_text_of_the_documents_that_show_and_where_name() {
    let left = left();
    let (mut files, mut pieces, mut begins, mut found) = (BTreeMap::new(), 0, 0, 0);
    for step in left.steps() {
        let number = step.to_string();
        let shown = left.output(&["show", &number, "--decode"]);
        for row in shown["rows"].as_array().unwrap() {
            for part in row["documents"].as_array().unwrap() {
                let source = place(part);
                let whole = text_of(&mut files, source) + "<|endoftext|>";
                let text = part["text"].as_str().unwrap();
                // A row may begin or end in the middle of a character.
                let inner = text.trim_matches('\u{fffd}');
                assert!(whole.contains(inner), "{source}: {inner:?}");
                if part["skip"] == 0 {
                    assert!(whole.starts_with(inner), "{source}: {inner:?}");
                    begins += 1;
                }
                pieces += 1;
            }
        }
        let first = &shown["rows"][0]["documents"][0];
        let (source, pass) = (place(first), &first["pass"]);
        let found_at = left.output(&["where", source]);
        let here = |one: &&Value| one["step"] == step && one["pass"] == *pass;
        let steps = found_at["found"].as_array().unwrap();
        assert_eq!(steps.iter().filter(here).count(), 1, "{source}: {found_at}");
        found += 1;
    }
    let proof = left.output(&["verify", "--job", "demo"]);
    assert_eq!(
        proof["mark"], left.summary["steps"],
        "ranks mark their end: {proof}"
    );
    eprintln!("{pieces} pieces of documents in {LOOKED_AT} steps, {begins} from their beginnings");
    assert!(pieces > 50 && begins > 10 && found == LOOKED_AT);
}
