//! Publishing a file: write it under a hidden name, sync it, link it to its final name exclusively,
//! sync the folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{HIDDEN, durable};
use crate::{Create, Effect};

/// Age of a hidden file that a dead process left behind; no write takes this long.
const STALE_AFTER: Duration = Duration::from_hours(24);
/// Tries of a link, because a deletion may remove the folder between its creation and the link into it.
/// Concurrent deletions have won this race sixteen times in a row.
const LINK_TRIES: usize = 1000;

/// A failed publication, and whether the final name may exist.
pub(super) struct Failure {
    pub(super) error: io::Error,
    pub(super) effect: Effect,
}

fn did_not(error: io::Error) -> Failure {
    Failure {
        error,
        effect: Effect::DidNot,
    }
}

/// Creates `target` below `root` with `body` if it is absent.
pub(super) fn publish(root: &Path, target: &Path, body: &[u8]) -> Result<Create, Failure> {
    let parent = target.parent().unwrap_or(root);
    let created = if fs::symlink_metadata(target).is_ok_and(|meta| meta.is_file()) {
        Create::Exists
    } else {
        let draft = Draft::write(&root.join(HIDDEN), body).map_err(did_not)?;
        draft.link(parent, target).map_err(did_not)?
    };
    let settled = match created {
        Create::Created => durable::settle(root, parent),
        // It may be our own, of a try whose sync failed.
        Create::Exists => durable::settle_again(root, parent),
    };
    settled.map_err(|error| Failure {
        error,
        effect: Effect::Unknown,
    })?;
    Ok(created)
}

/// A complete, synced file under a hidden name, removed when dropped.
struct Draft(PathBuf);

impl Draft {
    fn write(hidden: &Path, body: &[u8]) -> io::Result<Self> {
        let name = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
        // A link would redirect writes and deletions to another folder.
        if fs::symlink_metadata(hidden).is_ok_and(|meta| !meta.is_dir()) {
            let name = hidden.display();
            let text = format!(
                "{name} is not a folder, but the store needs this name for its own: remove it"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let draft = Self(hidden.join(name));
        let options = OpenOptions::new().write(true).create_new(true).clone();
        let mut tries = LINK_TRIES;
        let mut file = loop {
            match options.open(&draft.0) {
                // Absent, or removed by an `Inspect::tidy` of an empty store.
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries > 0 => {
                    tries -= 1;
                    create_folders(hidden)?;
                }
                opened => break opened?,
            }
        };
        file.write_all(body)?;
        file.sync_all()?;
        Ok(draft)
    }

    fn link(&self, parent: &Path, target: &Path) -> io::Result<Create> {
        let mut tries = LINK_TRIES;
        loop {
            match self.link_once(target) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries > 0 => {
                    tries -= 1;
                    match create_folders(parent) {
                        Err(e) if e.kind() == io::ErrorKind::NotFound && tries > 0 => {}
                        made => made?,
                    }
                }
                result => return result,
            }
        }
    }

    fn link_once(&self, target: &Path) -> io::Result<Create> {
        let error = match fs::hard_link(&self.0, target) {
            Ok(()) => return Ok(Create::Created),
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::AlreadyExists => self.creation_result(target),
            // File systems without hard links.
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::Unsupported
            | io::ErrorKind::TooManyLinks => self.rename(target, error),
            _ => Err(error),
        }
    }

    /// Compares the files, because an NFS client that repeats a link after a lost answer is answered "exists".
    fn creation_result(&self, target: &Path) -> io::Result<Create> {
        let (ours, there) = (
            fs::symlink_metadata(&self.0)?,
            fs::symlink_metadata(target)?,
        );
        if there.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let same = ours.ino() == there.ino() && ours.dev() == there.dev();
        Ok(if same {
            Create::Created
        } else {
            Create::Exists
        })
    }

    fn rename(&self, target: &Path, link_error: io::Error) -> io::Result<Create> {
        match renameat_with(CWD, &self.0, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Create::Created),
            Err(rustix::io::Errno::EXIST) => Ok(Create::Exists),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the file system has neither hard links ({link_error}) nor exclusive rename"
                ),
            )),
            Err(_) => Err(link_error),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename the file is gone; one that stays is swept when the store is opened later.
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates a folder and its missing parents. [`durable::settle`] syncs them with the first object.
pub(super) fn create_folders(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_folders(parent)?;
    }
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match fs::metadata(path) {
            Ok(there) if there.is_dir() => Ok(()),
            Ok(_) => Err(e),
            // Removed meanwhile: the caller creates it again.
            Err(gone) => Err(gone),
        },
        result => result,
    }
}

/// Removes the folders between `root` and a deleted file that are empty now. The system refuses to remove
/// any other, so a concurrently created file is safe; its creator creates missing folders again.
pub(super) fn prune(root: &Path, deleted: &Path) {
    let above = deleted.ancestors().skip(1);
    for folder in above.take_while(|folder| *folder != root && folder.starts_with(root)) {
        if fs::remove_dir(folder).is_err() {
            return;
        }
        durable::forget(folder);
    }
}

/// Returns whether `name` is one that `Draft` gives.
pub(super) fn is_ours(name: &str) -> bool {
    name.split_once('-').is_some_and(|(process, random)| {
        let digits = !process.is_empty() && process.bytes().all(|c| c.is_ascii_digit());
        digits && random.len() == 16 && random.bytes().all(|c| c.is_ascii_hexdigit())
    })
}

/// Removes files of dead processes from the hidden folder, as far as possible.
pub(super) fn sweep(hidden: &Path) {
    for path in stale(hidden) {
        let _ = fs::remove_file(path);
    }
}

/// Returns the files of dead processes in the hidden folder.
pub(super) fn stale(hidden: &Path) -> Vec<PathBuf> {
    // A folder behind a link is not ours.
    if !fs::symlink_metadata(hidden).is_ok_and(|meta| meta.is_dir()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(hidden) else {
        return Vec::new();
    };
    let old = entries.flatten().filter(|entry| {
        // The metadata of a link itself, not of its target.
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file);
        let ours = entry.file_name().to_str().is_some_and(is_ours);
        let modified = meta.and_then(|meta| meta.modified().ok());
        ours && matches!(modified.map(|at| at.elapsed()), Some(Ok(age)) if age > STALE_AFTER)
    });
    old.map(|entry| entry.path()).collect()
}
