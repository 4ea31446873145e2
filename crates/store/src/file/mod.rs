//! A store in a folder: one file per object, created by link(2), so that local disks and NFS serve
//! tests, laptops and single machines with the same guarantees as S3.
//!
//! Invariants:
//! - A final name appears only by an atomic, exclusive link of a complete, synced file.
//! - Only files in the hidden folder are ever written to; final files are immutable.
//! - `Created` is answered after the file's folder and those above were synced.
//! - Reading never deletes anything.

mod durable;
pub mod inside;
mod inspect;
mod publish;
mod reader;
mod walk;
mod watch;

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};

pub use self::reader::FileRange;
pub use self::watch::Watch;
use crate::{
    Body, Chunks, Create, Effect, ErrorKind, Inspect, ListPage, Location, ObjectMeta, Op,
    PendingUpload, Store, StoreError, key,
};

/// The folder of files without their final names; no key may begin with it.
const HIDDEN: &str = ".batchweave-tmp";
const CHUNK_BYTES: u64 = 1 << 20;

/// A store whose objects are files below a folder.
#[derive(Debug, Clone)]
pub struct FileStore(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    root: String,
    path: PathBuf,
    /// Files of dead processes have been removed.
    swept: Once,
}

impl FileStore {
    /// Opens the folder at an absolute path; creates it only if `create` is set.
    pub async fn open(path: &Path, create: bool) -> Result<Self, StoreError> {
        let path = path.to_path_buf();
        blocking(move || Folder::open(path, create))
            .await
            .map(|folder| Self(Arc::new(folder)))
    }

    /// Opens the folder at an absolute path, which may not exist yet.
    pub async fn open_later(path: &Path) -> Result<Self, StoreError> {
        match Self::open(path, false).await {
            Err(why) if why.kind == ErrorKind::NoBucket => {
                let folder = Folder::at(path.to_path_buf());
                Ok(Self(Arc::new(folder)))
            }
            opened => opened,
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        op: Op,
        key: &str,
        work: impl FnOnce(&Folder, &str, &Path) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let folder = Arc::clone(&self.0);
        let key = key.to_owned();
        folder.check(op, &key)?;
        blocking(move || work(&folder, &key, &folder.path.join(&key))).await
    }

    async fn range(&self, key: &str, range: Range<u64>) -> Result<FileRange, StoreError> {
        key::check_range(&self.0.root, key, &range)?;
        self.0.check(Op::GetRange, key)?;
        let (folder, key) = (Arc::clone(&self.0), key.to_owned());
        blocking(move || FileRange::open(folder, key, range)).await
    }
}

impl Folder {
    fn at(path: PathBuf) -> Self {
        let root = Location::Folder(&path).to_string();
        let swept = Once::new();
        Self { root, path, swept }
    }

    fn open(path: PathBuf, create: bool) -> Result<Self, StoreError> {
        let folder = Self::at(path);
        if create && !folder.path.exists() {
            publish::create_folders(&folder.path).map_err(|e| folder.not_created(&e))?;
        }
        let meta =
            fs::metadata(&folder.path).map_err(|e| folder.io(Op::Open, "", &e, Effect::DidNot))?;
        if !meta.is_dir() {
            let detail = "is not a folder; give a folder of its own to the stream";
            return Err(folder.error(Op::Open, "", ErrorKind::Invalid, Effect::DidNot, detail));
        }
        Ok(folder)
    }

    /// Returns the error for a root that could not be created; a file in its path is named.
    fn not_created(&self, error: &io::Error) -> StoreError {
        let mut above = self.path.ancestors();
        let Some(file) = above
            .find(|above| above.exists())
            .filter(|there| !there.is_dir())
        else {
            return self.io(Op::Open, "", error, Effect::DidNot);
        };
        let detail = format!(
            "can't be created: {} is not a folder; give a folder of its own to the stream",
            file.display()
        );
        self.error(Op::Open, "", ErrorKind::Invalid, Effect::DidNot, detail)
    }

