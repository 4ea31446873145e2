//! How the stores of `s3://` input are opened and read.

use std::sync::Arc;

use batchweave_store::{Store, StoreError};
use futures::future::BoxFuture;

/// Number of remote files that are pinned at the same time.
pub(super) const FINGERPRINTS_AT_ONCE: usize = 32;

/// Opens the store of an `s3://` input.
pub type OpenStore =
    dyn Fn(String) -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> + Send + Sync;
