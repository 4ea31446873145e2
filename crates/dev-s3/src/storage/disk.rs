//! Objects in files: `<dir>/<bucket>/<number>.obj`, each with its headers before its bytes.
//!
//! A file is written under a temporary name and renamed. Its number, drawn then, grows in the order in which
//! objects appear, so that of two files of one key (after a crash between rename and removal) the higher counts. Nothing is
//! synced: the data survives a killed server, not a power cut.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

use super::{Headers, Object};
use crate::Error;

/// First bytes of every object file.
const MAGIC: &[u8; 8] = b"BWDEVS3\x01";
/// The limit of a header; a longer one is not from this server.
const MAX_HEADER_BYTES: usize = 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHeader {
    key: String,
    headers: Headers,
}

/// The data folder, held by this server alone.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    _lock: File,
}

/// The folder of one bucket.
#[derive(Debug)]
pub(crate) struct BucketFolder {
    dir: PathBuf,
    next: AtomicU64,
}

/// A written file that no index names yet; unless it is published, it is removed.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    offset: u64,
}

fn failed<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::Folder {
        path: path.to_owned(),
        action,
        source,
    }
}

impl Folder {
    pub(crate) fn open(dir: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&dir).map_err(failed(&dir, "create the folder"))?;
        let path = dir.join(".lock");
        let lock = File::create(&path).map_err(failed(&path, "create the lock file"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(Error::InUse { path: dir }),
            Err(fs::TryLockError::Error(source)) => Err(failed(&path, "lock the folder")(source)),
        }
    }

    pub(crate) fn create_bucket(&self, name: &str) -> Result<BucketFolder, Error> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).map_err(failed(&dir, "create the bucket's folder"))?;
        Ok(BucketFolder {
            dir,
            next: AtomicU64::new(0),
        })
    }

    /// Returns the buckets in the folder, with their creation times.
    pub(crate) fn buckets(&self) -> Result<Vec<(String, SystemTime, BucketFolder)>, Error> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed(&self.dir, "list the folder"))? {
            let entry = entry.map_err(failed(&self.dir, "list the folder"))?;
            let path = entry.path();
            if let (true, Ok(name)) = (path.is_dir(), entry.file_name().into_string()) {
                let created = entry
                    .metadata()
                    .and_then(|meta| meta.created().or_else(|_| meta.modified()));
                let folder = BucketFolder {
                    dir: path,
                    next: AtomicU64::new(0),
                };
                found.push((name, created.unwrap_or(SystemTime::UNIX_EPOCH), folder));
            }
        }
        Ok(found)
    }
}

impl BucketFolder {
    /// Reads the headers of every object and removes files that a crash left.
    pub(crate) fn load(&self) -> Result<BTreeMap<String, Arc<Object>>, Error> {
        let mut newest: BTreeMap<String, (u64, Arc<Object>)> = BTreeMap::new();
        for entry in fs::read_dir(&self.dir).map_err(failed(&self.dir, "list the folder"))? {
            let path = entry.map_err(failed(&self.dir, "list the folder"))?.path();
            let Some(number) = number_of(&path) else {
                fs::remove_file(&path).map_err(failed(&path, "remove a left-over file"))?;
                continue;
            };
            self.next.fetch_max(number + 1, Ordering::Relaxed);
            let (key, object) = read_header(&path)?;
            let older = match newest.get(&key) {
                Some((other, _)) if *other > number => Some(Arc::new(object)),
                _ => newest
                    .insert(key, (number, Arc::new(object)))
                    .map(|(_, older)| older),
            };
            if let Some(older) = older {
                older.remove_replaced();
            }
        }
        Ok(newest
            .into_iter()
            .map(|(key, (_, object))| (key, object))
            .collect())
    }

    pub(crate) fn write_draft(&self, key: &str, headers: &Headers, body: &[u8]) -> S3Result<Draft> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{number:016x}.tmp"));
        let header = FileHeader {
            key: key.to_owned(),
            headers: headers.clone(),
        };
        let header =
            serde_json::to_vec(&header).map_err(|error| s3_error!(error, InternalError))?;
        let offset = (MAGIC.len() + 4 + header.len()) as u64;
        let draft = Draft { path, offset };
        let write = || -> io::Result<()> {
            let mut file = File::create_new(&draft.path)?;
            file.write_all(MAGIC)?;
            file.write_all(&(header.len() as u32).to_le_bytes())?;
            file.write_all(&header)?;
            file.write_all(body)
        };
        write().map_err(|error| {
            let path = draft.path.display().to_string();
            s3_error!(
                error,
                InternalError,
                "{path}: cannot write; is the disk full?"
            )
        })?;
        Ok(draft)
    }

    /// Gives a file its final name. The caller holds the bucket's lock.
    pub(crate) fn publish(&self, mut draft: Draft, headers: Headers) -> S3Result<Object> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let target = self.dir.join(format!("{number:016x}.obj"));
        fs::rename(&draft.path, &target).map_err(|error| {
            let path = draft.path.display().to_string();
            s3_error!(error, InternalError, "{path}: cannot rename")
        })?;
        draft.path = PathBuf::new();
        Ok(Object::in_file(headers, target, draft.offset))
    }

    pub(crate) fn remove(&self) -> S3Result<()> {
        fs::remove_dir_all(&self.dir).map_err(|error| {
            s3_error!(
                error,
                InternalError,
                "{}: cannot remove",
                self.dir.display()
            )
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // A failure does no harm: the next start removes temporary files.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".obj")?;
    u64::from_str_radix(name, 16).ok()
}

fn read_header(path: &Path) -> Result<(String, Object), Error> {
    let bad = |reason: &str| Error::BadObject {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let mut file = File::open(path).map_err(failed(path, "open an object"))?;
    let mut start = [0; 12];
    file.read_exact(&mut start)
        .map_err(|_| bad("shorter than its header"))?;
    let (magic, length) = start.split_at(MAGIC.len());
    let length = length
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | *byte as usize);
    if magic != MAGIC || length > MAX_HEADER_BYTES {
        return Err(bad("wrong first bytes"));
    }
    let mut header = vec![0; length];
    file.read_exact(&mut header)
        .map_err(|_| bad("shorter than its header"))?;
    let header: FileHeader =
        serde_json::from_slice(&header).map_err(|error| bad(&error.to_string()))?;
    let offset = (start.len() + length) as u64;
    let total = file
        .metadata()
        .map_err(failed(path, "examine an object"))?
        .len();
    if total != offset + header.headers.size {
        return Err(bad("its length is not what its header says"));
    }
    Ok((
        header.key,
        Object::in_file(header.headers, path.to_owned(), offset),
    ))
}
