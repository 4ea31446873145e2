//! The shapes of input files, by which a source is divided into blocks: a few bytes of each file, or its footer.

use std::sync::Arc;

use batchweave_core::order::FileShape;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::decompress::Codec;
use super::formats::Shape;
use super::row_groups::RowGroups;
use super::unit_reader::ReadFailure;
use super::{InputFile, ReadContent, ReadOptions, SourceError, remote};
use crate::worker::WorkerError;

/// Number of files that are looked at at the same time.
const FILES_AT_ONCE: usize = 32;

/// Returns the shapes of `files`, in their order.
pub(crate) async fn shapes(
    files: Vec<InputFile>,
    options: &Arc<ReadOptions>,
) -> Result<Vec<FileShape>, ShapeError> {
    let shapes = stream::iter(files).map(|file| {
        let options = Arc::clone(options);
        async move {
            let shape = tokio::task::spawn_blocking(move || shape(&file, &options)).await;
            let shape = shape.map_err(|why| WorkerError::lost("shapes", why))?;
            Ok(shape?)
        }
    });
    shapes.buffered(FILES_AT_ONCE).try_collect().await
}

/// The reason why the shape of a file is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShapeError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Returns the shape of a file. Must be called outside of async code.
fn shape(file: &InputFile, options: &ReadOptions) -> Result<FileShape, SourceError> {
    let unreadable = |why| SourceError::Unreadable {
        file: file.pin.name.clone(),
        why,
    };
    let shape = options.format.row_of(&file.pin.name).shape;
    if shape == Shape::RowGroups {
        return match row_groups(file, options) {
            Ok(groups) => Ok(FileShape::RowGroups(groups)),
            // Reading it gives one bad document.
            Err(ReadFailure::Content(_)) => Ok(FileShape::Whole { compressed: false }),
            Err(ReadFailure::Io(why)) => Err(unreadable(why)),
            Err(ReadFailure::Input(why)) => Err(why),
        };
    }
    if shape == Shape::Pair {
        return Ok(FileShape::Whole { compressed: false });
    }
    let head = remote::head(file, Codec::HEAD_BYTES).map_err(unreadable)?;
    let compressed = Codec::from_head(&head) != Codec::Plain;
    Ok(if shape == Shape::Lines && !compressed {
        FileShape::Lines
    } else {
        FileShape::Whole { compressed }
    })
}

/// Returns rows and bytes of each row group, of the columns that are read.
fn row_groups(file: &InputFile, options: &ReadOptions) -> Result<Vec<(u64, u64)>, ReadFailure> {
    let wanted: Vec<&str> = match &options.content {
        ReadContent::Conversations(columns) | ReadContent::Rows(columns) => {
            let all = columns.wanted.iter().chain(&columns.optional);
            all.map(String::as_str).collect()
        }
        _ if options.arrays.is_empty() => vec![&options.column],
        _ => options.arrays.iter().map(String::as_str).collect(),
    };
    Ok(RowGroups::open(file, 0..u64::MAX)?.sizes(&wanted))
}

#[cfg(test)]
mod tests;
