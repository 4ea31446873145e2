//! From the configured paths to the list of input files, each with its size and fingerprint.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchweave_core::inputs::earlier_fingerprint;
use batchweave_store::{ObjectMeta, Store, StoreError, list_all};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, TryStreamExt};

use super::growing::FileFilter;
use super::list::FINGERPRINT_BYTES;
use super::whole::fill;
use super::{InputFile, InputList, Location, PinnedFile, Settled, Share, SourceError};

/// Number of remote files that are pinned at the same time.
pub(super) const FINGERPRINTS_AT_ONCE: usize = 32;
/// Local files that a thread pins at least; fewer would cost less than the thread.
const PINNED_AT_LEAST: usize = 16;

/// Opens the store of an `s3://` input.
pub type OpenStore =
    dyn Fn(String) -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> + Send + Sync;

/// The paths of one of several sources.
#[derive(Debug, Clone)]
pub struct NamedPaths {
    pub name: String,
    pub paths: Vec<String>,
    /// For one that is followed: accept only files that have settled, and that this share owns.
    pub grows: Option<(Settled, Share)>,
    /// The paths are inboxes.
    pub inbox: bool,
}

/// Finds the input files that the configuration names.
#[derive(Clone)]
pub struct InputFinder {
    /// Files, folders, patterns and `s3://` prefixes, as configured.
    pub paths: Vec<String>,
    /// Several sources, in place of `paths`.
    pub sources: Vec<NamedPaths>,
    /// Opens the stores of `s3://` paths.
    pub open: Arc<OpenStore>,
    /// For input that grows: accept only files that have settled; a path may match nothing yet.
    pub settled: Option<Settled>,
    /// For input that grows: accept only the files that this share owns.
    pub share: Option<Share>,
    /// The paths are inboxes.
    pub inbox: bool,
}

impl InputFinder {
    /// Finds the input files except those whose names are `known`: the paths in their order, the matches of each
    /// sorted by name, a file that several paths match only once. In folders, names that begin with a dot are
    /// left out.
    pub async fn find(&self, known: BTreeSet<String>) -> Result<InputList, SourceError> {
        let settled = self.settled.clone();
        let filter = FileFilter { known, settled };
        if !self.sources.is_empty() {
            return self.find_sources(&filter).await;
        }
        if self.inbox {
            return self.in_inboxes(None).await;
        }
        let mut list = find_filtered(&self.paths, self.open.as_ref(), &filter).await?;
        if let Some(share) = self.share {
            list.files.retain(|file| share.owns_file(&file.pin.name));
        }
        Ok(list)
    }
}

impl InputFinder {
    /// Finds the files of all sources, one source after the other.
    async fn find_sources(&self, filter: &FileFilter) -> Result<InputList, SourceError> {
        let mut all = InputList::default();
        let mut owners: BTreeMap<String, &String> = BTreeMap::new();
        for source in &self.sources {
            let list = self.find_source(source, filter.known.clone()).await?;
            for file in list.files {
                if let Some(other) = owners.insert(file.pin.name.clone(), &source.name) {
                    return Err(SourceError::InTwoSources {
                        file: file.pin.name,
                        sources: [other.clone(), source.name.clone()],
                    });
                }
                all.files.push(file);
            }
        }
        Ok(all)
    }

    /// Finds the files of `source`, except those whose names are `known`.
    pub(crate) async fn find_source(
        &self,
        source: &NamedPaths,
        known: BTreeSet<String>,
    ) -> Result<InputList, SourceError> {
        let settled = source.grows.as_ref().map(|(settled, _)| settled.clone());
        let filter = FileFilter { known, settled };
        let mut list = if source.inbox {
            self.in_inboxes(Some(source)).await?
        } else {
            find_filtered(&source.paths, self.open.as_ref(), &filter).await?
        };
        if let Some((_, share)) = source.grows.as_ref().filter(|_| !source.inbox) {
            list.files.retain(|file| share.owns_file(&file.pin.name));
        }
        for file in &mut list.files {
            file.pin.source = Some(source.name.clone());
        }
        Ok(list)
    }
}

/// Finds all input files of `paths`, as [`InputFinder::find`] does.
pub async fn find_all(paths: &[String], open: &OpenStore) -> Result<InputList, SourceError> {
    find_filtered(paths, open, &FileFilter::default()).await
}

