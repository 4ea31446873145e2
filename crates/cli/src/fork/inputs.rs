//! The input files of a fork's producers, as far as this machine can tell whether they are still there.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::PinnedFile;
use batchweave_core::manifest::state::ProducerState;
use serde::Serialize;

/// Most missing files that are named.
const NAMED_MAX: usize = 10;

/// The files of all producers, each once.
#[derive(Debug, Default, Serialize)]
pub(super) struct InputFiles {
    files: usize,
    /// Local files that are missing here, or have another size; at most ten.
    missing: Vec<String>,
    missing_in_all: usize,
    /// Objects, which this command does not look for.
    not_checked: usize,
}

impl InputFiles {
    pub(super) fn check(files: &BTreeMap<ProducerName, Vec<PinnedFile>>) -> Self {
        let all: BTreeSet<(&str, u64)> = files
            .values()
            .flatten()
            .map(|pin| (pin.name.as_str(), pin.size))
            .collect();
        let mut found = Self {
            files: all.len(),
            ..Self::default()
        };
        for (name, size) in all {
            if name.contains("://") {
                found.not_checked += 1;
            } else if std::fs::metadata(name).map(|file| file.len()).ok() != Some(size) {
                found.missing_in_all += 1;
                if found.missing.len() < NAMED_MAX {
                    found.missing.push(name.to_owned());
                }
            }
        }
        found
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let first = self.missing.first().map(|first| {
            format!(
                "{} of {} input files are missing on this machine or have changed, for example {first}: a producer refuses to \
                 start without those that it has not read to the end",
                self.missing_in_all, self.files
            )
        });
        first.into_iter().collect()
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
            "{files} files: {there} are here, {missing_in_all} missing, {not_checked} objects not looked for"
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
