//! From the configured paths to the list of input files.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchweave_store::{ObjectMeta, Store, StoreError};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::list::FINGERPRINT_BYTES;
use super::{InputFile, InputList, Location, Looking, PinnedFile, SourceError};

/// Remote files whose ends are read at the same time.
const FINGERPRINTS_AT_ONCE: usize = 32;

/// How a file is cut into documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// By the file's name: `.jsonl`, `.ndjson`, `.parquet`, `.npy`, anything else is text; `.gz` and `.zst`
    /// are looked through.
    #[default]
    Auto,
    /// One JSON object a line.
    Jsonl,
    /// One document a file.
    Text,
    /// One document a line.
    Lines,
    /// One document a row.
    Parquet,
    /// One sample a file: an array as numpy saves it.
    Npy,
}

impl Format {
    /// The format of the file `name`; never `Auto`.
    #[must_use]
    pub fn of(self, name: &str) -> Self {
        if self != Self::Auto {
            return self;
        }
        let name = name.to_ascii_lowercase();
        let name = name
            .strip_suffix(".gz")
            .or(name.strip_suffix(".zst"))
            .unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("jsonl" | "ndjson") => Self::Jsonl,
            Some("parquet") => Self::Parquet,
            Some("npy") => Self::Npy,
            _ => Self::Text,
        }
    }
}

/// Opens the store of an `s3://` input.
pub type OpenStore =
    dyn Fn(String) -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> + Send + Sync;

/// Finds all input files, as [`look`] does.
pub async fn expand(paths: &[String], open: &OpenStore) -> Result<InputList, SourceError> {
    look(paths, open, &Looking::default()).await
}

/// Finds the input files that are wanted: the paths in their order, what each matches sorted by name, a file that
/// several paths match only once. Names that begin with a dot are passed over in folders.
pub async fn look(
    paths: &[String],
    open: &OpenStore,
    looking: &Looking,
) -> Result<InputList, SourceError> {
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        let found = if path.contains("://") && !path.starts_with("file://") {
            remote(path, open, looking).await?
        } else {
            let pattern = path.strip_prefix("file://").unwrap_or(path).to_owned();
            let looking = looking.clone();
            let local = tokio::task::spawn_blocking(move || local(&pattern, &looking));
            local
                .await
                .map_err(|e| unreadable(path, io::Error::other(e)))??
        };
        if found.is_empty() && looking.settled.is_none() {
            return Err(SourceError::NoMatch { path: path.clone() });
        }
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

fn local(pattern: &str, looking: &Looking) -> Result<Vec<InputFile>, SourceError> {
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
    let wanted = found.into_iter().filter(|path| looking.takes_file(path));
    wanted.map(pin_local).collect()
}

/// All files at or below `path`. Links to folders are not followed: they may form a ring.
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

fn pin_local(path: PathBuf) -> Result<InputFile, SourceError> {
    let name = path.display().to_string();
    let pin = pin_file(&path, &name).map_err(|why| unreadable(&name, why))?;
    Ok(InputFile {
        pin,
        location: Location::Local(path),
    })
}

fn pin_file(path: &Path, name: &str) -> io::Result<PinnedFile> {
    // Before it is opened: the opening of a FIFO waits for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut end = |from: u64| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.by_ref()
            .take(FINGERPRINT_BYTES)
            .read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    let head = end(0)?;
    let tail = end(tail_start(size))?;
    Ok(PinnedFile::new(name.to_owned(), size, &head, &tail))
}

/// Where the last 64 KiB begin that the first do not cover.
fn tail_start(size: u64) -> u64 {
    size.saturating_sub(FINGERPRINT_BYTES)
        .max(FINGERPRINT_BYTES.min(size))
}

/// Objects at or below an `s3://bucket/prefix`, or matching a pattern in its last segments.
async fn remote(
    url: &str,
    open: &OpenStore,
    looking: &Looking,
) -> Result<Vec<InputFile>, SourceError> {
    let (root, pattern) = split_url(url)?;
    let store = open(root.clone()).await.map_err(SourceError::Store)?;
    let (mut keys, mut all) = (Vec::new(), BTreeSet::new());
    let mut page = None;
    loop {
        let list = store.list("", page).await.map_err(SourceError::Store)?;
        if looking.settled.is_some() {
            all.extend(list.objects.iter().map(|o| o.key.clone()));
        }
        keys.extend(list.objects.into_iter().filter(|o| pattern.takes(&o.key)));
        page = list.next;
        if page.is_none() {
            break;
        }
    }
    keys.retain(|o| looking.takes_object(&o.key, &format!("{root}/{}", o.key), &all));
    keys.sort_by(|a, b| a.key.cmp(&b.key));
    futures::stream::iter(keys)
        .map(|object| pin_remote(store.clone(), root.clone(), object))
        .buffered(FINGERPRINTS_AT_ONCE)
        .try_collect()
        .await
}

/// Which keys below the listed folder are meant.
enum Wanted {
    Below,
    Named(String),
    Matching(glob::Pattern),
}

impl Wanted {
    fn takes(&self, key: &str) -> bool {
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

/// Cuts a URL into the folder to list and what is wanted in it.
fn split_url(url: &str) -> Result<(String, Wanted), SourceError> {
    if url.ends_with('/') {
        return Ok((url.trim_end_matches('/').to_owned(), Wanted::Below));
    }
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let Some(bucket_end) = url[after_scheme..].find('/').map(|at| at + after_scheme) else {
        return Ok((url.to_owned(), Wanted::Below));
    };
    let wild = url.find(['*', '?', '[']).unwrap_or(url.len());
    let folder_end = url[..wild].rfind('/').unwrap_or(bucket_end).max(bucket_end);
    let rest = url[folder_end + 1..].to_owned();
    let wanted = if wild == url.len() {
        Wanted::Named(rest)
    } else {
        let pattern = glob::Pattern::new(&rest).map_err(|e| SourceError::Pattern {
            path: url.to_owned(),
            detail: e.to_string(),
        })?;
        Wanted::Matching(pattern)
    };
    Ok((url[..folder_end].to_owned(), wanted))
}

/// By its `ETag`, which the listing has told; by its two ends, where the store tells none.
async fn pin_remote(
    store: Arc<dyn Store>,
    root: String,
    ObjectMeta { key, size, etag }: ObjectMeta,
) -> Result<InputFile, SourceError> {
    let name = format!("{root}/{key}");
    let pin = if let Some(etag) = etag {
        let fingerprint = format!("etag {}", etag.trim_matches('"'));
        PinnedFile {
            name,
            size,
            fingerprint,
        }
    } else {
        let head = read_range(&*store, &key, 0, FINGERPRINT_BYTES.min(size)).await?;
        let tail = read_range(&*store, &key, tail_start(size), size).await?;
        PinnedFile::new(name, size, &head, &tail)
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