async fn find_filtered(
    paths: &[String],
    open: &OpenStore,
    filter: &FileFilter,
) -> Result<InputList, SourceError> {
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    let is_local = |path: &String| !path.contains("://") || path.starts_with("file://");
    for neighbours in paths.chunk_by(|a, b| is_local(a) && is_local(b)) {
        let first = &neighbours[0];
        let found = if is_local(first) {
            let (patterns, filter) = (neighbours.to_vec(), filter.clone());
            let local = tokio::task::spawn_blocking(move || local(&patterns, &filter));
            local
                .await
                .map_err(|e| unreadable(first, io::Error::other(e)))??
        } else {
            let found = remote(first, open, filter).await?;
            filter.check_some(first, found.is_empty())?;
            found
        };
        files.extend(
            found
                .into_iter()
                .filter(|f| seen.insert(f.pin.name.clone())),
        );
    }
    Ok(InputList { files })
}

fn unreadable(file: &str, why: io::Error) -> SourceError {
    SourceError::Unreadable {
        file: file.to_owned(),
        why,
    }
}

/// Finds the files of all `paths`, which are local, and pins them together.
fn local(paths: &[String], filter: &FileFilter) -> Result<Vec<InputFile>, SourceError> {
    let mut all = Vec::new();
    for path in paths {
        let before = all.len();
        let found = matches(path.strip_prefix("file://").unwrap_or(path))?;
        all.extend(found.into_iter().filter(|path| filter.accepts_file(path)));
        filter.check_some(path, all.len() == before)?;
    }
    pin_all(&all)
}

fn matches(pattern: &str) -> Result<BTreeSet<PathBuf>, SourceError> {
    let mut found = BTreeSet::new();
    if Path::new(pattern).exists() {
        walk(Path::new(pattern), &mut found)?;
    } else if pattern.contains(['*', '?', '[']) {
        let matches = glob::glob(pattern).map_err(|e| SourceError::Pattern {
            path: pattern.to_owned(),
            detail: e.to_string(),
        })?;
        for entry in matches {
            let path = entry.map_err(|e| unreadable(&e.path().display().to_string(), e.into()))?;
            walk(&path, &mut found)?;
        }
    }
    Ok(found)
}

/// Pins files side by side, since each costs two reads and a digest of 128 KiB. Returns them in order, or the first failure.
fn pin_all(paths: &[PathBuf]) -> Result<Vec<InputFile>, SourceError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = paths.len().div_ceil(threads).max(PINNED_AT_LEAST);
    let pin_some = |some: &[PathBuf]| some.iter().cloned().map(pin_local).collect();
    std::thread::scope(|scope| {
        let parts = paths.chunks(each);
        let threads: Vec<_> = parts
            .map(|some| scope.spawn(move || pin_some(some)))
            .collect();
        let parts = threads.into_iter().map(|thread| {
            let part: Result<Vec<InputFile>, _> =
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            part
        });
        let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
        Ok(parts.concat())
    })
}