    fn check(&self, op: Op, key: &str) -> Result<(), StoreError> {
        key::check(op, &self.root, key)?;
        if key.split('/').next() == Some(HIDDEN) {
            let detail = format!("{HIDDEN} is the store's own folder");
            return Err(self.error(op, key, ErrorKind::Invalid, Effect::DidNot, detail));
        }
        Ok(())
    }

    fn error(
        &self,
        op: Op,
        key: &str,
        kind: ErrorKind,
        effect: Effect,
        detail: impl Into<String>,
    ) -> StoreError {
        let location = if key.is_empty() {
            self.root.clone()
        } else {
            format!("{}/{key}", self.root)
        };
        StoreError::new(op, location, kind, effect, detail)
    }

    fn io(&self, op: Op, key: &str, error: &io::Error, effect: Effect) -> StoreError {
        let kind = match kind_of(error) {
            ErrorKind::NotFound if !self.path.is_dir() => ErrorKind::NoBucket,
            kind => kind,
        };
        self.error(op, key, kind, effect, error.to_string())
    }

    fn create(&self, op: Op, key: &str, body: &[u8]) -> Result<Create, StoreError> {
        if !self.path.is_dir() {
            let gone = io::Error::from(io::ErrorKind::NotFound);
            return Err(self.io(op, key, &gone, Effect::DidNot));
        }
        let hidden = self.path.join(HIDDEN);
        self.swept.call_once(|| publish::sweep(&hidden));
        publish::publish(&self.path, &self.path.join(key), body)
            .map_err(|failure| self.io(op, key, &failure.error, failure.effect))
    }

    /// Syncs the folder of `key` again if that failed, since the object may be our own.
    fn settle(&self, op: Op, key: &str) -> Result<(), StoreError> {
        let path = self.path.join(key);
        let folder = path.parent().unwrap_or(&self.path);
        durable::settle_again(&self.path, folder).map_err(|e| self.io(op, key, &e, Effect::DidNot))
    }

    fn size(&self, op: Op, key: &str) -> Result<(u64, Option<SystemTime>), StoreError> {
        self.settle(op, key)?;
        inside::size(&self.path, Path::new(key)).map_err(|e| self.io(op, key, &e, Effect::DidNot))
    }

    fn open_file(&self, op: Op, key: &str) -> Result<File, StoreError> {
        self.settle(op, key)?;
        inside::file(&self.path, Path::new(key)).map_err(|e| self.io(op, key, &e, Effect::DidNot))
    }
}

impl Folder {
    fn whole(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let failed = |error| self.io(Op::Get, key, &error, Effect::DidNot);
        let file = self.open_file(Op::Get, key)?;
        let size = file.metadata().map_err(failed)?.len();
        let too_large = |size| {
            let location = format!("{}/{key}", self.root);
            Err(StoreError::too_large(location, size, at_most))
        };
        if size > at_most {
            return too_large(Some(size));
        }
        let mut body = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        // Bounded, because a file of another program may grow while it is read.
        let mut bounded = file.take(at_most.saturating_add(1));
        bounded.read_to_end(&mut body).map_err(failed)?;
        if body.len() as u64 > at_most {
            return too_large(None);
        }
        Ok(Bytes::from(body))
    }
}

fn kind_of(error: &io::Error) -> ErrorKind {
    use io::ErrorKind as K;
    match error.kind() {
        K::NotFound | K::NotADirectory | K::IsADirectory => ErrorKind::NotFound,
        K::PermissionDenied | K::ReadOnlyFilesystem => ErrorKind::Denied,
        K::StorageFull | K::QuotaExceeded | K::FileTooLarge => ErrorKind::Full,
        K::InvalidFilename | K::AlreadyExists => ErrorKind::Invalid,
        // An error of our own; the system's EINVAL has no inner error.
        K::InvalidInput if error.get_ref().is_some() => ErrorKind::Invalid,
        K::TimedOut | K::StaleNetworkFileHandle => ErrorKind::Timeout,
        K::Unsupported => ErrorKind::Contract,
        _ => ErrorKind::Other,
    }
}

/// Runs file work on a blocking thread. It continues even when the caller is dropped.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            let detail = format!("a file operation was aborted: {error}");
            Err(StoreError::new(
                Op::Open,
                "file://",
                ErrorKind::Other,
                Effect::Unknown,
                detail,
            ))
        }
    }
}

