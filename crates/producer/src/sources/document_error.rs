//! A bad document: its file, its place in it, and the reason.

use std::fmt;

use super::format::Format;
use super::input_error::shown;
use super::{PinnedFile, Reason};

/// The number of a document in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// Line or row, from 1.
    Line(u64),
    /// The byte at which it begins, from 0.
    Byte(u64),
}

/// A bad document, by its place and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    pub file: String,
    /// `None` when the reason concerns the whole file.
    pub position: Option<Numbered>,
    pub reason: Reason,
}

impl DocumentError {
    /// Returns the error for unit `unit` of `file`.
    pub fn new(file: &str, format: Format, unit: u64, reason: Reason) -> Self {
        let whole = match reason {
            Reason::NoColumn { .. }
            | Reason::ColumnType { .. }
            | Reason::NoMessages { .. }
            | Reason::BrokenParquet { .. }
            | Reason::NotIdColumn { .. }
            | Reason::Npy { .. }
            | Reason::Megatron { .. }
            | Reason::Table { .. } => true,
            Reason::Tar { .. } => unit == 0,
            Reason::Id { .. } => false,
            _ => format == Format::Text || format == Format::Npy && unit == 0,
        };
        Self {
            file: file.to_owned(),
            position: (!whole).then_some(Numbered::Line(unit + 1)),
            reason,
        }
    }

    /// Returns the error for unit `unit` of the pinned `file`, numbered as in provenance.
    pub(crate) fn in_file(file: &PinnedFile, format: Format, unit: u64, reason: Reason) -> Self {
        let mut error = Self::new(&file.name, format, unit, reason);
        if file.by_byte && error.position.is_some() {
            error.position = Some(Numbered::Byte(unit));
        }
        error
    }
}

impl DocumentError {
    /// Returns the place of the document for people.
    pub(crate) fn place(&self) -> String {
        let file = shown(&self.file);
        match self.position {
            Some(Numbered::Line(n)) => format!("{file}:{n}"),
            Some(Numbered::Byte(n)) => format!("{file}@{n}"),
            None => file.into_owned(),
        }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.reason)
    }
}
