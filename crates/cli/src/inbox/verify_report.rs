//! The findings of `batchweave inbox verify`: how often the committed rows of an inbox are in the stream.

use serde::Serialize;

/// The rows of an inbox by their number in the stream, and the files in which that is not one.
#[derive(Debug, Serialize)]
pub(super) struct VerifyReport {
    pub(super) inbox: String,
    pub(super) writers: u64,
    /// Rows that are in the stream exactly once.
    pub(super) rows_once: u64,
    /// Rows that are in the stream more than once.
    pub(super) rows_twice: u64,
    /// Committed rows that are in no known step; where steps are unknown, they may be in those.
    pub(super) rows_missing: u64,
    /// Steps that are reclaimed, or whose provenance is not stored.
    pub(super) steps_unknown: u64,
    /// The first files with doubled or missing rows, a line each, those with doubled rows first.
    pub(super) faults: Vec<String>,
    /// The number of further files with doubled or missing rows.
    pub(super) more_faults: u64,
    /// Those without doubled rows, which follow the others at the end.
    #[serde(skip)]
    pub(super) incomplete: Vec<String>,
}
