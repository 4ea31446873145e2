//! The input files of a fork's producers, as far as this machine can tell whether they are still there: it looks for local
//! files and for objects.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::PinnedFile;
use batchweave_core::manifest::state::ProducerState;
use batchweave_store::{OpenOptions, found};
use futures::stream::{self, StreamExt};
use serde::Serialize;

/// Most missing files that are named.
const NAMED_MAX: usize = 10;
/// Most objects that are looked for, and folders that they are in.
const OBJECTS_MAX: usize = 10_000;
const FOLDERS_MAX: usize = 64;
/// Objects that are looked for at the same time.
const REQUESTS: usize = 16;

/// The files of all producers, each once.
#[derive(Debug, Default, Serialize)]
pub(super) struct InputFiles {
    files: usize,
    /// Files that are missing, or have another size; at most ten.
    missing: Vec<String>,
    missing_in_all: usize,
    /// Objects beyond the limits, or that the store does not show.
    not_checked: usize,
    /// Why the first of them was not shown.
    refused: Option<String>,
}

impl InputFiles {
    pub(super) async fn check(
        files: &BTreeMap<ProducerName, Vec<PinnedFile>>,
        options: &OpenOptions,
    ) -> Self {
        let all: BTreeSet<(&str, u64)> = files
            .values()
            .flatten()
            .map(|pin| (pin.name.as_str(), pin.size))
            .collect();
        let mut found = Self {
            files: all.len(),
            ..Self::default()
        };
        let mut folders: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
        for (name, size) in all {
            match name.rsplit_once('/').filter(|_| name.contains("://")) {
                Some((folder, object)) => folders.entry(folder).or_default().push((object, size)),
                None if std::fs::metadata(name).map(|file| file.len()).ok() == Some(size) => {}
                None => found.miss(name.to_owned()),
            }
        }
        let mut left = OBJECTS_MAX;
        for (n, (folder, objects)) in folders.into_iter().enumerate() {
            let some = objects.len().min(if n < FOLDERS_MAX { left } else { 0 });
            left -= some;
            found.not_checked += objects.len() - some;
            found.look(folder, &objects[..some], options).await;
        }
        found
    }

    fn miss(&mut self, name: String) {
        self.missing_in_all += 1;
        if self.missing.len() < NAMED_MAX {
            self.missing.push(name);
        }
    }

    /// Looks for objects of a folder.
    async fn look(&mut self, folder: &str, objects: &[(&str, u64)], options: &OpenOptions) {
        if objects.is_empty() {
            return;
        }
        let store = match batchweave_store::open(folder, options).await {
            Ok(store) => store,
            Err(why) => {
                self.not_checked += objects.len();
                self.refused.get_or_insert(why.to_string());
                return;
            }
        };
        let sizes = stream::iter(objects).map(async |(object, size)| {
            let shown = found(store.head(object).await);
            (
                *object,
                shown.map(|shown| shown.is_some_and(|meta| meta.size == *size)),
            )
        });
        let sizes: Vec<_> = sizes.buffer_unordered(REQUESTS).collect().await;
        for (object, shown) in sizes {
            match shown {
                Ok(true) => {}
                Ok(false) => self.miss(format!("{folder}/{object}")),
                Err(why) => {
                    self.not_checked += 1;
                    self.refused.get_or_insert(why.to_string());
                }
            }
        }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let first = self.missing.first().map(|first| {
            format!(
                "{} of {} input files are missing on this machine or in their store, or have changed, for example {first}: a \
                 producer refuses to start without those that it has not read to the end",
                self.missing_in_all, self.files
            )
        });
        let refused = self.refused.as_ref().map(|why| {
            format!(
                "{} of {} input files were not looked for: {why}",
                self.not_checked, self.files
            )
        });
        first.into_iter().chain(refused).collect()
    }

    /// Returns a line for people.
    pub(super) fn text(&self) -> String {
        let Self {
            files,
            missing_in_all,
            not_checked,
            ..
        } = self;
        let there = files - missing_in_all - not_checked;
        format!(
            "{files} files: {there} are there, {missing_in_all} missing, {not_checked} not looked for"
        )
    }
}

/// Returns whether a producer's cursor counts files of an inbox.
pub(super) fn reads_inbox(p: &ProducerState) -> bool {
    let settings = &p.cursor.0["settings"];
    let sources = settings["sources"].as_array();
    let any = sources.is_some_and(|all| all.iter().any(|source| source["inbox"] == true));
    any || settings["source.inbox"] == true
}
