//! The mixtures and stages of a producer, as its commit task passes them on.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::Seq;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::stages::Stages;
use batchweave_core::manifest::state::MixtureState;

/// The changes of the mixture and the stages that the log has for a producer; a watch value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangesInLog {
    /// The mixtures by the sequence number from which they are in force: that of the next item, and later ones.
    pub from: BTreeMap<Seq, u64>,
    /// The last mixture that was set.
    pub last: MixtureState,
    /// The stages by the sequence number from which they are in force, earlier ones included.
    pub stages: BTreeMap<Seq, u64>,
    /// All stages of the stream.
    pub all_stages: Arc<Stages>,
}

impl ChangesInLog {
    /// Whether the log of `manifest` has other changes.
    pub(crate) fn differ(&self, manifest: &Manifest) -> bool {
        self.last.id != manifest.mixture().id
            || self.all_stages.newest() != manifest.stages().newest()
    }
}
