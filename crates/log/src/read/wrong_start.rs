//! Confirms a fold by a second one, and finds the snapshot because of which two folds of the same records differ. A
//! snapshot names hashes that a forger knows too, so it may fit the log and still have another state.

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use tracing::warn;

use crate::error::LogError;
use crate::read::refold::{Refold, Refolded};

impl Refold {
    /// Returns a second fold if it agrees with the first one, whose state is `manifest`.
    pub(crate) async fn confirm(&self, manifest: &Manifest) -> Result<Refolded, LogError> {
        let to = manifest.next_version();
        let again = self.run(to).await?;
        if let Some(stopped) = again.stopped {
            return Err(stopped);
        }
        if again.manifest == *manifest {
            return Ok(again);
        }
        let wrong = WrongStart {
            folds: self,
            manifest,
        };
        wrong.find(again.base).await
    }
}

/// Two folds that differ.
struct WrongStart<'f> {
    folds: &'f Refold,
    /// The state of the first one.
    manifest: &'f Manifest,
}

impl WrongStart<'_> {
    /// Returns the fold of the records alone, from version 0, if the first fold agrees with it: then the second one began
    /// with a wrong snapshot, `other`. Fails if the first one is wrong, by its snapshot or by this process.
    async fn find(&self, other: Option<Version>) -> Result<Refolded, LogError> {
        let to = self.manifest.next_version();
        let unconfirmed = LogError::Unconfirmed {
            version: to.saturating_sub(1),
        };
        let whole = self.folds.from(None, to).await?;
        let Some(whole) = whole.filter(|whole| whole.stopped.is_none()) else {
            return Err(unconfirmed);
        };
        if whole.manifest == *self.manifest {
            if let Some(version) = other {
                let key = keys::snapshot(version);
                let removed = self.remove(&key).await;
                warn!(
                    key,
                    removed, "a snapshot has another state than the records of the log give"
                );
            }
            return Ok(whole);
        }
        let Some(base) = self.folds.base else {
            return Err(unconfirmed);
        };
        let key = keys::snapshot(base);
        match self.folds.from(Some(base), to).await? {
            // The same start, read again, leads to the same state: it is the snapshot, and not this process.
            Some(same) if same.manifest == *self.manifest => {
                let removed = self.remove(&key).await;
                Err(LogError::WrongSnapshot { key, removed })
            }
            Some(good) if good.manifest == whole.manifest => Err(unconfirmed),
            // Another process may have found and deleted it, and a forger may have replaced it.
            _ => Err(LogError::LostSnapshot { key }),
        }
    }

    async fn remove(&self, key: &str) -> String {
        match self.folds.store.delete(key).await {
            Ok(()) => "it was deleted".to_owned(),
            Err(why) => format!("it could not be deleted ({why}): delete it"),
        }
    }
}
