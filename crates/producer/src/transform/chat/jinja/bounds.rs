//! The bounds of a rendering.

/// The bounds of a rendering.
#[derive(Debug, Clone, Copy)]
pub(in crate::transform::chat) struct Bounds {
    /// Most steps of one rendering.
    pub(in crate::transform::chat) fuel: u64,
    /// Most bytes of the text.
    pub(in crate::transform::chat) bytes: u64,
}
