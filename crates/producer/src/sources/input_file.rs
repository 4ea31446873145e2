//! One file of the input, and where it is.

use std::path::PathBuf;
use std::sync::Arc;

use batchweave_core::inputs::PinnedFile;
use batchweave_store::Store;

/// Number of bytes at each end of a file that its fingerprint covers.
pub(super) const FINGERPRINT_BYTES: u64 = 64 << 10;

/// The place where a file is stored.
#[derive(Debug, Clone)]
pub enum Location {
    /// A path on this machine.
    Local(PathBuf),
    /// An object of a store.
    Remote { store: Arc<dyn Store>, key: String },
}

/// One file or object of the input.
#[derive(Debug, Clone)]
pub struct InputFile {
    pub pin: PinnedFile,
    pub location: Location,
}

impl AsRef<PinnedFile> for InputFile {
    fn as_ref(&self) -> &PinnedFile {
        &self.pin
    }
}
