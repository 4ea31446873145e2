//! A list of input files that grows at its end, and the conditions for a file to join it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::{InputList, SourceError};

/// The current list of input files, shared by the stages. It grows at its end only, so places stay valid.
#[derive(Debug)]
pub struct Inputs(RwLock<Arc<InputList>>);

impl Inputs {
    /// Returns the shared list that starts as `list`.
    pub fn new(list: InputList) -> Self {
        Self(RwLock::new(Arc::new(list)))
    }

    /// Returns the current list.
    pub fn now(&self) -> Arc<InputList> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the list by `list`, which must begin with the files of the current one.
    pub fn replace(&self, list: InputList) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(list);
    }
}

/// The conditions for a file to join the list.
#[derive(Debug, Clone, Default)]
pub(super) struct FileFilter {
    /// Names of files that are in the list already.
    pub(super) known: BTreeSet<String>,
    /// Accept only files that have settled; a path may match nothing yet.
    pub(super) settled: Option<Settled>,
}

/// The condition for a file to count as whole.
#[derive(Debug, Clone)]
pub struct Settled {
    /// A file is whole once another one exists with its name and this suffix; with a marker that begins with `_`, once
    /// its folder or one above it holds a file of this name. Empty: by age.
    pub marker: String,
    /// Without a marker, a file is whole when it was last written at least this long ago. Objects of a store are
    /// whole as soon as they exist.
    pub age: Duration,
}

impl FileFilter {
    /// Returns whether a file of this machine is accepted.
    pub(super) fn accepts_file(&self, path: &Path) -> bool {
        let name = path.display().to_string();
        !self.known.contains(&name)
            && self
                .settled
                .as_ref()
                .is_none_or(|settled| settled.file(path, &name))
    }

    /// Returns whether the object `key`, whose full name is `name`, is accepted; `all` are the keys beside it.
    pub(super) fn accepts_object(&self, key: &str, name: &str, all: &BTreeSet<String>) -> bool {
        let settled = self.settled.as_ref();
        let marked = settled.is_none_or(|s| match s.of_folder() {
            Some(marker) => {
                is_output(key)
                    && folders(key).any(|folder| all.contains(&format!("{folder}{marker}")))
            }
            None if s.marker.is_empty() => true,
            None => !key.ends_with(&s.marker) && all.contains(&format!("{key}{}", s.marker)),
        });
        marked && !self.known.contains(name)
    }

    /// Fails when the files of `path` are `none`, unless they may come later; `left_out` are those that are none by name.
    pub(super) fn check_some(
        &self,
        path: &str,
        none: bool,
        left_out: &[String],
    ) -> Result<(), SourceError> {
        if !none || self.settled.is_some() {
            return Ok(());
        }
        let path = path.to_owned();
        Err(match left_out.first() {
            None => SourceError::NoMatch { path },
            Some(first) => SourceError::OnlyLeftOut {
                path,
                first: first.clone(),
                number: left_out.len(),
            },
        })
    }
}

/// Returns whether no part of `key` is hidden, as engines name what is not output.
fn is_output(key: &str) -> bool {
    !key.split('/').any(|part| part.starts_with(['_', '.']))
}

/// Returns the folders that `key` is in, each with a slash at its end; the listed one is empty.
fn folders(key: &str) -> impl Iterator<Item = &str> {
    let ends = key.match_indices('/').map(|(at, _)| &key[..=at]);
    std::iter::once("").chain(ends)
}

impl Settled {
    /// Returns the marker of a whole folder.
    fn of_folder(&self) -> Option<&str> {
        self.marker.starts_with('_').then_some(self.marker.as_str())
    }

    /// The same for a file of this machine, where `_temporary` and hidden folders have no marker above the output.
    fn of_marked_folder(path: &Path, marker: &str) -> bool {
        let mut folder = path;
        loop {
            let hidden = |name: &std::ffi::OsStr| {
                name.as_encoded_bytes().starts_with(b"_")
                    || name.as_encoded_bytes().starts_with(b".")
            };
            if folder.file_name().is_none_or(hidden) {
                return false;
            }
            match folder.parent() {
                Some(above) if above.join(marker).exists() => return true,
                Some(above) => folder = above,
                None => return false,
            }
        }
    }

    fn file(&self, path: &Path, name: &str) -> bool {
        if let Some(marker) = self.of_folder() {
            return Self::of_marked_folder(path, marker);
        }
        if !self.marker.is_empty() {
            let marker = format!("{name}{}", self.marker);
            return !name.ends_with(&self.marker) && Path::new(&marker).exists();
        }
        let written = path.metadata().and_then(|meta| meta.modified());
        // A time in the future is an error of a clock: wait until it has passed.
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= self.age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_settle_by_marker_or_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.jsonl");
        std::fs::write(&file, "x").unwrap();
        let filter = |marker: &str, age| FileFilter {
            settled: Some(Settled {
                marker: marker.to_owned(),
                age: Duration::from_secs(age),
            }),
            ..FileFilter::default()
        };
        assert!(filter("", 0).accepts_file(&file));
        assert!(!filter("", 3600).accepts_file(&file));
        assert!(!filter(".done", 0).accepts_file(&file));
        let marker = folder.path().join("a.jsonl.done");
        std::fs::write(&marker, "").unwrap();
        assert!(filter(".done", 3600).accepts_file(&file));
        assert!(
            !filter(".done", 0).accepts_file(&marker),
            "a marker is not input"
        );
        let known = FileFilter {
            known: [file.display().to_string()].into(),
            ..FileFilter::default()
        };
        assert!(!known.accepts_file(&file));
        let all: BTreeSet<String> = ["a", "a.done", "b"].map(str::to_owned).into();
        let taken = |key| filter(".done", 0).accepts_object(key, key, &all);
        assert_eq!(["a", "a.done", "b"].map(taken), [true, false, false]);
    }

    #[test]
    fn folders_settle_as_engines_commit_them() {
        let names = [
            "job/part-0.parquet",
            "job/day=1/part-0.parquet",
            "job/_temporary/0/part-1.parquet",
            "job/.part-0.parquet.crc",
            "job/_SUCCESS",
            "next/part-0.parquet",
            "next/_temporary/0/_SUCCESS",
        ];
        let wanted = [true, true, false, false, false, false, false];
        let filter = FileFilter {
            settled: Some(Settled {
                marker: "_SUCCESS".to_owned(),
                age: Duration::ZERO,
            }),
            ..FileFilter::default()
        };
        let all: BTreeSet<String> = names.map(str::to_owned).into();
        assert_eq!(
            names.map(|key| filter.accepts_object(key, key, &all)),
            wanted
        );
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join("out").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let root = folder.path().join("out");
        assert_eq!(
            names.map(|name| filter.accepts_file(&root.join(name))),
            wanted
        );
    }
}
