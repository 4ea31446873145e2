//! A cache of folds: thousands of logs in one process fold the same records. The first one folds, the
//! others copy the result. A copy of a manifest shares its parts, so that it costs almost nothing.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use batchweave_core::ids::Hash;
use batchweave_core::manifest::{FoldError, Folded, Manifest};
use batchweave_log::SharedFold;
use bytes::Bytes;

/// The number of folds kept; a log that is further behind folds by itself.
const KEPT: usize = 1024;

struct Fold {
    before: Hash,
    bytes: Bytes,
    after: Manifest,
    folded: Folded,
}

/// The cache of folds; see the module.
#[derive(Default)]
pub(crate) struct Memo {
    folds: Mutex<VecDeque<Fold>>,
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

impl SharedFold for Memo {
    fn fold(&self, manifest: &mut Manifest, bytes: &Bytes) -> Result<Folded, FoldError> {
        let mut folds = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        let before = manifest.prev();
        let same = |f: &&Fold| f.before == before && f.bytes == bytes;
        if let Some(known) = folds.iter().rev().find(same) {
            *manifest = known.after.clone();
            return Ok(known.folded.clone());
        }
        let folded = manifest.fold(bytes)?;
        folds.push_back(Fold {
            before,
            bytes: bytes.clone(),
            after: manifest.clone(),
            folded: folded.clone(),
        });
        if folds.len() > KEPT {
            folds.pop_front();
        }
        Ok(folded)
    }

    fn second(self: Arc<Self>) -> Option<Arc<dyn SharedFold>> {
        Some(self)
    }
}
