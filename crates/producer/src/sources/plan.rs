//! A source of several as it is read: its order, and the settings of its files.

use batchweave_core::order::SourceOrder;

use super::ReadOptions;

/// A source, ready to be read from any position.
#[derive(Debug)]
pub(crate) struct SourcePlan {
    pub(crate) order: SourceOrder,
    pub(crate) options: ReadOptions,
    /// Number of passes; 0 repeats them for ever.
    pub(crate) passes: u64,
    /// Bytes of its window; 0 without shuffle.
    pub(crate) window: u64,
}
