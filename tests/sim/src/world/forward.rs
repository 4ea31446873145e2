//! Log options of a process, with a check that each open log folds forward, record by record or by a
//! jump, and never back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use batchweave_core::manifest::{FoldError, Folded, Manifest};
use batchweave_log::{LogOptions, SharedFold};
use bytes::Bytes;

use super::shared::Shared;
use crate::actor::Actor;
use crate::draw::Draw;

/// The check of one open log.
struct Forward {
    shared: Arc<Shared>,
    actor: Arc<Actor>,
    /// The highest folded version.
    last: AtomicU64,
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Forward({})", self.actor.name)
    }
}

impl SharedFold for Forward {
    fn fold(&self, manifest: &mut Manifest, bytes: &Bytes) -> Result<Folded, FoldError> {
        let version = manifest.next_version();
        let last = self.last.fetch_max(version, Relaxed);
        // Only a fold that suspects its reads begins again.
        if version < last && self.shared.plan.is_honest() {
            let text = format!("{} folds {version} after {last}", self.actor.name);
            self.shared.found("fold-back", self.actor.id, text);
        }
        manifest.fold(bytes)
    }
}

/// Returns the options with which `actor` opens a log.
pub(crate) fn options(
    shared: &Arc<Shared>,
    actor: &Arc<Actor>,
    write_snapshots: bool,
) -> LogOptions {
    let forward = Forward {
        shared: Arc::clone(shared),
        actor: Arc::clone(actor),
        last: AtomicU64::new(0),
    };
    LogOptions {
        seed: actor.draw(Draw::seed),
        write_snapshots,
        clock: actor.clock(),
        shared_fold: Some(Arc::new(forward)),
    }
}
