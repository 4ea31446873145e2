//! Errors of the input as a whole, which may not be skipped, and names as messages show them.

use std::borrow::Cow;
use std::io;

use batchweave_store::StoreError;

/// Returns a name with its control characters escaped, since a message is one line.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    let control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !name.contains(control) {
        return Cow::Borrowed(name);
    }
    let mut out = String::new();
    for c in name.chars() {
        if control(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The reason why the input as a whole cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A path or pattern matches no file.
    #[error(
        "source.paths: {} matches no file; correct the path, or create the files first{}",
        shown(path),
        brackets(path)
    )]
    NoMatch { path: String },
    /// All files of a path are left out by their names.
    #[error(
        "source.paths: {} holds nothing to read: its {number} files are left out, first {}, since names that begin with _ \
         or ., README, LICENSE, dataset_info.json and digests are not read; name a file to read it",
        shown(path),
        shown(first)
    )]
    OnlyLeftOut {
        path: String,
        first: String,
        number: usize,
    },
    /// Names of files are not UTF-8.
    #[error(
        "source.paths: {number} file names are not UTF-8, first {first}; rename them, as `convmv` does, or leave them out"
    )]
    NotUtf8 { first: String, number: usize },
    /// `source.format = "auto"` has no reader for files of these names.
    #[error(
        "source.paths: source.format = \"auto\" does not read {}{}: {why}", shown(first), more(*number)
    )]
    NoReader {
        first: String,
        number: usize,
        why: &'static str,
    },
    /// `source.format = "auto"` takes files for text, which has no such key.
    #[error(
        "source.paths: source.format = \"auto\" takes {}{} for text by the name, and {key} is set, which text has not; set \
         source.format, for example to \"jsonl\", or narrow source.paths", shown(first), more(*number)
    )]
    KeyOfText {
        first: String,
        number: usize,
        key: &'static str,
    },
    /// A file is text by its name, and something else by its content.
    #[error(
        "{}: source.format = \"auto\" takes it for one text by its name, and it {found}; set source.format to \"{proposal}\", \
         or to \"text\" if it is meant as it is",
        shown(file)
    )]
    NotAsNamed {
        file: String,
        found: &'static str,
        proposal: &'static str,
    },
    /// A pattern is invalid.
    #[error("source.paths: {path} is not a valid pattern: {detail}")]
    Pattern { path: String, detail: String },
    /// A file or folder cannot be read.
    #[error(
        "{}: can't be read: {why}; check that it exists and that this user may read it",
        shown(file)
    )]
    Unreadable { file: String, why: io::Error },
    /// The root of the files that documents name cannot be used.
    #[error(
        "source.root: {root} can't be used: {why}; name a folder that this user may read, or s3://bucket/prefix"
    )]
    Root { root: String, why: io::Error },
    /// A file is not one of a pair that Megatron-LM writes.
    #[error(
        "{file}: {detail}; name both files of each pair in source.paths, as \"data/*.bin\" and \"data/*.idx\""
    )]
    Megatron { file: String, detail: String },
    /// The content of an inbox contradicts its rules.
    #[error("{folder}: {why}")]
    Inbox { folder: String, why: String },
    /// A file belongs to two sources.
    #[error(
        "{} is in the sources {} and {}: a document would count for both; narrow the paths of one of them",
        shown(file), .sources[0], .sources[1]
    )]
    InTwoSources { file: String, sources: [String; 2] },
    /// The store of an s3:// input failed.
    #[error("input {0}")]
    Store(StoreError),
    /// The input differs from what the cursor was made from.
    #[error(
        "the input is not what it was when the cursor was saved, so the same batches can't be made again:\n  {}\n\
         restore these files, or start a new producer name for the new input",
        .differences.join("\n  ")
    )]
    Changed {
        /// One line per file.
        differences: Vec<String>,
    },
    /// The stored list of input files is missing or damaged.
    #[error(
        "the stored list of this producer's input files can't be read: {0}; restore the object from a bucket version or \
         backup, or start a new producer name"
    )]
    List(String),
    /// A whole pass over the input gave no document, and the passes are endless.
    #[error(
        "a whole pass over the input gave no document, and epochs = 0 never ends; check source.paths and source.on_bad_document"
    )]
    Barren,
}

impl SourceError {
    pub(super) fn unreadable(file: &str, why: io::Error) -> Self {
        Self::Unreadable {
            file: file.to_owned(),
            why,
        }
    }
}

/// Returns how many files there are beside the first.
fn more(number: usize) -> String {
    match number {
        0 | 1 => String::new(),
        number => format!(" (and {} more)", number - 1),
    }
}

/// Returns a hint for a path whose brackets are a pattern.
fn brackets(path: &str) -> &'static str {
    if path.contains('[') {
        " (in a pattern, a bracket that is part of a name is written [[])"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_on_its_line() {
        assert_eq!(shown("a b+ä.jsonl"), "a b+ä.jsonl");
        assert_eq!(shown("a\nb\u{1b}[0m\u{2028}"), "a\\nb\\u{1b}[0m\\u{2028}");
        let path = "d/a[1].jsonl\n".to_owned();
        let why = SourceError::NoMatch { path }.to_string();
        assert!(why.contains("[[]") && !why.contains('\n'), "{why}");
    }
}
