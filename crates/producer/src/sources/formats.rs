//! The table of formats: what their names are, what their files hold, and how they are opened.

use super::UnitKind;
use super::arrow::open_arrow;
use super::csv::{open_csv, open_tsv};
use super::format::{Format, extension, uncompressed};
use super::read_ids::{open_npy, open_pair};
use super::read_lines::open_lines;
use super::read_rows::open_parquet;
use super::read_shards::open_shard;
use super::read_text::open_text;
use super::unit_reader::{Opened, Opening};

/// A format with all that is known of it.
pub(super) struct FormatRow {
    pub(super) format: Format,
    /// The extensions in lower case of files that `Auto` reads so.
    pub(super) extensions: &'static [&'static str],
    /// The format for people.
    pub(super) words: &'static str,
    pub(super) unit: UnitKind,
    contents: Contents,
    pub(super) shape: Shape,
    pub(super) open: Opener,
}

/// The parts that documents are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Fields or columns by name.
    Fields,
    Text,
    /// Numbers without names or texts.
    Numbers,
    /// Samples whose fields are files.
    Samples,
}

/// How a file is divided into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// At the line breaks of a file that is not compressed.
    Lines,
    /// At its row groups.
    RowGroups,
    /// Into one block, read from its beginning on.
    Whole,
    /// Into one block with another file.
    Pair,
}

impl Shape {
    /// Returns whether a whole file is read from its first byte to its last.
    pub(super) fn is_stream(self) -> bool {
        matches!(self, Self::Lines | Self::Whole)
    }
}

type Opener = for<'a> fn(Opening<'a, '_>) -> Opened<'a>;

static FORMATS: [FormatRow; 10] = [
    // The first row is that of all other names.
    FormatRow {
        format: Format::Text,
        extensions: &[],
        words: "text, one document each",
        unit: UnitKind::Text,
        contents: Contents::Text,
        shape: Shape::Whole,
        open: open_text,
    },
    FormatRow {
        format: Format::Jsonl,
        extensions: &["jsonl", "ndjson", "json", "jl", "jsonlines", "ldjson"],
        words: "JSON lines",
        unit: UnitKind::Json,
        contents: Contents::Fields,
        shape: Shape::Lines,
        open: open_lines,
    },
    FormatRow {
        format: Format::Lines,
        extensions: &[],
        words: "text, one document per line",
        unit: UnitKind::Line,
        contents: Contents::Text,
        shape: Shape::Lines,
        open: open_lines,
    },
    FormatRow {
        format: Format::Parquet,
        extensions: &["parquet"],
        words: "Parquet",
        unit: UnitKind::Row,
        contents: Contents::Fields,
        shape: Shape::RowGroups,
        open: open_parquet,
    },
    FormatRow {
        format: Format::Csv,
        extensions: &["csv"],
        words: "CSV",
        unit: UnitKind::Json,
        contents: Contents::Fields,
        shape: Shape::Whole,
        open: open_csv,
    },
    FormatRow {
        format: Format::Tsv,
        extensions: &["tsv"],
        words: "TSV",
        unit: UnitKind::Json,
        contents: Contents::Fields,
        shape: Shape::Whole,
        open: open_tsv,
    },
    FormatRow {
        format: Format::Arrow,
        extensions: &["arrow", "arrows", "feather", "ipc"],
        words: "Arrow",
        unit: UnitKind::Row,
        contents: Contents::Fields,
        shape: Shape::Whole,
        open: open_arrow,
    },
    FormatRow {
        format: Format::Npy,
        extensions: &["npy"],
        words: ".npy",
        unit: UnitKind::Array,
        contents: Contents::Numbers,
        shape: Shape::Whole,
        open: open_npy,
    },
    FormatRow {
        format: Format::Megatron,
        extensions: &[],
        words: "Megatron",
        unit: UnitKind::Ids,
        contents: Contents::Numbers,
        shape: Shape::Pair,
        open: open_pair,
    },
    FormatRow {
        format: Format::Webdataset,
        extensions: &["tar", "tgz", "tbz2", "txz"],
        words: "tar",
        unit: UnitKind::Sample,
        contents: Contents::Samples,
        shape: Shape::Whole,
        open: open_shard,
    },
];

/// Returns the row of `format`; that of texts for `Auto`.
fn row(format: Format) -> &'static FormatRow {
    let mut rows = FORMATS.iter();
    rows.find(|row| row.format == format).unwrap_or(&FORMATS[0])
}

/// Returns the row of the files with this extension, in lower case; that of texts for all others.
fn row_by_extension(extension: Option<&str>) -> &'static FormatRow {
    let mut rows = FORMATS.iter();
    let named = rows.find(|row| extension.is_some_and(|name| row.extensions.contains(&name)));
    named.unwrap_or(&FORMATS[0])
}

impl Format {
    /// Returns what the units of a file are; `ids` says that documents are token ids.
    #[must_use]
    pub fn units(self, name: &str, ids: bool) -> UnitKind {
        match self.row_of(name).unit {
            UnitKind::Array if ids => UnitKind::Ids,
            unit => unit,
        }
    }

    /// Returns whether documents have fields or columns by name, or may have.
    #[must_use]
    pub(crate) fn has_fields(self) -> bool {
        self == Self::Auto || row(self).contents == Contents::Fields
    }

    /// Returns whether files are tars of samples.
    #[must_use]
    pub(crate) fn is_shards(self) -> bool {
        row(self).contents == Contents::Samples
    }

    /// Returns whether files come in pairs.
    #[must_use]
    pub(crate) fn is_pairs(self) -> bool {
        row(self).shape == Shape::Pair
    }

    /// Returns whether files hold numbers without names or texts.
    #[must_use]
    pub(crate) fn is_binary(self) -> bool {
        row(self).contents == Contents::Numbers
    }

    /// Returns the format of the file `name`; never `Auto`.
    #[must_use]
    pub fn for_file(self, name: &str) -> Self {
        self.row_of(name).format
    }

    /// Returns the row of the file `name` in the table.
    pub(super) fn row_of(self, name: &str) -> &'static FormatRow {
        if self != Self::Auto {
            return row(self);
        }
        let name = name.to_ascii_lowercase();
        row_by_extension(extension(uncompressed(&name)))
    }

    /// Returns the format for people.
    #[must_use]
    pub(crate) fn words(self) -> &'static str {
        if self == Self::Auto {
            return "by name";
        }
        row(self).words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_one_row_and_each_extension_too() {
        let mut extensions: Vec<&str> = Vec::new();
        for found in &FORMATS {
            assert_eq!(row(found.format).words, found.words);
            extensions.extend(found.extensions);
        }
        assert_eq!(row(Format::Auto).format, Format::Text);
        let all = extensions.len();
        extensions.sort_unstable();
        extensions.dedup();
        assert_eq!(extensions.len(), all);
    }
}
