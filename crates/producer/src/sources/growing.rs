//! A list of input files that grows at its end, and the conditions for a file to join it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::InputList;

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
    /// A file is whole once another one exists with its name and this suffix; empty: by age.
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
        let marked = settled.is_none_or(|s| {
            s.marker.is_empty()
                || (!key.ends_with(&s.marker) && all.contains(&format!("{key}{}", s.marker)))
        });
        marked && !self.known.contains(name)
    }
}

impl Settled {
    fn file(&self, path: &Path, name: &str) -> bool {
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
}
