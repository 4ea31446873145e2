//! The formats of input files by name, and the names that none of them takes. `formats` has the rest.

use serde::{Deserialize, Serialize};

/// The way in which a file is divided into documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// By the file's name ([`Self::for_file`]).
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
    /// One document per row behind the first, which names the columns.
    Csv,
    /// The same with tabs between the values.
    Tsv,
    /// One document per row of a table in an IPC format of Arrow, as Feather is one.
    Arrow,
    /// An array as numpy saves it: one sample per file, or documents of ids.
    Npy,
    /// Documents of ids in pairs of `.bin` and `.idx`, as Megatron-LM writes them.
    Megatron,
    /// One sample per key of a tar, as the webdataset package groups its members.
    Webdataset,
}

/// Endings of compressed files. The content decides about the compression, not the name.
const COMPRESSIONS: [&str; 6] = [".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz"];

/// Extensions of files that have no text in them, or none that is one document.
const UNREAD: [(&[&str], &str); 4] = [
    (
        &[
            "orc",
            "avro",
            "h5",
            "hdf5",
            "xlsx",
            "xls",
            "ods",
            "lance",
            "mds",
            "tfrecord",
            "tfrecords",
            "sqlite",
            "db",
            "npz",
        ],
        "it has no reader: convert it to Parquet or JSON lines",
    ),
    (
        &["zip", "7z", "rar", "lz4", "snappy", "sz", "br", "lzma", "z"],
        "it has no reader: unpack it, or compress with gzip or zstd",
    ),
    (
        &["bin", "idx"],
        "it is binary: of Megatron's pairs, set source.format = \"megatron\"",
    ),
    (
        &[
            "pkl",
            "pickle",
            "pt",
            "pth",
            "safetensors",
            "pdf",
            "doc",
            "docx",
            "ppt",
            "pptx",
            "epub",
            "odt",
            "png",
            "jpg",
            "jpeg",
            "gif",
            "webp",
            "mp3",
            "mp4",
            "wav",
            "flac",
            "exe",
            "pyc",
        ],
        "it is binary: narrow source.paths, for example to \"data/*.jsonl\"",
    ),
];

impl Format {
    /// Returns whether the files of inboxes are read so.
    #[must_use]
    pub(crate) fn is_for_inboxes(self) -> bool {
        matches!(self, Self::Auto | Self::Parquet)
    }

    /// Returns the format that `Auto` meant for the file in earlier releases, whose streams go on; never `Auto`.
    #[must_use]
    pub(crate) fn earlier_for_file(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let inner = name.strip_suffix(".gz").or(name.strip_suffix(".zst"));
        match extension(inner.unwrap_or(&name)) {
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("parquet") => Self::Parquet,
            Some("npy") => Self::Npy,
            Some("tar" | "tgz") => Self::Webdataset,
            _ => Self::Text,
        }
    }

    /// Returns why `Auto` refuses the file `name`, with what to do.
    #[must_use]
    pub(crate) fn refusal(name: &str) -> Option<&'static str> {
        let name = name.to_ascii_lowercase();
        let found = extension(uncompressed(&name))?;
        let known = UNREAD.iter().find(|(names, _)| names.contains(&found));
        known.map(|(_, why)| *why)
    }

    /// Returns the value of `source.format`.
    #[must_use]
    pub(crate) fn key(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    }
}

pub(super) fn uncompressed(name: &str) -> &str {
    let mut endings = COMPRESSIONS.iter();
    let rest = endings.find_map(|ending| name.strip_suffix(ending));
    rest.unwrap_or(name)
}

/// Returns the end of a file's name that decides its format, from its dot on, with that of a compression: `.jsonl.gz`. Empty
/// where the name has no dot.
pub(crate) fn ending(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    let lower = last.to_ascii_lowercase();
    let rest = uncompressed(&lower);
    let at = rest
        .rfind('.')
        .or((rest.len() < last.len()).then_some(rest.len()));
    at.and_then(|at| last.get(at..)).unwrap_or_default()
}

/// Returns what follows the last dot of the last segment.
pub(super) fn extension(name: &str) -> Option<&str> {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.rsplit_once('.').map(|(_, extension)| extension)
}
