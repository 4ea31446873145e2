//! A list of input files that grows at its end, and when a file may join it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::InputList;

/// The list as it is now; places in it stay what they are.
#[derive(Debug)]
pub struct Inputs(RwLock<Arc<InputList>>);

impl Inputs {
    /// Begins with `list`.
    pub fn new(list: InputList) -> Self {
        Self(RwLock::new(Arc::new(list)))
    }

    /// As it is now.
    pub fn now(&self) -> Arc<InputList> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// `list` begins with the files that there were.
    pub fn replace(&self, list: InputList) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(list);
    }
}

/// Which files to look for.
#[derive(Debug, Clone, Default)]
pub struct Looking {
    /// Names that are known already: passed over.
    pub known: BTreeSet<String>,
    /// Only files that have settled; then a path may also match nothing yet.
    pub settled: Option<Settled>,
}

/// When a file is whole.
#[derive(Debug, Clone)]
pub struct Settled {
    /// Once there is a file of its name with this behind it; empty: by age.
    pub marker: String,
    /// Once it was not written for so long. Objects of a store are whole as soon as they are there.
    pub age: Duration,
}

impl Looking {
    /// Whether a file of this machine is wanted.
    pub(super) fn takes_file(&self, path: &Path) -> bool {
        let name = path.display().to_string();
        !self.known.contains(&name)
            && self
                .settled
                .as_ref()
                .is_none_or(|settled| settled.file(path, &name))
    }

    /// Whether the object `key`, whose whole name is `name`, is wanted; `all` are the keys beside it.
    pub(super) fn takes_object(&self, key: &str, name: &str, all: &BTreeSet<String>) -> bool {
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
        // A time in the future is a clock that goes wrong: wait for it.
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
        let looking = |marker: &str, age| Looking {
            settled: Some(Settled {
                marker: marker.to_owned(),
                age: Duration::from_secs(age),
            }),
            ..Looking::default()
        };
        assert!(looking("", 0).takes_file(&file));
        assert!(!looking("", 3600).takes_file(&file));
        assert!(!looking(".done", 0).takes_file(&file));
        let marker = folder.path().join("a.jsonl.done");
        std::fs::write(&marker, "").unwrap();
        assert!(looking(".done", 3600).takes_file(&file));
        assert!(
            !looking(".done", 0).takes_file(&marker),
            "a marker is no input"
        );
        let known = Looking {
            known: [file.display().to_string()].into(),
            ..Looking::default()
        };
        assert!(!known.takes_file(&file));
        let all: BTreeSet<String> = ["a", "a.done", "b"].map(str::to_owned).into();
        let taken = |key| looking(".done", 0).takes_object(key, key, &all);
        assert_eq!(["a", "a.done", "b"].map(taken), [true, false, false]);
    }
}
