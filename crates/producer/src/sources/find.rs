//! From the configured paths to the list of input files, each with its size and fingerprint.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use batchweave_store::local_path;

use super::growing::FileFilter;
use super::open_store::OpenStore;
use super::{InputList, Portion, Settled, SourceError};

mod local;
mod pin;
mod remote;

use self::local::local;
#[cfg(test)]
pub(super) use self::pin::pin_local;
pub(super) use self::pin::{ends, pin_opened, pin_remote};
use self::remote::remote;

/// The paths of a source.
#[derive(Debug, Clone, Default)]
pub struct NamedPaths {
    /// Empty for the one of `[source]`.
    pub name: String,
    pub paths: Vec<String>,
    /// For one that is followed: accept only files that have settled, and that this share owns.
    pub grows: Option<(Settled, Portion)>,
    /// The paths are inboxes.
    pub inbox: bool,
}

impl NamedPaths {
    /// Returns the name of the source in the pins of its files; `None` for the one of `[source]`.
    pub(crate) fn pin_name(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| self.name.clone())
    }
}

/// Finds the input files that the configuration names.
#[derive(Clone)]
pub struct InputFinder {
    pub sources: Vec<NamedPaths>,
    /// Opens the stores of `s3://` paths.
    pub open: Arc<OpenStore>,
    /// The same for inboxes, whose keys are as ours are.
    pub open_inbox: Arc<OpenStore>,
}

impl InputFinder {
    /// Finds the input files except those whose names are `known`, one source after the other: the paths of each in their
    /// order, the matches of each sorted by name, a file that several paths match only once. Names beside data are
    /// left out, and listed with the files.
    pub async fn find(&self, known: BTreeSet<String>) -> Result<InputList, SourceError> {
        let mut all = InputList::default();
        let mut owners: BTreeMap<String, &String> = BTreeMap::new();
        for source in &self.sources {
            let list = self.find_source(source, known.clone()).await?;
            all.left_out.append(list.left_out);
            for file in list.files {
                if let Some(other) = owners.insert(file.pin.name.clone(), &source.name) {
                    return Err(SourceError::InTwoSources {
                        file: file.pin.name,
                        sources: [other.clone(), source.name.clone()],
                    });
                }
                all.files.push(file);
            }
        }
        Ok(all)
    }

    /// Finds the files of `source`, except those whose names are `known`.
    pub(crate) async fn find_source(
        &self,
        source: &NamedPaths,
        known: BTreeSet<String>,
    ) -> Result<InputList, SourceError> {
        let settled = source.grows.as_ref().map(|(settled, _)| settled.clone());
        let filter = FileFilter { known, settled };
        let mut list = if source.inbox {
            self.in_inboxes(source).await?
        } else {
            find_filtered(&source.paths, self.open.as_ref(), &filter).await?
        };
        if let Some((_, share)) = source.grows.as_ref().filter(|_| !source.inbox) {
            list.files.retain(|file| share.owns_file(&file.pin.name));
        }
        for file in &mut list.files {
            file.pin.source = source.pin_name();
        }
        Ok(list)
    }
}

/// Finds all input files of `paths`, as [`InputFinder::find`] does.
pub async fn find_all(paths: &[String], open: &OpenStore) -> Result<InputList, SourceError> {
    find_filtered(paths, open, &FileFilter::default()).await
}

async fn find_filtered(
    paths: &[String],
    open: &OpenStore,
    filter: &FileFilter,
) -> Result<InputList, SourceError> {
    let mut all = InputList::default();
    let mut seen = BTreeSet::new();
    let is_local = |path: &String| local_path(path).is_some();
    for neighbours in paths.chunk_by(|a, b| is_local(a) && is_local(b)) {
        let first = &neighbours[0];
        let found = if is_local(first) {
            let (patterns, filter) = (neighbours.to_vec(), filter.clone());
            let local = tokio::task::spawn_blocking(move || local(&patterns, &filter));
            local
                .await
                .map_err(|e| SourceError::unreadable(first, io::Error::other(e)))??
        } else {
            remote(first, open, filter).await?
        };
        all.left_out.append(found.left_out);
        let new = found.files.into_iter();
        all.files
            .extend(new.filter(|file| seen.insert(file.pin.name.clone())));
    }
    Ok(all)
}
