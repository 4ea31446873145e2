//! A seam for simulations, in which thousands of logs of one process fold the same records.

use std::fmt::Debug;
use std::sync::Arc;

use batchweave_core::manifest::{FoldError, Folded, Manifest};
use bytes::Bytes;

/// Folds records for many logs, with the same results as [`Manifest::fold`].
pub trait SharedFold: Send + Sync + Debug {
    /// Folds the record of the next version.
    fn fold(&self, manifest: &mut Manifest, bytes: &Bytes) -> Result<Folded, FoldError>;

    /// Returns the implementation for a second fold of the same log; `None` for the manifest itself.
    fn second(self: Arc<Self>) -> Option<Arc<dyn SharedFold>> {
        None
    }
}