/// Adds all files at or below `path`. Links to folders are not followed, because they may form a cycle.
fn walk(path: &Path, found: &mut BTreeSet<PathBuf>) -> Result<(), SourceError> {
    let at = |why| unreadable(&path.display().to_string(), why);
    if !path.is_dir() {
        found.insert(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(at)? {
        let entry = entry.map_err(at)?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let linked_folder = entry.path().is_symlink() && entry.path().is_dir();
        if !hidden && !linked_folder {
            walk(&entry.path(), found)?;
        }
    }
    Ok(())
}

pub(super) fn pin_local(path: PathBuf) -> Result<InputFile, SourceError> {
    let name = path.display().to_string();
    let pin = pin_file(&path, &name).map_err(|why| unreadable(&name, why))?;
    Ok(InputFile {
        pin,
        location: Location::Local(path),
    })
}

fn pin_file(path: &Path, name: &str) -> io::Result<PinnedFile> {
    let (size, head, tail) = ends(path)?;
    Ok(PinnedFile::new(name.to_owned(), size, &head, &tail))
}

/// Returns the size of a file, its first bytes, and its last ones behind these.
pub(super) fn ends(path: &Path) -> io::Result<(u64, Vec<u8>, Vec<u8>)> {
    // Checked before the file is opened: opening a FIFO waits for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut end = |from: u64| {
        let length = size.saturating_sub(from).min(FINGERPRINT_BYTES);
        let mut bytes = vec![0; length as usize];
        file.seek(SeekFrom::Start(from))?;
        let read = fill(&mut file, &mut bytes)?;
        bytes.truncate(read);
        io::Result::Ok(bytes)
    };
    let head = end(0)?;
    let tail = end(tail_start(size))?;
    Ok((size, head, tail))
}

/// Returns the offset of the last 64 KiB, without the bytes that the first 64 KiB cover already.
fn tail_start(size: u64) -> u64 {
    size.saturating_sub(FINGERPRINT_BYTES)
        .max(FINGERPRINT_BYTES.min(size))
}

/// Finds the objects at or below an `s3://bucket/prefix`, or those that match a pattern in its last segments.
async fn remote(
    url: &str,
    open: &OpenStore,
    filter: &FileFilter,
) -> Result<Vec<InputFile>, SourceError> {
    let (root, pattern) = split_url(url)?;
    let store = open(root.clone()).await.map_err(SourceError::Store)?;
    let (mut keys, mut all) = (Vec::new(), BTreeSet::new());
    let listed = list_all(store.as_ref(), "", |object| {
        if filter.settled.is_some() {
            all.insert(object.key.clone());
        }
        if pattern.accepts(&object.key) {
            keys.push(object);
        }
    });
    listed.await.map_err(SourceError::Store)?;
    keys.retain(|o| filter.accepts_object(&o.key, &format!("{root}/{}", o.key), &all));
    keys.sort_by(|a, b| a.key.cmp(&b.key));
    futures::stream::iter(keys)
        .map(|object| pin_remote(store.clone(), root.clone(), object))
        .buffered(FINGERPRINTS_AT_ONCE)
        .try_collect()
        .await
}

/// The keys below the listed folder that a path names.
enum KeyPattern {
    Below,
    Named(String),
    Matching(glob::Pattern),
}

impl KeyPattern {
    fn accepts(&self, key: &str) -> bool {
        match self {
            Self::Below => !key.rsplit('/').any(|segment| segment.starts_with('.')),
            Self::Named(name) => {
                key == name
                    || key
                        .strip_prefix(name.as_str())
                        .is_some_and(|rest| rest.starts_with('/'))
            }
            Self::Matching(pattern) => pattern.matches_with(
                key,
                glob::MatchOptions {
                    require_literal_separator: true,
                    ..glob::MatchOptions::default()
                },
            ),
        }
    }
}

/// Splits a URL into the folder to list and the keys to accept in it.
fn split_url(url: &str) -> Result<(String, KeyPattern), SourceError> {
    if url.ends_with('/') {
        return Ok((url.trim_end_matches('/').to_owned(), KeyPattern::Below));
    }
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let Some(bucket_end) = url[after_scheme..].find('/').map(|at| at + after_scheme) else {
        return Ok((url.to_owned(), KeyPattern::Below));
    };
    let wild = url.find(['*', '?', '[']).unwrap_or(url.len());
    let folder_end = url[..wild].rfind('/').unwrap_or(bucket_end).max(bucket_end);
    let rest = url[folder_end + 1..].to_owned();
    let pattern = if wild == url.len() {
        KeyPattern::Named(rest)
    } else {
        let pattern = glob::Pattern::new(&rest).map_err(|e| SourceError::Pattern {
            path: url.to_owned(),
            detail: e.to_string(),
        })?;
        KeyPattern::Matching(pattern)
    };
    Ok((url[..folder_end].to_owned(), pattern))
}

/// Pins an object by the `ETag` of its listing, or by its two ends where the store gives none.
pub(super) async fn pin_remote(
    store: Arc<dyn Store>,
    root: String,
    ObjectMeta {
        key, size, etag, ..
    }: ObjectMeta,
) -> Result<InputFile, SourceError> {
    let name = format!("{root}/{key}");
    let fingerprint = if let Some(etag) = etag {
        format!("etag {}", etag.trim_matches('"'))
    } else {
        let head = read_range(&*store, &key, 0, FINGERPRINT_BYTES.min(size)).await?;
        let tail = read_range(&*store, &key, tail_start(size), size).await?;
        earlier_fingerprint(&head, &tail)
    };
    let pin = PinnedFile {
        name,
        size,
        fingerprint,
        source: None,
        by_byte: false,
        growth: 0,
    };
    Ok(InputFile {
        pin,
        location: Location::Remote { store, key },
    })
}

async fn read_range(
    store: &dyn Store,
    key: &str,
    from: u64,
    to: u64,
) -> Result<Vec<u8>, SourceError> {
    if from >= to {
        return Ok(Vec::new());
    }
    let chunks = store
        .get_range(key, from..to)
        .await
        .map_err(SourceError::Store)?;
    let chunks: Vec<Bytes> = chunks.try_collect().await.map_err(SourceError::Store)?;
    Ok(chunks.concat())
}
