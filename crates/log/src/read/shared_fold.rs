//! A seam for simulations: thousands of logs in one process fold the same records, and one of them
//! is enough to know what comes of it.

use std::fmt::Debug;
use std::sync::Arc;

use batchweave_core::manifest::{FoldError, Folded, Manifest};
use bytes::Bytes;

/// Folds on behalf of logs. What it answers must be what [`Manifest::fold`] would.
pub trait SharedFold: Send + Sync + Debug {
    /// Folds the record of the next version.
    fn fold(&self, manifest: &mut Manifest, bytes: &Bytes) -> Result<Folded, FoldError>;

    /// The folder of a second fold of the same log; `None`: the manifest itself.
    fn second(self: Arc<Self>) -> Option<Arc<dyn SharedFold>> {
        None
    }
}
