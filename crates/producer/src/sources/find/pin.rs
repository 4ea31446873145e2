//! Pins input files: their sizes and fingerprints.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchweave_core::inputs::earlier_fingerprint;
use batchweave_store::{ObjectMeta, Store};
use bytes::Bytes;
use futures::stream::TryStreamExt;

use super::super::input_file::FINGERPRINT_BYTES;
use super::super::local_file;
use super::super::whole::fill;
use super::super::{InputFile, Location, PinnedFile, SourceError};

/// Local files that a thread pins at least; fewer would cost less than the thread.
const PINNED_AT_LEAST: usize = 16;

/// Pins files side by side, since each costs two reads and a digest of 128 KiB. Returns them in order, or the first failure.
pub(super) fn pin_all(paths: &[PathBuf]) -> Result<Vec<InputFile>, SourceError> {
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

pub(in crate::sources) fn pin_local(path: PathBuf) -> Result<InputFile, SourceError> {
    let name = path.display().to_string();
    let pin = pin_file(&path, &name).map_err(|why| SourceError::unreadable(&name, why))?;
    Ok(InputFile {
        pin,
        location: Location::Local(path),
    })
}

fn pin_file(path: &Path, name: &str) -> io::Result<PinnedFile> {
    let (size, head, tail) = ends(path)?;
    Ok(PinnedFile::new(name.to_owned(), size, &head, &tail))
}

/// Pins an open file by the path at which it will be read.
pub(in crate::sources) fn pin_opened(file: File, path: PathBuf) -> io::Result<InputFile> {
    let (size, head, tail) = ends_of(file)?;
    let pin = PinnedFile::new(path.display().to_string(), size, &head, &tail);
    let location = Location::Local(path);
    Ok(InputFile { pin, location })
}

/// Returns the size of a file, its first bytes, and its last ones behind these.
pub(in crate::sources) fn ends(path: &Path) -> io::Result<(u64, Vec<u8>, Vec<u8>)> {
    ends_of(local_file::open(path)?)
}

fn ends_of(mut file: File) -> io::Result<(u64, Vec<u8>, Vec<u8>)> {
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

/// Pins an object by the `ETag` of its listing, or by its two ends where the store gives none.
pub(in crate::sources) async fn pin_remote(
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
