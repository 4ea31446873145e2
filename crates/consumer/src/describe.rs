//! The answer to `describe`: the stream's shape, its tokenizer, and the file of the tokenizer in sealed memory, as
//! segments are: the stored one, or the [`content`] of a vocabulary of this program.
//!
//! Invariant: the file is read when it is first asked for, and held once: at most [`TOKENIZER_BYTES_MAX`] bytes. A
//! file that could not be read is asked for again at most once per [`READ_AGAIN`], however often clients ask.
//!
//! [`TOKENIZER_BYTES_MAX`]: batchweave_core::limits::TOKENIZER_BYTES_MAX
//! [`content`]: batchweave_core::tokenizer::content

use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::{ArenaError, MemoryLimits, Segment};
use batchweave_core::stream::{StreamConfig, TokenizerId};
use batchweave_core::tokenizer::{Builtin, content, id_bound};
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
    let own = id.builtin().filter(|_| id.is_builtin());
    if own == Some(Builtin::Bytes) {
        return (info(&resources.stream, own), None);
    }
    let bound = id.named_id_bound();
    if bound.is_some() && id.builtin().is_none() {
        // Ids that came ready made: no tokenizer is known.
        return (info(&resources.stream, None), None);
    }
    match file.find(resources, id, own).await {
        Found::File(segment, bound) => {
            let mut info = info(&resources.stream, own);
            if own.is_none() {
                info.tokenizer.vocabulary = bound;
            }
            info.tokenizer.file_bytes = Some(segment.bytes());
            (info, Some(segment))
        }
        Found::Missing(why, _) => {
            // A vocabulary that could not be made, or its name with another fingerprint: a producer that is not of
            // these programs.
            let mut info = info(&resources.stream, id.builtin());
            info.tokenizer.missing = Some(cut(why));
            (info, None)
        }
    }
}

impl TokenizerFile {
    /// Returns the file, which one caller reads while the others wait; `own` is the vocabulary of this program that
    /// made the tokens.
    async fn find(&self, resources: &Resources, id: &TokenizerId, own: Option<Builtin>) -> Found {
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
        let held = match own {
            Some(builtin) => held(move || hold(&vocabulary(builtin)?)).await,
            None => match read_tokenizer(resources.store.as_ref(), id).await {
                Ok(Some(bytes)) => held(move || hold(&bytes)).await,
                Ok(None) => Err("the stream keeps no file of its tokenizer".to_owned()),
                Err(why) => Err(why.to_string()),
            },
        };
        let now = match held {
            Ok((segment, bound)) => Found::File(segment, bound),
            Err(why) => missing(why),
        };
        if let Found::Missing(why, _) = &now {
            tracing::warn!(why, "no tokenizer for a client that asked for it");
        }
        *found = Some(now.clone());
        now
    }
}

/// The file in sealed memory, and the bound of its ids; or the reason why there is none.
type Held = Result<(Arc<Segment>, Option<u32>), String>;

/// Makes the memory in a thread of its own: up to 64 MiB, or a vocabulary, take too long for an async one.
async fn held(make: impl FnOnce() -> Held + Send + 'static) -> Held {
    tokio::task::spawn_blocking(make)
        .await
        .map_err(|why| why.to_string())?
}

/// Copies the file into sealed memory, which counts against the limits as a segment of the arena does.
fn hold(file: &[u8]) -> Held {
    let copied = || {
        let bytes = file.len() as u64;
        let segment = Segment::create("batchweave-tokenizer", bytes, &MemoryLimits::default())?;
        segment.reserve(0, bytes)?.write_at(0, file)?;
        Ok(segment)
    };
    let segment = copied().map_err(|why: ArenaError| why.to_string())?;
    Ok((segment, id_bound(file)))
}

/// Returns the content of a vocabulary of this program.
fn vocabulary(builtin: Builtin) -> Result<Vec<u8>, String> {
    let loaded = match builtin {
        Builtin::Bytes => return Err("bytes have no vocabulary".to_owned()),
        Builtin::Gpt2 => tiktoken_rs::r50k_base(),
        Builtin::Cl100k => tiktoken_rs::cl100k_base(),
        Builtin::O200k => tiktoken_rs::o200k_base(),
    };
    let source = loaded.map_err(|why| format!("the vocabulary {}: {why}", builtin.name()))?;
    let bytes = |rank| source.decode_bytes(&[rank]).map_err(|why| why.to_string());
    let tokens: Vec<Vec<u8>> = (0..builtin.ranks()).map(bytes).collect::<Result<_, _>>()?;
    Ok(content(builtin.pattern(), tokens.iter().map(Vec::as_slice)))
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
        reports: None,
        stages: Vec::new(),
    }
}

/// Returns `text` in as many bytes as an answer has room for.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client checks the content by the fingerprint before it decodes by it.
    #[test]
    fn the_content_of_a_vocabulary_has_the_hash_of_its_fingerprint() {
        for builtin in [Builtin::Gpt2, Builtin::Cl100k, Builtin::O200k] {
            let content = vocabulary(builtin).unwrap();
            let id = TokenizerId {
                name: builtin.name().to_owned(),
                fingerprint: batchweave_core::ids::Hash::sha256(&content),
            };
            assert!(id.is_builtin(), "{}: {}", id.name, id.fingerprint);
        }
    }
}
