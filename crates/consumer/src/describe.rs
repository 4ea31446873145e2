//! The answer to `describe`: the stream's shape, its tokenizer, and the stored file of the tokenizer in sealed
//! memory, as segments are.
//!
//! Invariant: the file is read when it is first asked for, and held once: at most [`TOKENIZER_BYTES_MAX`] bytes. A
//! file that could not be read is asked for again at most once per [`READ_AGAIN`], however often clients ask.
//!
//! [`TOKENIZER_BYTES_MAX`]: batchweave_core::limits::TOKENIZER_BYTES_MAX

use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::{ArenaError, MemoryLimits, Segment};
use batchweave_core::stream::{StreamConfig, TokenizerId};
use batchweave_core::tokenizer::{Builtin, id_bound};
use batchweave_log::read_tokenizer;
use batchweave_wire::{StreamInfo, Tokenizer};
use tokio::sync::Mutex;

use crate::resources::Resources;

/// Time after which a file that could not be read, or was not there, is asked for again.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// Most bytes of a tokenizer's name, and of a reason, in an answer.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// The stored file of the tokenizer, as far as it was asked for.
#[derive(Default)]
pub(crate) struct TokenizerFile {
    found: Mutex<Option<Found>>,
}

/// The outcome of reading the file.
#[derive(Clone)]
enum Found {
    /// The file in sealed memory, and the bound of its ids.
    File(Arc<Segment>, Option<u32>),
    /// The reason why there is none, and when that was found.
    Missing(String, Duration),
}

/// Returns the answer to `describe`, and the memory whose descriptor goes with it.
pub(crate) async fn describe(
    resources: &Resources,
    file: &TokenizerFile,
) -> (StreamInfo, Option<Arc<Segment>>) {
    let id = &resources.stream.tokenizer;
    if id.is_builtin() {
        return (info(&resources.stream, id.builtin()), None);
    }
    let bound = id.named_id_bound();
    if bound.is_some() && id.builtin().is_none() {
        // Ids that came ready made: no tokenizer is known.
        return (info(&resources.stream, None), None);
    }
    match file.find(resources, id).await {
        Found::File(segment, bound) => {
            let mut info = info(&resources.stream, None);
            info.tokenizer.vocabulary = bound;
            info.tokenizer.file_bytes = Some(segment.bytes());
            (info, Some(segment))
        }
        Found::Missing(why, _) => {
            // The name of a vocabulary with another fingerprint: a producer that is not of these programs.
            let mut info = info(&resources.stream, id.builtin());
            info.tokenizer.missing = Some(cut(why));
            (info, None)
        }
    }
}

impl TokenizerFile {
    /// Returns the file, which one caller reads while the others wait.
    async fn find(&self, resources: &Resources, id: &TokenizerId) -> Found {
        let mut found = self.found.lock().await;
        let context = &resources.context;
        let known = match &*found {
            Some(Found::Missing(_, at)) if context.since(*at) >= READ_AGAIN => None,
            known => known.clone(),
        };
        if let Some(known) = known {
            return known;
        }
        let missing = |why: String| Found::Missing(why, context.now());
        let now = match read_tokenizer(resources.store.as_ref(), id).await {
            Ok(Some(bytes)) => {
                // Copying and reading up to 64 MiB takes too long for an async thread.
                let held = tokio::task::spawn_blocking(move || hold(&bytes)).await;
                match held {
                    Ok(Ok((segment, bound))) => Found::File(segment, bound),
                    Ok(Err(why)) => missing(why.to_string()),
                    Err(why) => missing(why.to_string()),
                }
            }
            Ok(None) => missing("the stream keeps no file of its tokenizer".to_owned()),
            Err(why) => missing(why.to_string()),
        };
        if let Found::Missing(why, _) = &now {
            tracing::warn!(why, "no tokenizer for a client that asked for it");
        }
        *found = Some(now.clone());
        now
    }
}

/// Copies the file into sealed memory, which counts against the limits as a segment of the arena does.
fn hold(file: &[u8]) -> Result<(Arc<Segment>, Option<u32>), ArenaError> {
    let bytes = file.len() as u64;
    let segment = Segment::create("batchweave-tokenizer", bytes, &MemoryLimits::default())?;
    segment.lease(0, bytes)?.write_at(0, file)?;
    Ok((segment, id_bound(file)))
}

fn info(stream: &StreamConfig, builtin: Option<Builtin>) -> StreamInfo {
    let id = &stream.tokenizer;
    StreamInfo {
        stream: stream.stream_id.to_string(),
        slices: stream.slices,
        seq_len: stream.seq_len,
        rows_per_slice: stream.rows_per_slice,
        tokenizer: Tokenizer {
            name: cut(id.name.clone()),
            fingerprint: id.fingerprint.to_string(),
            builtin: builtin.map(|builtin| builtin.name().to_owned()),
            vocabulary: id.named_id_bound(),
            file_bytes: None,
            missing: None,
        },
    }
}

/// Returns `text` in as many bytes as an answer has room for.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    }
    text
}
