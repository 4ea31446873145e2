//! The files and folders that this process has made durable: by POSIX a file is, when its folder was synced after the link,
//! and each folder above in its parent.
//!
//! Invariants:
//! - a folder counts as durable after this process synced its parent, whichever process made it: the other may have been
//!   killed before its own sync;
//! - an object in a folder whose sync failed counts for this process after another sync that succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Folders that are remembered; beyond, all are synced again.
const KNOWN_MAX: usize = 10_000;

/// Distinguishes a folder from one that was made at its path later, also where the number of its inode is used again.
type Stamp = (u64, u64, Option<SystemTime>);

static KNOWN: Mutex<BTreeMap<PathBuf, Stamp>> = Mutex::new(BTreeMap::new());
static FAILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Makes a file durable that was linked into `folder`: the folders above first, since they hold it.
pub(super) fn settle(root: &Path, folder: &Path) -> io::Result<()> {
    let done = settle_above(root, folder).and_then(|()| sync_folder(folder));
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if done.is_ok() {
        failed.remove(folder);
    } else {
        failed.insert(folder.to_path_buf());
    }
    done
}

/// Syncs `folder` again if its last sync failed, before an object in it counts.
pub(super) fn settle_again(root: &Path, folder: &Path) -> io::Result<()> {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    let has_failed = failed.contains(folder);
    drop(failed);
    if has_failed {
        settle(root, folder)
    } else {
        Ok(())
    }
}

/// Notes that this process has removed `folder`.
pub(super) fn forget(folder: &Path) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.remove(folder);
}

/// Syncs the parents of `folder` and of all above that this process does not know yet.
fn settle_above(root: &Path, folder: &Path) -> io::Result<()> {
    let mut above: Vec<&Path> = folder
        .ancestors()
        .take_while(|each| *each != root)
        .collect();
    above.retain(|each| each.starts_with(root));
    if let Some(stamp) = unknown(root)? {
        settle_root(&root.canonicalize()?)?;
        remember(root, stamp);
    }
    for each in above.into_iter().rev() {
        if let (Some(stamp), Some(parent)) = (unknown(each)?, each.parent()) {
            sync_folder(parent)?;
            remember(each, stamp);
        }
    }
    Ok(())
}

/// Syncs the folders above the root, as far as this user may: one that it may not read was made by another.
fn settle_root(root: &Path) -> io::Result<()> {
    let above: Vec<&Path> = root.ancestors().skip(1).collect();
    for each in above.into_iter().rev() {
        match sync_folder(each) {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::InvalidInput
                ) => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Returns what a folder is recognized by, unless it is known.
fn unknown(folder: &Path) -> io::Result<Option<Stamp>> {
    let meta = fs::metadata(folder)?;
    let stamp = (meta.dev(), meta.ino(), meta.created().ok());
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((known.get(folder) != Some(&stamp)).then_some(stamp))
}

fn remember(folder: &Path, stamp: Stamp) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(folder.to_path_buf(), stamp);
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(folder: &Path) -> bool {
        unknown(folder).unwrap().is_none()
    }

    #[test]
    fn folders_of_another_process_are_synced_once() {
        let dir = tempfile::tempdir().unwrap();
        let (root, folder) = (dir.path(), dir.path().join("a/b"));
        fs::create_dir_all(&folder).unwrap();
        assert!(!is_known(&folder) && !is_known(root));
        settle(root, &folder).unwrap();
        assert!(is_known(root) && is_known(&root.join("a")) && is_known(&folder));
        // Another process removed it and made it again.
        fs::remove_dir(&folder).unwrap();
        fs::create_dir(root.join("a/other")).unwrap();
        fs::create_dir(&folder).unwrap();
        assert!(!is_known(&folder));
        settle(root, &folder).unwrap();
        forget(&folder);
        assert!(!is_known(&folder) && is_known(&root.join("a")));
    }

    #[test]
    fn a_folder_whose_sync_failed_is_synced_before_its_objects_count() {
        let dir = tempfile::tempdir().unwrap();
        let (root, folder) = (dir.path(), dir.path().join("a"));
        settle_again(root, &folder).unwrap();
        settle(root, &folder).unwrap_err();
        settle_again(root, &folder).unwrap_err();
        fs::create_dir(&folder).unwrap();
        settle_again(root, &folder).unwrap();
        fs::remove_dir(&folder).unwrap();
        settle_again(root, &folder).unwrap();
    }
}
