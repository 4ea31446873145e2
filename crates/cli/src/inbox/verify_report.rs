//! The findings of a check of an inbox.

use serde::Serialize;

/// The result of a check.
#[derive(Debug, Serialize)]
pub(super) struct VerifyReport {
    pub(super) inbox: String,
    pub(super) writers: u64,
    /// Rows that are in the stream exactly once.
    pub(super) rows_once: u64,
    pub(super) rows_twice: u64,
    pub(super) rows_missing: u64,
    /// Steps that are reclaimed or have no provenance.
    pub(super) steps_unknown: u64,
    /// Files with rows that are missing or doubled, a line each.
    pub(super) faults: Vec<String>,
}
