//! Entries of operators and tools: validated, put, and validated again after each lost race. A request id
//! makes a repeat harmless.

use batchweave_core::ids::Version;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Manifest, Writer};

use crate::commit::append::Append;
use crate::error::LogError;
use crate::log::Log;

impl Log {
    /// Commits the entry that `make` builds from the current state; `make` is called again after each lost
    /// race. Returns the version of the record, or `None` when the entry was applied before.
    pub async fn commit_entry(
        &mut self,
        writer: &str,
        mut make: impl FnMut(&Manifest) -> Entry,
    ) -> Result<Option<Version>, LogError> {
        self.commit_if(writer, |manifest| Ok(Some(make(manifest))))
            .await
    }

    /// Commits an entry as [`Log::commit_entry`] does, unless `make` returns `None`, because nothing is left
    /// to do in the current state, or an error of its own.
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
