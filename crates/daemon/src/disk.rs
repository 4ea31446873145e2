//! Free space of the file system that holds a local store.

use std::path::{Path, PathBuf};

use batchweave_store::local_path;
use rustix::fs::statvfs;

/// The free space of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeSpace {
    /// The store's folder, or the nearest folder above it that exists.
    pub folder: PathBuf,
    /// Bytes that this user may still write.
    pub bytes: u64,
}

/// Returns the free space below the store `url`; `None` for one that is not a folder of this machine.
pub fn free_space(url: &str) -> Option<FreeSpace> {
    let path = Path::new(local_path(url)?);
    let mut there = path.is_absolute().then(|| path.ancestors())?;
    let folder = there.find(|folder| folder.is_dir())?.to_path_buf();
    let space = statvfs(&folder).ok()?;
    let bytes = space.f_bavail.saturating_mul(space.f_frsize);
    Some(FreeSpace { folder, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_this_machine_have_free_space() {
        let folder = tempfile::tempdir().unwrap();
        let url = |path: &str| format!("file://{}/{path}", folder.path().display());
        let space = free_space(&url("not/yet")).unwrap();
        assert_eq!(space.folder, folder.path());
        assert_eq!(free_space("s3://bucket/prefix"), None);
        assert_eq!(free_space("relative"), None);
    }
}
