//! What can be wrong with the input: with one document (it may be skipped), or with the input as a
//! whole (it may not).

use std::fmt;
use std::io;

use batchweave_store::StoreError;

use super::find::Format;

/// Why a unit is no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Not JSON.
    #[error("broken JSON at column {column}: {detail}; write one JSON object a line")]
    BrokenJson {
        /// From 1.
        column: usize,
        /// The parser's words.
        detail: String,
    },
    /// JSON, but no object.
    #[error("the line is {found}, not a JSON object; write {{\"{field}\": \"...\"}}")]
    NotAnObject {
        /// The field wanted.
        field: String,
        /// What there is.
        found: &'static str,
    },
    /// The object has no such field.
    #[error("no field \"{field}\"; add it, or name the right one in source.field")]
    MissingField {
        /// The field wanted.
        field: String,
    },
    /// The field is not a string.
    #[error(
        "field \"{field}\" is {found}, not a string; quote it, or name the right one in source.field"
    )]
    NotAString {
        /// The field wanted.
        field: String,
        /// What there is.
        found: &'static str,
    },
    /// The bytes are not UTF-8.
    #[error("invalid UTF-8 at byte {at} of the document; convert the file to UTF-8")]
    InvalidUtf8 {
        /// Offset in the unit.
        at: usize,
    },
    /// The text has no characters.
    #[error("the document is empty; leave such documents out")]
    Empty,
    /// Longer than `source.max_document_bytes`.
    #[error(
        "the document is longer than {limit} bytes; split it, or raise source.max_document_bytes"
    )]
    TooLong {
        /// The limit.
        limit: u64,
    },
    /// Compressed data that ends early or is damaged; nothing after this place can be read.
    #[error("the {codec} data ends early or is damaged here ({detail}); copy the file again")]
    Damaged {
        /// `gzip` or `zstd`.
        codec: &'static str,
        /// The decoder's words.
        detail: String,
    },
    /// The Parquet file lacks the column.
    #[error(
        "no column \"{column}\" in this Parquet file, which has {columns}; name the right one in source.column"
    )]
    NoColumn {
        /// The column wanted.
        column: String,
        /// The columns there are.
        columns: String,
    },
    /// The Parquet column is not text.
    #[error("column \"{column}\" is {found}, not a string; name a text column in source.column")]
    ColumnType {
        /// The column wanted.
        column: String,
        /// Its type.
        found: String,
    },
    /// An array that is not as configured.
    #[error("array \"{name}\" {detail}; mend the data, or packing.arrays")]
    Array {
        /// As configured.
        name: String,
        /// What is there.
        detail: String,
    },
    /// No fault of the document: nothing can render it.
    #[error("the process that renders conversations can't be used: {why}")]
    NoRenderer {
        /// The system's words.
        why: String,
    },
    /// A conversation that the template does not take.
    #[error("the conversation {detail}; mend it, or chat.template")]
    Chat {
        /// What is wrong.
        detail: String,
    },
    /// A conversation outside JSON.
    #[error(
        "packing.mode = \"chat\" takes conversations from JSONL files; name such files in source.paths"
    )]
    NotConversations,
    /// An array where a text is wanted.
    #[error("a .npy file holds an array, not a text; set packing.mode = \"opaque\"")]
    NotText,
    /// A text where arrays are wanted.
    #[error(
        "packing.mode = \"opaque\" takes samples from JSONL, Parquet and .npy files; name such files in source.paths"
    )]
    NotArrays,
    /// A null in the column.
    #[error("the value is null; leave such rows out")]
    Null,
    /// The tokenizer refuses the text.
    #[error("{detail}; leave the document out, or choose another tokenizer")]
    Tokenizer {
        /// Its words.
        detail: String,
    },
    /// The code that reads, decodes, renders or tokenizes it panicked.
    #[error("it makes this program fail ({panic}); leave the document out, and please report it")]
    Panicked {
        /// The panic's message.
        panic: String,
    },
    /// Not readable as Parquet.
    #[error("not readable as Parquet ({detail}); write the file again")]
    BrokenParquet {
        /// The reader's words.
        detail: String,
    },
}

impl Reason {
    /// Returns the reason for a text that the tokenizer refuses.
    pub(crate) fn tokenizer(why: impl fmt::Display) -> Self {
        let detail = why.to_string();
        Self::Tokenizer { detail }
    }

    /// Returns the reason for JSON that does not parse.
    pub(crate) fn broken_json(why: &serde_json::Error) -> Self {
        let message = why.to_string();
        // serde_json appends " at line 1 column 5", which would be taken for the file's line.
        let end = message.rfind(" at line ").unwrap_or(message.len());
        Self::BrokenJson {
            column: why.column(),
            detail: message[..end].to_owned(),
        }
    }
}

/// A bad document: place, reason, remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The file's name as listed.
    pub file: String,
    /// Line or row from 1; `None` when it concerns the whole file.
    pub position: Option<u64>,
    /// What is wrong and what to do.
    pub reason: Reason,
}

impl DocumentError {
    /// Places `reason` at unit `unit` of `file`.
    pub fn new(file: &str, format: Format, unit: u64, reason: Reason) -> Self {
        let whole = matches!(format, Format::Text | Format::Npy)
            || matches!(
                reason,
                Reason::NoColumn { .. } | Reason::ColumnType { .. } | Reason::BrokenParquet { .. }
            );
        Self {
            file: file.to_owned(),
            position: (!whole).then_some(unit + 1),
            reason,
        }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(n) => write!(f, "{}:{n}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

/// What makes the input as a whole unusable.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A path or pattern that matches nothing.
    #[error("source.paths: {path} matches no file; correct the path, or create the files first")]
    NoMatch {
        /// As configured.
        path: String,
    },
    /// A pattern that is no pattern.
    #[error("source.paths: {path} is no valid pattern: {detail}")]
    Pattern {
        /// As configured.
        path: String,
        /// Why.
        detail: String,
    },
    /// A file or folder that can't be read.
    #[error("{file}: can't be read: {why}; check that it exists and that this user may read it")]
    Unreadable {
        /// Its name.
        file: String,
        /// The system's words.
        why: io::Error,
    },
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
        /// One line a file.
        differences: Vec<String>,
    },
    /// The stored list of input files is missing or damaged.
    #[error(
        "the stored list of this producer's input files can't be read: {0}; restore the object from a bucket version or \
         backup, or start a new producer name"
    )]
    List(String),
    /// A whole pass without a single document, and no end.
    #[error(
        "a whole pass over the input gave no document, and source.epochs = 0 never ends; check source.paths and source.on_bad_document"
    )]
    Barren,
}
