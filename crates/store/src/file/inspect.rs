//! Checks whether files may be created in a folder, without creating one.

use std::fs;
use std::path::Path;

use async_trait::async_trait;
use rustix::fs::{Access, access};

use super::{FileStore, HIDDEN, blocking};
use crate::{Effect, Inspect, Op, StoreError};

#[async_trait]
impl Inspect for FileStore {
    /// Checks that the nearest existing folder above `key` is writable.
    async fn may_create(&self, key: &str) -> Result<(), StoreError> {
        self.run(Op::Create, key, |folder, key, path| {
            let there = path.ancestors().skip(1).find(|above| above.exists());
            let above = there.unwrap_or(&folder.path);
            access(above, Access::WRITE_OK | Access::EXEC_OK)
                .map_err(|errno| folder.io(Op::Create, key, &errno.into(), Effect::DidNot))
        })
        .await
    }

    /// Removes empty folders below the root, and the store's own folder where there is nothing else.
    async fn tidy(&self, prefix: &str) -> Result<(), StoreError> {
        let (root, prefix) = (self.0.path.clone(), prefix.to_owned());
        blocking(move || {
            let mut folder = root.join(prefix.trim_end_matches('/'));
            while folder != root && folder.starts_with(&root) && remove_empty(&folder) {
                folder.pop();
            }
            if is_only_hidden(&root) {
                remove_empty(&root.join(HIDDEN));
            }
            Ok(())
        })
        .await
    }
}

/// Returns whether nothing is in the folder `root` beside the store's own folder.
fn is_only_hidden(root: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(root) else {
        return false;
    };
    entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == HIDDEN))
}

fn remove_empty(folder: &Path) -> bool {
    fs::remove_dir(folder).is_ok()
}
