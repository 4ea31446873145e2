//! The value of `source.paths` that names the files of a group and no others, also not those that a run writes later.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::groups::FoundGroup;
use crate::sources::ending;

/// Most paths of a source.
const PATHS_MAX: usize = 32;

/// The path that is surveyed.
pub(super) struct Root {
    path: String,
    is_file: bool,
    /// The stream's files will lie at or below it.
    holds_outputs: bool,
}

impl Root {
    /// Returns the path, with the folder of the stream's files.
    pub(super) fn new(path: &str, outputs: &Path) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
        let root = Path::new(path);
        Self {
            path: path.to_owned(),
            is_file: root.is_file(),
            holds_outputs: real(outputs).starts_with(real(root)),
        }
    }

    /// Returns the paths of a group of a survey with `whole` files; none where they would be too many.
    pub(super) fn paths(&self, group: &FoundGroup, whole: usize) -> Vec<String> {
        if self.is_file || (!self.holds_outputs && group.files.len() == whole) {
            return vec![self.path.clone()];
        }
        let names = group.files.iter().map(|file| file.pin.name.as_str());
        let patterns: BTreeSet<String> = names.map(|name| self.pattern(name)).collect();
        if patterns.len() > PATHS_MAX {
            return Vec::new();
        }
        patterns.into_iter().collect()
    }

    /// Returns the pattern of the files in the same place with the same ending.
    fn pattern(&self, name: &str) -> String {
        let below = Path::new(name).strip_prefix(&self.path);
        let below = below.map_or(name, |below| below.to_str().unwrap_or(name));
        let ending = ending(name);
        if ending.is_empty() {
            return self.joined(below);
        }
        let ending = glob::Pattern::escape(ending);
        match below.split_once('/') {
            // A run writes its files beside these, and never into the folders.
            Some((folder, _)) => {
                self.joined(&format!("{}/**/*{ending}", glob::Pattern::escape(folder)))
            }
            None => self.joined(&format!("*{ending}")),
        }
    }

    fn joined(&self, below: &str) -> String {
        match self.path.trim_end_matches('/') {
            "." => below.to_owned(),
            root => format!("{}/{below}", glob::Pattern::escape(root)),
        }
    }
}
