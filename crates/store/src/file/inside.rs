//! Access to files below the root only. Others may write in a shared folder; their links, pipes and
//! devices must neither lead elsewhere nor block a reader.
//!
//! Invariants:
//! - no link is followed in any part of a key; the root itself may be reached by links;
//! - only regular files are objects.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;

/// The error of a key that is not a regular file.
const NO_OBJECT: &str = "is a link, a pipe or a device, or leads through a link; this folder \
                                    may contain only regular files: remove it";

/// Opens below `root` without following links. Without `openat2` (before Linux 5.6, some sandboxes) links
/// in the middle of a key are followed.
fn open(root: &Path, key: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, folder, Mode::empty())?;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let opened = match openat2(&root, key, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => {
            openat(&root, key, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        opened => opened,
    };
    Ok(opened?)
}

fn no_object() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, NO_OBJECT)
}

/// Returns whether `error` says that a key is not a regular file.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput && error.get_ref().is_some()
}

fn named(error: io::Error) -> io::Error {
    let link = Errno::from_io_error(&error) == Some(Errno::LOOP);
    if link { no_object() } else { error }
}

/// Opens a regular file for reading, without waiting for a pipe's writer. [`is_refusal`] tells a refusal from a failure.
pub fn file(root: &Path, key: &Path) -> io::Result<File> {
    // Non-blocking, because a pipe without a writer would wait for one.
    let file = File::from(open(root, key, OFlags::RDONLY | OFlags::NONBLOCK).map_err(named)?);
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if meta.is_file() {
        Ok(file)
    } else {
        Err(no_object())
    }
}

/// Opens the folder of `key` and returns it with the key's last name.
fn parent<'k>(root: &Path, key: &'k Path) -> io::Result<(OwnedFd, &'k OsStr)> {
    let name = key.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let above = key
        .parent()
        .filter(|above| *above != Path::new(""))
        .unwrap_or(Path::new("."));
    let folder = open(root, above, OFlags::PATH | OFlags::DIRECTORY).map_err(named)?;
    Ok((folder, name))
}

/// Returns the size of a regular file and the time of its last change.
pub fn size(root: &Path, key: &Path) -> io::Result<(u64, Option<SystemTime>)> {
    let (folder, name) = parent(root, key)?;
    let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {
            let seconds = u64::try_from(found.st_mtime).ok();
            let nanos = u32::try_from(found.st_mtime_nsec).unwrap_or_default();
            let since = seconds.map(|seconds| Duration::new(seconds, nanos.min(999_999_999)));
            let modified = since.and_then(|since| UNIX_EPOCH.checked_add(since));
            Ok((found.st_size.cast_unsigned(), modified))
        }
        FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(no_object()),
    }
}

/// Deletes the file or link under `key`.
pub fn delete(root: &Path, key: &Path) -> io::Result<()> {
    let (folder, name) = parent(root, key)?;
    Ok(unlinkat(&folder, name, AtFlags::empty())?)
}

/// Returns whether the folder exists.
pub(super) fn is_folder(root: &Path, key: &Path) -> io::Result<bool> {
    if key == Path::new("") {
        return Ok(true);
    }
    match open(root, key, OFlags::PATH | OFlags::DIRECTORY).map_err(named) {
        Ok(_) => Ok(true),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}