#[async_trait]
impl Store for FileStore {
    fn root(&self) -> &str {
        &self.0.root
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.run(Op::Create, key, move |folder, key, _| {
            folder.create(Op::Create, key, &body)
        })
        .await
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.run(Op::Upload, key, move |folder, key, _| {
            if folder.create(Op::Upload, key, &body)? == Create::Created {
                return Ok(Create::Created);
            }
            let same = folder.size(Op::Upload, key)?.0 == body.len() as u64;
            Ok(if same {
                Create::Created
            } else {
                Create::Exists
            })
        })
        .await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.run(Op::Get, key, move |folder, key, _| {
            folder.whole(key, at_most)
        })
        .await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let range = self.range(key, range).await?;
        Ok(stream::try_unfold(range, FileRange::next).boxed())
    }

    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        _fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        Ok(Box::new(self.range(key, range).await?))
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.run(Op::Head, key, |folder, key, _| {
            let (size, modified) = folder.size(Op::Head, key)?;
            Ok(ObjectMeta {
                modified,
                ..ObjectMeta::new(key.to_owned(), size)
            })
        })
        .await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        key::check_prefix(Op::List, &self.0.root, prefix)?;
        let folder = Arc::clone(&self.0);
        let prefix = prefix.to_owned();
        blocking(move || {
            walk::page(&folder.path, &prefix, page.as_deref())
                .map_err(|e| folder.io(Op::List, &prefix, &e, Effect::DidNot))
        })
        .await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.run(Op::Delete, key, |folder, key, path| {
            match inside::delete(&folder.path, Path::new(key)) {
                Err(e) if kind_of(&e) != ErrorKind::NotFound || !folder.path.is_dir() => {
                    Err(folder.io(Op::Delete, key, &e, Effect::DidNot))
                }
                _ => {
                    publish::prune(&folder.path, path);
                    Ok(())
                }
            }
        })
        .await
    }

    /// Lists files of processes that died while writing.
    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        key::check_prefix(Op::List, &self.0.root, prefix)?;
        let hidden = self.0.path.join(HIDDEN);
        let stale = blocking(move || Ok(publish::stale(&hidden))).await?;
        let names = stale.into_iter().filter_map(|path| {
            let id = path.file_name()?.to_str()?.to_owned();
            let key = String::new();
            Some(PendingUpload {
                key,
                id,
                ..PendingUpload::default()
            })
        });
        Ok(names.collect())
    }

    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        key::check(Op::Delete, &self.0.root, &upload.id)?;
        let (folder, id) = (Arc::clone(&self.0), upload.id.clone());
        blocking(move || {
            if !publish::is_ours(&id) {
                let detail = "is not the name of an unfinished file";
                return Err(folder.error(
                    Op::Delete,
                    &id,
                    ErrorKind::Invalid,
                    Effect::DidNot,
                    detail,
                ));
            }
            match inside::delete(&folder.path, &Path::new(HIDDEN).join(&id)) {
                Err(e) if kind_of(&e) != ErrorKind::NotFound => {
                    Err(folder.io(Op::Delete, &id, &e, Effect::DidNot))
                }
                _ => Ok(()),
            }
        })
        .await
    }

    async fn watch(&self, prefix: &str) -> Result<Option<Watch>, StoreError> {
        key::check_prefix(Op::List, &self.0.root, prefix)?;
        let (folder, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        blocking(move || folder.watch(&prefix).map(Some)).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
