//! Entries of people and tools: judged, put, judged again after each lost race. A request id makes
//! a repeat harmless.

use batchweave_core::ids::Version;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Manifest, Writer};

use crate::commit::append::Append;
use crate::{Log, LogError};

impl Log {
    /// Commits the entry that `make` builds from the current state; `make` is called again after
    /// each lost race. Returns the version, or `None` when it was applied before.
    pub async fn commit_entry(
        &mut self,
        writer: &str,
        mut make: impl FnMut(&Manifest) -> Entry,
    ) -> Result<Option<Version>, LogError> {
        self.commit_if(writer, |manifest| Ok(Some(make(manifest))))
            .await
    }

    /// As [`Log::commit_entry`], for a command that may find its work done (`None`) or out of place
    /// (an error of its own) by the state that it meets after a lost race.
    pub async fn commit_if<E: From<LogError>>(
        &mut self,
        writer: &str,
        mut make: impl FnMut(&Manifest) -> Result<Option<Entry>, E>,
    ) -> Result<Option<Version>, E> {
        let writer = Writer {
            name: writer.to_owned(),
            epoch: 0,
        };
        loop {
            self.catch_up().await?;
            let Some(entry) = make(&self.manifest)? else {
                return Ok(None);
            };
            if self.manifest.validate(&entry).map_err(LogError::Void)? == Validity::Repeat {
                return Ok(None);
            }
            if let Append::Won { version, .. } = self.append(&writer, vec![entry]).await? {
                return Ok(Some(version));
            }
        }
    }
}
