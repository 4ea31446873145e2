//! The shape of a batch.

/// The shape of a batch in the stream's configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) slices: usize,
    pub(crate) rows_per_slice: usize,
    pub(crate) seq_len: usize,
    pub(crate) producers: usize,
}

impl Shape {
    /// Returns the rows of a batch.
    pub(crate) fn rows(self) -> usize {
        self.slices * self.rows_per_slice
    }

    /// Returns the tokens that a batch advances by.
    pub(crate) fn advance(self) -> usize {
        self.rows() * self.seq_len
    }
}
