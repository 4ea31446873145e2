//! The formats of input files.

use serde::{Deserialize, Serialize};

/// The way in which a file is divided into documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// By the file's name: `.jsonl`, `.ndjson`, `.parquet`, `.npy`, `.tar`, `.tgz`, anything else is text; a `.gz` or
    /// `.zst` at the end is ignored.
    #[default]
    Auto,
    /// One JSON object per line.
    Jsonl,
    /// One document per file.
    Text,
    /// One document per line.
    Lines,
    /// One document per row.
    Parquet,
    /// An array as numpy saves it: one sample per file, or documents of ids.
    Npy,
    /// Documents of ids in pairs of `.bin` and `.idx`, as Megatron-LM writes them.
    Megatron,
    /// One sample per key of a tar, as the webdataset package groups its members.
    Webdataset,
}

impl Format {
    /// Returns the format of the file `name`; never `Auto`.
    #[must_use]
    pub fn for_file(self, name: &str) -> Self {
        if self != Self::Auto {
            return self;
        }
        let name = name.to_ascii_lowercase();
        let name = name
            .strip_suffix(".gz")
            .or(name.strip_suffix(".zst"))
            .unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("parquet") => Self::Parquet,
            Some("npy") => Self::Npy,
            Some("tar" | "tgz") => Self::Webdataset,
            _ => Self::Text,
        }
    }
}
