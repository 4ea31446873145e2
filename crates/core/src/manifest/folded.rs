//! The effects of one record on the state.

use std::sync::Arc;

use super::record::Record;
use super::rules::Validity;
use super::segment::Segment;
use super::state::StepEntry;
use super::void::{RecordVoid, Void};

/// The effects of a record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folded {
    /// Set when the whole record is void.
    pub void: Option<RecordVoid>,
    /// The validity of each entry; empty when the record is void as a whole.
    pub entries: Vec<Result<Validity, Void>>,
    /// TGBs that got their step.
    pub placed: Vec<Arc<StepEntry>>,
    /// Segments that became full.
    pub segments: Vec<Segment>,
    /// The record, when readable; shared, so that a copy is cheap.
    pub record: Option<Arc<Record>>,
}
