//! The report of `batchweave-producer --survey`, which `batchweave quickstart` reads: the files below a path by their
//! format, and some of their documents.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first word of the producer's command line that prints a survey. The path follows, then the folder in which the
/// stream's files will lie, then paths that are left out.
pub const SURVEY: &str = "--survey";

/// The files below a path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// The files that a producer can read, by format.
    pub groups: Vec<FileGroup>,
    /// The files that it cannot read, by reason.
    pub unread: Vec<Unread>,
    /// Names of files and folders that are left out, by reason.
    pub left_out: Vec<Unread>,
}

/// Files of one format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileGroup {
    /// The value of `source.format`.
    pub format: String,
    /// The format for people.
    pub words: String,
    pub files: u64,
    /// Whether the files are texts that people write, by their endings.
    pub prose: bool,
    /// The bytes of all files as they are stored.
    pub bytes: u64,
    /// The bytes of the largest file.
    pub largest: u64,
    /// The name of the first file.
    pub first: String,
    /// The endings of the names, as `.jsonl.gz`; empty of a name without a dot.
    pub endings: Vec<String>,
    /// The value of `source.paths` that names these files and no others; empty where it would be too long.
    pub paths: Vec<String>,
    /// Some documents: objects of fields, texts, or nothing where a file is one array.
    pub documents: Vec<Value>,
    /// The estimated number of documents in all files.
    pub estimated: f64,
    /// The reason why the first bad document could not be read.
    pub fault: Option<String>,
}

/// Files that are not read, for one reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Unread {
    pub files: u64,
    pub first: String,
    pub why: String,
}
