//! The mixtures of a producer, as its commit task passes them on.

use std::collections::BTreeMap;

use batchweave_core::ids::Seq;
use batchweave_core::manifest::state::MixtureState;

/// The changes of the mixture that the log has for a producer; a watch value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MixturesInLog {
    /// The mixtures by the sequence number from which they are in force: that of the next item, and later ones.
    pub from: BTreeMap<Seq, u64>,
    /// The last mixture that was set.
    pub last: MixtureState,
}
