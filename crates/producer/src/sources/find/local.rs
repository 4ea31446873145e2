//! Finds files of this machine: those of a folder and below it, or those that a pattern matches.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use batchweave_store::local_path;

use super::super::growing::FileFilter;
use super::super::left_out::{Cause, LeftOut, SpelledOut};
use super::super::{InputList, SourceError};
use super::pin::pin_all;

/// The files of one path.
#[derive(Default)]
struct Found {
    files: BTreeSet<PathBuf>,
    /// Names of the files and folders that are left out; `**` matches those of a nested folder more than once.
    left_out: BTreeSet<String>,
    linked: BTreeSet<String>,
    /// Files whose names are not UTF-8; lists and messages could not distinguish them.
    not_utf8: BTreeSet<PathBuf>,
}

/// Finds the files of all `paths` and pins them together.
pub(super) fn local(paths: &[String], filter: &FileFilter) -> Result<InputList, SourceError> {
    let mut all = Vec::new();
    let mut left_out = LeftOut::default();
    for path in paths {
        let before = all.len();
        let found = Found::for_path(local_path(path).unwrap_or(path))?;
        if let Some(first) = found.not_utf8.first() {
            return Err(SourceError::NotUtf8 {
                first: first
                    .as_os_str()
                    .as_encoded_bytes()
                    .escape_ascii()
                    .to_string(),
                number: found.not_utf8.len(),
            });
        }
        all.extend(
            found
                .files
                .into_iter()
                .filter(|path| filter.accepts_file(path)),
        );
        let names: Vec<String> = found.left_out.into_iter().collect();
        filter.check_some(path, all.len() == before, &names)?;
        left_out.add(path, Cause::Name, names);
        left_out.add(
            path,
            Cause::LinkedFolder,
            found.linked.into_iter().collect(),
        );
    }
    Ok(InputList {
        files: pin_all(&all)?,
        left_out,
    })
}

impl Found {
    fn for_path(pattern: &str) -> Result<Self, SourceError> {
        let mut found = Self::default();
        let exists = Path::new(pattern).try_exists();
        if exists.map_err(|why| SourceError::unreadable(pattern, why))? {
            found.walk(Path::new(pattern))?;
        } else if pattern.contains(['*', '?', '[']) {
            let spelled = SpelledOut::of_pattern(pattern);
            for path in globbed(pattern)? {
                let path = path?;
                if spelled.leaves_out(&path.display().to_string()) {
                    found.left_out.insert(path.display().to_string());
                } else {
                    found.walk(&path)?;
                }
            }
            found.not_utf8.extend(not_utf8(pattern)?);
        }
        Ok(found)
    }

    /// Adds all files at or below `path`. Links to folders below it are not followed, because they may form a cycle.
    fn walk(&mut self, path: &Path) -> Result<(), SourceError> {
        let at = |why| SourceError::unreadable(&path.display().to_string(), why);
        if !path.is_dir() {
            if path.to_str().is_some() {
                self.files.insert(path.to_owned());
            } else {
                self.not_utf8.insert(path.to_owned());
            }
            return Ok(());
        }
        for entry in std::fs::read_dir(path).map_err(at)? {
            let entry = entry.map_err(at)?;
            let (name, path) = (entry.file_name(), entry.path());
            let is_folder = path.is_dir();
            let linked_folder = is_folder && path.is_symlink();
            if is_left_out_by_name(&name, is_folder) {
                self.left_out.insert(path.display().to_string());
            } else if linked_folder {
                self.linked.insert(path.display().to_string());
            } else {
                self.walk(&path)?;
            }
        }
        Ok(())
    }
}

/// Returns whether an entry of a folder is left out because of its name.
fn is_left_out_by_name(name: &OsStr, is_folder: bool) -> bool {
    let name = name.to_string_lossy();
    let spelled = SpelledOut::default();
    if is_folder {
        spelled.leaves_out(&format!("{name}/x"))
    } else {
        spelled.leaves_out(&name)
    }
}

fn globbed(
    pattern: &str,
) -> Result<impl Iterator<Item = Result<PathBuf, SourceError>>, SourceError> {
    let matches = glob::glob(pattern).map_err(|e| SourceError::Pattern {
        path: pattern.to_owned(),
        detail: e.to_string(),
    })?;
    Ok(matches.map(|entry| {
        entry.map_err(|e| {
            SourceError::unreadable(&e.path().display().to_string(), io::Error::from(e))
        })
    }))
}

/// Returns the files and folders that `pattern` would match if their names were UTF-8: the library passes them over.
fn not_utf8(pattern: &str) -> Result<Vec<PathBuf>, SourceError> {
    let mut found = Vec::new();
    let ends = pattern.match_indices('/').map(|(at, _)| at);
    let ends: Vec<usize> = ends.chain([pattern.len()]).collect();
    for (from, to) in ends.iter().zip(&ends[1..]) {
        let segment = &pattern[from + 1..*to];
        if !segment.contains(['*', '?', '[']) {
            continue;
        }
        // `**` stands for folders of any depth: the segments behind it are compared in each of them.
        let Ok(wanted) = glob::Pattern::new(segment) else {
            continue;
        };
        let folder = if *from == 0 { "/" } else { &pattern[..*from] };
        for folder in globbed(folder)? {
            let folder = folder?;
            if !folder.is_dir() {
                continue;
            }
            let at = |why| SourceError::unreadable(&folder.display().to_string(), why);
            for entry in std::fs::read_dir(&folder).map_err(at)? {
                let entry = entry.map_err(at)?;
                let name = entry.file_name();
                if name.to_str().is_none() && wanted.matches(&name.to_string_lossy()) {
                    found.push(entry.path());
                }
            }
        }
    }
    Ok(found)
}
