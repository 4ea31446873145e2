//! Reads the files that documents name (`path` in `packing.arrays`), before the tokenizing threads get these. Several are
//! read at a time, so that they don't wait for one answer of a store after the other; the order stays.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::task::JoinHandle;

use crate::config::ProducerConfig;
use crate::packing::ArraySpec;
use crate::sources::{FileRoot, Inputs, NamedFile, Reason, SourceError, Unit};
use crate::transform::arrays::paths::{paths, put};

/// Documents of a producer whose files are read at the same time.
const AT_ONCE: usize = 32;
/// A file up to this size is read at once; larger ones within [`LARGE_BYTES`].
const SMALL_BYTES: u64 = 2 << 20;
/// Most bytes of documents with larger files that are read at the same time; one document may have more.
const LARGE_BYTES: u64 = 256 << 20;
/// Most characters of a path in a message.
const PATH_CHARS: usize = 200;

/// The files that documents name.
#[derive(Debug)]
pub(crate) struct NamedFiles {
    inputs: Arc<Inputs>,
    arrays: Vec<ArraySpec>,
    /// The number of sources.
    sources: usize,
    /// The configured root; without it paths start from the folder of the document's file.
    root: Option<FileRoot>,
    /// Most bytes of a document.
    limit: u64,
}

/// A document whose small files are read.
struct Begun {
    unit: Unit,
    root: Option<FileRoot>,
    files: Vec<Wanted>,
}

struct Wanted {
    array: String,
    path: String,
    /// `None` for one that is still to be read.
    bytes: Option<Bytes>,
}

impl NamedFiles {
    /// Returns the files of the documents of `inputs`; `None` if these name none.
    pub(crate) fn from_config(
        config: &ProducerConfig,
        inputs: Arc<Inputs>,
        root: Option<FileRoot>,
    ) -> Option<Arc<Self>> {
        let arrays = config.packing.arrays.clone();
        arrays.iter().any(|array| array.path).then(|| {
            Arc::new(Self {
                inputs,
                arrays,
                sources: config.all_sources().len(),
                root,
                limit: config.source.max_document_bytes.bytes(),
            })
        })
    }

    /// Returns the units, in order, with the bytes of the files that they name. Must be polled inside a runtime.
    pub(crate) fn fill(
        self: &Arc<Self>,
        units: Vec<Unit>,
    ) -> BoxStream<'static, Result<Unit, SourceError>> {
        let at_once = (AT_ONCE / self.sources.max(1)).max(1);
        let large = LARGE_BYTES / self.limit.max(1) / self.sources.max(1) as u64;
        let large = usize::try_from(large).unwrap_or(at_once).clamp(1, at_once);
        let beginning = self.clone();
        let ending = self.clone();
        let begin = move |unit| Spawned::start(beginning.clone().begin(unit));
        let finish = move |begun| Spawned::start(ending.clone().finish(begun));
        let units = stream::iter(units).map(begin).buffered(at_once);
        units.map(finish).buffered(large).boxed()
    }

    /// Reads the small files of a document.
    async fn begin(self: Arc<Self>, mut unit: Unit) -> Result<Begun, SourceError> {
        let list = self.inputs.now();
        let file = list.files.get(unit.place.file as usize);
        let root = self.root.clone().or(file.map(FileRoot::of_file));
        let mut files: Vec<Wanted> = Vec::new();
        match paths(&self.arrays, &unit) {
            Ok(paths) => {
                files.extend(paths.into_iter().map(|(array, path)| Wanted {
                    array,
                    path,
                    bytes: None,
                }));
            }
            Err(reason) => unit.raw = Err(reason),
        }
        let mut begun = Begun { unit, root, files };
        begun.read(self.limit.min(SMALL_BYTES)).await?;
        Ok(begun)
    }

    /// Reads the rest of the files of a document, which together have their bound.
    async fn finish(
        self: Arc<Self>,
        begun: Result<Begun, SourceError>,
    ) -> Result<Unit, SourceError> {
        let mut begun = begun?;
        begun.read(self.limit).await?;
        let Begun {
            mut unit, files, ..
        } = begun;
        if unit.raw.is_err() || files.is_empty() {
            return Ok(unit);
        }
        let missing = files.iter().find(|file| file.bytes.is_none());
        if let Some(Wanted { array, path, .. }) = missing {
            unit.raw = Err(too_large(array, path, self.limit));
            return Ok(unit);
        }
        let bytes = files.into_iter().filter_map(|file| file.bytes).collect();
        put(&self.arrays, &mut unit, bytes);
        Ok(unit)
    }
}

impl Begun {
    /// Reads the files that are still to be read, while the document stays within `limit`.
    async fn read(&mut self, limit: u64) -> Result<(), SourceError> {
        let Some(root) = self.root.clone() else {
            return Ok(());
        };
        for n in 0..self.files.len() {
            if self.unit.raw.is_err() {
                return Ok(());
            }
            let path = self.files[n].path.clone();
            let known = self.known(n);
            if self.files[n].bytes.is_some() {
                continue;
            }
            if known.is_some() {
                self.files[n].bytes = known;
                continue;
            }
            let left = limit.saturating_sub(self.bytes());
            match root.read(&path, left).await? {
                NamedFile::Whole(bytes) => self.files[n].bytes = Some(bytes),
                NamedFile::TooLarge => {}
                NamedFile::Bad(detail) => {
                    let reason = refused(&self.files[n].array, &path, detail);
                    self.unit.raw = Err(reason);
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of file `n` that an array before it has read: several are often made of one file.
    fn known(&self, n: usize) -> Option<Bytes> {
        let path = &self.files[n].path;
        let before = self.files[..n].iter();
        before
            .filter(|file| file.path == *path)
            .find_map(|file| file.bytes.clone())
    }

    /// Returns the bytes of the document with its different files.
    fn bytes(&self) -> u64 {
        let files = (0..self.files.len()).filter(|n| self.known(*n).is_none());
        let sizes = files.filter_map(|n| self.files[n].bytes.as_ref());
        let raw = self.unit.raw.as_ref().map_or(0, Bytes::len);
        raw as u64 + sizes.map(|bytes| bytes.len() as u64).sum::<u64>()
    }
}

fn refused(array: &str, path: &str, detail: String) -> Reason {
    Reason::File {
        name: array.to_owned(),
        path: path.chars().take(PATH_CHARS).collect(),
        detail,
    }
}

fn too_large(array: &str, path: &str, limit: u64) -> Reason {
    let detail = format!(
        "makes the document larger than {limit} bytes; leave it out, or raise source.max_document_bytes"
    );
    refused(array, path, detail)
}

/// A task that goes on while nobody polls it, and ends when this is dropped.
struct Spawned<T>(JoinHandle<Result<T, SourceError>>);

impl<T: Send + 'static> Spawned<T> {
    fn start(work: impl Future<Output = Result<T, SourceError>> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl<T> Future for Spawned<T> {
    type Output = Result<T, SourceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|joined| {
            joined.unwrap_or_else(|why| {
                Err(SourceError::Unreadable {
                    file: "a file that a document names".to_owned(),
                    why: std::io::Error::other(why),
                })
            })
        })
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
