//! A count of what a document has beyond standard JSON.

/// The parts of a document beyond the standard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Numbers that are NaN or infinite, or too large for a double.
    pub numbers: u64,
    /// Halves of surrogate pairs.
    pub surrogates: u64,
}

impl Beyond {
    /// Returns whether the document is standard JSON.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.numbers += other.numbers;
        self.surrogates += other.surrogates;
    }
}
