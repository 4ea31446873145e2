//! The programs of this project: their names, and where one of them finds another.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this program contains all others.
static CONTAINS_ALL: AtomicBool = AtomicBool::new(false);

/// The name of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// `batchweave`, with the operators' verbs.
    Operators,
    /// `batchweave-producer`, the daemon that makes batches.
    Producer,
    /// `batchweave-consumer`, the daemon that serves ranks.
    Consumer,
    /// `batchweave-lab`, with the verbs that measure and demonstrate.
    Lab,
}

impl Name {
    const ALL: [Self; 4] = [Self::Operators, Self::Producer, Self::Consumer, Self::Lab];

    /// Returns the name of the executable.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operators => "batchweave",
            Self::Producer => "batchweave-producer",
            Self::Consumer => "batchweave-consumer",
            Self::Lab => "batchweave-lab",
        }
    }

    /// Returns the program whose executable has this name, if there is one.
    pub fn from_word(word: impl AsRef<OsStr>) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|name| word.as_ref() == name.as_str())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The start of a command line that runs a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The path of an executable.
    pub path: PathBuf,
    /// Its first argument, for a file that contains several programs.
    pub first: Option<&'static str>,
}

impl Start {
    /// Returns the beginning of a command that runs the program.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(self.first);
        command
    }
}

/// Marks this program as one that contains all others: `batchweave-all`, whose first argument names one.
pub fn contains_all() {
    CONTAINS_ALL.store(true, Ordering::Relaxed);
}

/// Finds a program: this executable if it contains all, or else the file beside it. `None` when there is neither.
pub fn find(name: Name) -> Option<Start> {
    let this = std::env::current_exe().ok()?;
    find_from(this, name, CONTAINS_ALL.load(Ordering::Relaxed))
}

/// Finds a program as [`find`] does, or else leaves it to PATH.
pub fn start(name: Name) -> Start {
    find(name).unwrap_or_else(|| Start {
        path: name.as_str().into(),
        first: None,
    })
}

fn find_from(this: PathBuf, name: Name, contains_all: bool) -> Option<Start> {
    let start = if contains_all {
        Start {
            path: this,
            first: Some(name.as_str()),
        }
    } else {
        Start {
            path: this.with_file_name(name.as_str()),
            first: None,
        }
    };
    start.path.is_file().then_some(start)
}

/// Returns what to do when the program `name` was not found.
pub fn missing(name: Name) -> String {
    let this = std::env::current_exe().unwrap_or_default();
    let folder = this.parent().unwrap_or(Path::new("."));
    format!(
        "{name} is not in {}: build all programs with `cargo build --release --workspace`",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_by_its_word() {
        for name in Name::ALL {
            assert_eq!(Name::from_word(name.as_str()), Some(name));
        }
        assert_eq!(Name::from_word("batchweave-all"), None);
        assert_eq!(Name::from_word("status"), None);
    }

    #[test]
    fn a_program_is_beside_this_one_or_within_it() {
        let folder = tempfile::tempdir().unwrap();
        let this = folder.path().join("this");
        let find = |contains_all| find_from(this.clone(), Name::Consumer, contains_all);
        assert_eq!((find(false), find(true)), (None, None));
        std::fs::write(&this, "").unwrap();
        let within = Start {
            path: this.clone(),
            first: Some("batchweave-consumer"),
        };
        assert_eq!((find(false), find(true)), (None, Some(within.clone())));
        let beside = folder.path().join("batchweave-consumer");
        std::fs::write(&beside, "").unwrap();
        let beside = Start {
            path: beside,
            first: None,
        };
        // A file beside a program that contains all may be an older version.
        assert_eq!((find(false), find(true)), (Some(beside), Some(within)));
    }
}
