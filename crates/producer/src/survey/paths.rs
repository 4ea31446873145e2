//! The value of `source.paths` that names the files of a group and no others, also not those that a run writes later.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::groups::FoundGroup;
use crate::sources::{InputFile, ending};

/// Most paths of a source.
const PATHS_MAX: usize = 32;

/// The path that is surveyed.
pub(super) struct Root {
    path: String,
    is_file: bool,
    /// The stream's files will lie at or below it.
    holds_outputs: bool,
    /// The files at or below it that are left out.
    left_out: Vec<InputFile>,
}

impl Root {
    /// Returns the path, with the folder of the stream's files and the files that are left out.
    pub(super) fn new(path: &str, outputs: &Path, left_out: Vec<InputFile>) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
        let root = Path::new(path);
        Self {
            path: path.to_owned(),
            is_file: root.is_file(),
            holds_outputs: real(outputs).starts_with(real(root)),
            left_out,
        }
    }

    /// Returns the paths of a group, which may be the only one; none where they would be too many.
    pub(super) fn paths(&self, group: &FoundGroup, is_only: bool) -> Vec<String> {
        if self.is_file || (is_only && !self.holds_outputs && self.left_out.is_empty()) {
            return vec![self.path.clone()];
        }
        let name = |file: &InputFile| file.pin.name.clone();
        let mut paths: BTreeSet<String> =
            group.files.iter().map(|f| self.pattern(&name(f))).collect();
        if self
            .left_out
            .iter()
            .any(|f| paths.contains(&self.pattern(&name(f))))
        {
            paths = group
                .files
                .iter()
                .map(|f| self.joined(&glob::Pattern::escape(self.below(&f.pin.name))))
                .collect();
        }
        if paths.len() > PATHS_MAX {
            return Vec::new();
        }
        paths.into_iter().collect()
    }

    /// Returns the name of a file without the path.
    fn below<'n>(&self, name: &'n str) -> &'n str {
        let below = Path::new(name).strip_prefix(&self.path);
        below.map_or(name, |below| below.to_str().unwrap_or(name))
    }

    /// Returns the pattern of the files in the same place with the same ending.
    fn pattern(&self, name: &str) -> String {
        let (below, ending) = (self.below(name), ending(name));
        if ending.is_empty() {
            return self.joined(&glob::Pattern::escape(below));
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
