//! The state of a writer of bundles, a part of its log.

use batchweave_core::manifest::bundle::RecentRecords;
use tokio::task::JoinHandle;

/// The state of a writer of bundles.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    pub(super) recent: RecentRecords,
    /// The store refuses them.
    pub(super) off: bool,
    /// The write under way; true when the store refuses further ones.
    pub(super) writing: Option<JoinHandle<bool>>,
}

impl Bundles {
    /// Forgets the records: another fold replaced the one that read them.
    pub(crate) fn forget(&mut self) {
        self.recent.clear();
    }
}
