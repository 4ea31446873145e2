//! A document that the check packs.

/// A document of the window: its source, its length, and the cost that a rank spends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) source: usize,
    pub(super) tokens: u32,
    pub(super) cost: u64,
}
