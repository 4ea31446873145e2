//! Each command that a message prints is one that the command line takes, with all that it demands.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::Cli;

/// Texts that only name a verb.
const NAMES: [&str; 3] = ["batchweave run", "batchweave init", "batchweave inbox ls"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap_or_default();
        if path.is_dir() {
            if name != "tests" && name != "target" {
                sources(&path, found);
            }
        } else if path
            .extension()
            .is_some_and(|end| end == "rs" || end == "py")
        {
            let tests = name.contains("tests") || name.starts_with("test_");
            found.extend((!tests).then_some(path));
        }
    }
}

/// Returns the commands in backticks of the string literals in `text`.
fn commands(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let lines = code.lines().map(str::trim).filter(|line| {
        let comment = ["//", "#", "\"\"\""];
        !comment.iter().any(|sign| line.starts_with(sign))
    });
    // A literal that goes on in the next line: by a backslash in Rust, as another literal in Python.
    let joined = lines
        .collect::<Vec<_>>()
        .join("\n")
        .replace("\\\n", "")
        .replace("\"\nf\"", "")
        .replace("\"\n\"", "");
    let mut parts = joined.split("`batchweave ").skip(1);
    let mut found = Vec::new();
    for part in parts.by_ref() {
        let command = part.split('`').next().unwrap_or_default();
        if !command.contains('\n') && command.len() < 200 {
            found.push(format!("batchweave {}", command.trim()));
        }
    }
    found
}

/// Puts values in place of those that a message formats, and of words in capitals.
fn filled(command: &str) -> Vec<OsString> {
    let mut text = String::new();
    let mut depth = 0;
    for c in command.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                text.push('7');
            }
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    let words = text
        .split_whitespace()
        .filter(|word| *word != "...")
        .map(|word| match word {
            "STEP" | "N" => "7",
            "NAME" => "llm",
            "SOURCE=WEIGHT" => "web=1",
            "FIRST..LAST" => "7..7",
            word => word,
        });
    words.map(OsString::from).collect()
}

#[test]
fn commands_in_messages_are_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in fs::read_dir(root.join("crates")).unwrap().flatten() {
        sources(&folder.path().join("src"), &mut files);
    }
    sources(&root.join("python/src"), &mut files);
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        for command in commands(&fs::read_to_string(&file).unwrap()) {
            count += 1;
            // A verb that the program fills in, or is asked for.
            let open = ["batchweave {", "batchweave VERB"]
                .iter()
                .any(|begin| command.starts_with(begin));
            if open || NAMES.contains(&command.as_str()) {
                continue;
            }
            let parsed = Cli::parse_args(filled(&command));
            if let Some(why) = parsed
                .err()
                .filter(|why| why.kind() != ErrorKind::DisplayHelp)
            {
                let why = why.to_string();
                let first = why.lines().next().unwrap_or_default();
                wrong.push(format!("{}: {command}: {first}", file.display()));
            }
        }
    }
    assert!(
        count > 30,
        "only {count} commands were found: the search is broken"
    );
    assert_eq!(wrong, Vec::<String>::new());
}
