//! Reads the files that fields and columns of the documents name, local or in a store. A file that is not there or not
//! allowed makes a bad document; one that can't be read now is an error of the input.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use batchweave_store::{Backoff, ErrorKind as StoreFault, Retry, Store, StoreError, local_path};
use bytes::Bytes;

use self::resolve::{PathFault, below};
use super::open_store::OpenStore;
use super::{InputFile, Location, SourceError, local_file};

mod resolve;

/// Requests for an object before its read fails, and the pauses between them.
const RETRY: Retry = Retry::calls(
    6,
    Backoff::new(Duration::from_millis(200), Duration::from_secs(5)),
);
/// The error of a path whose links form a circle, which `io::ErrorKind` has no stable name for.
const ELOOP: i32 = 40;

/// The folder or prefix that paths start from, and that they must not leave.
#[derive(Debug, Clone)]
pub enum FileRoot {
    Local {
        /// As it is configured, for absolute paths and messages.
        name: String,
        folder: PathBuf,
    },
    Remote {
        /// URL without a slash at its end.
        url: String,
        store: Arc<dyn Store>,
        /// Key of the folder in the store; empty, or with a slash at its end.
        prefix: String,
    },
}

/// The outcome of a read that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum NamedFile {
    Whole(Bytes),
    /// The file is larger than the bound of the read.
    TooLarge,
    /// The fault of the path, for a message.
    Bad(String),
}

impl FileRoot {
    /// Opens the configured root. A folder must exist.
    pub async fn open(root: &str, open: &OpenStore) -> Result<Self, SourceError> {
        let unusable = |why: io::Error| SourceError::Root {
            root: root.to_owned(),
            why,
        };
        let Some(name) = local_path(root) else {
            let url = root.trim_end_matches('/').to_owned();
            let store = open(url.clone()).await.map_err(SourceError::Store)?;
            let prefix = String::new();
            return Ok(Self::Remote { url, store, prefix });
        };
        let name = name.to_owned();
        let folder = tokio::fs::canonicalize(&name).await.map_err(unusable)?;
        let kind = tokio::fs::metadata(&folder).await.map_err(unusable)?;
        if !kind.is_dir() {
            return Err(unusable(ErrorKind::NotADirectory.into()));
        }
        Ok(Self::Local { name, folder })
    }

    /// Returns the folder of `file`, which is the root where none is configured.
    pub fn of_file(file: &InputFile) -> Self {
        match &file.location {
            Location::Local(path) => {
                let parent = path.parent().unwrap_or(Path::new(""));
                let parent = if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                };
                Self::Local {
                    name: parent.display().to_string(),
                    folder: parent.to_owned(),
                }
            }
            Location::Remote { store, key } => {
                let name = &file.pin.name;
                let end = key.rfind('/').map_or(0, |at| at + 1);
                Self::Remote {
                    url: name[..name.rfind('/').unwrap_or(name.len())].to_owned(),
                    store: store.clone(),
                    prefix: key[..end].to_owned(),
                }
            }
        }
    }

    /// Reads the file at `path` of at most `limit` bytes. Must be called inside a runtime.
    pub async fn read(&self, path: &str, limit: u64) -> Result<NamedFile, SourceError> {
        let root = match self {
            Self::Local { name, .. } => name,
            Self::Remote { url, .. } => url,
        };
        let below = match self.below(path) {
            Ok(below) => below,
            Err(fault) => return Ok(NamedFile::Bad(fault.explain(root))),
        };
        match self {
            Self::Local { folder, .. } => {
                let (folder, name) = (folder.clone(), root.clone());
                let read = move || read_local(&folder, &below, (&name, limit));
                let read = tokio::task::spawn_blocking(read).await;
                read.map_err(|why| SourceError::Unreadable {
                    file: path.to_owned(),
                    why: io::Error::other(why),
                })?
            }
            Self::Remote { store, prefix, .. } => {
                read_remote(store.as_ref(), &format!("{prefix}{below}"), (root, limit)).await
            }
        }
    }

    /// Returns `path` relative to the root.
    fn below(&self, path: &str) -> Result<String, PathFault> {
        match self {
            Self::Local { name, folder } => below(&[name, &folder.to_string_lossy()], false, path),
            Self::Remote { url, .. } => below(&[url], true, path),
        }
    }
}

/// Reads the file at `path` if that is a file in `root` and not above the limit.
fn read_within(root: &Path, path: &Path, (name, limit): (&str, u64)) -> io::Result<NamedFile> {
    let target = path.canonicalize()?;
    if !target.starts_with(root.canonicalize()?) {
        return Ok(NamedFile::Bad(PathFault::Outside.explain(name)));
    }
    // Checked before the file is opened: opening a FIFO waits for a writer.
    let kind = target.metadata()?;
    if !kind.is_file() {
        return Ok(NamedFile::Bad(PathFault::NotAFile.explain(name)));
    }
    if kind.len() > limit {
        return Ok(NamedFile::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(kind.len()).unwrap_or_default());
    let mut file = local_file::open(&target)?.take(limit.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Ok(NamedFile::TooLarge);
    }
    Ok(NamedFile::Whole(bytes.into()))
}

/// Reads the file at `below` in `root`, which messages call by its name.
fn read_local(
    root: &Path,
    below: &str,
    (name, limit): (&str, u64),
) -> Result<NamedFile, SourceError> {
    let path = root.join(below);
    let unreadable = |why| SourceError::Unreadable {
        file: path.display().to_string(),
        why,
    };
    let why = match read_within(root, &path, (name, limit)) {
        Ok(read) => return Ok(read),
        Err(why) => why,
    };
    let fault = match why.kind() {
        // A root that is gone has lost all files, not this one.
        ErrorKind::NotFound | ErrorKind::NotADirectory if root.is_dir() => PathFault::Missing,
        ErrorKind::InvalidFilename => PathFault::Missing,
        _ if why.raw_os_error() == Some(ELOOP) => PathFault::Circle,
        _ => return Err(unreadable(why)),
    };
    Ok(NamedFile::Bad(fault.explain(name)))
}

/// Reads the object `key`; repeats requests that fail for a transient reason.
async fn read_remote(
    store: &dyn Store,
    key: &str,
    (root, limit): (&str, u64),
) -> Result<NamedFile, SourceError> {
    let failed = |error: &StoreError| tracing::warn!(%error, "cannot read a file that a document names; retrying");
    let why = match RETRY.run(|| store.get(key, limit), failed).await {
        Ok(bytes) => return Ok(NamedFile::Whole(bytes)),
        Err(why) => why,
    };
    match why.kind {
        StoreFault::TooLarge => Ok(NamedFile::TooLarge),
        StoreFault::NotFound => Ok(NamedFile::Bad(PathFault::Missing.explain(root))),
        StoreFault::Invalid => Ok(NamedFile::Bad(PathFault::NoKey.explain(root))),
        _ => Err(SourceError::Store(why)),
    }
}

#[cfg(test)]
mod tests;
