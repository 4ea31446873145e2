//! Decoding of tokens to text: by a vocabulary of this program, by the tokenizer file that the stream keeps, or by
//! a file that the command line names.

use std::path::Path;

use batchweave_console::CliError;
use batchweave_core::cursor::Cursor;
use batchweave_core::keys;
use batchweave_core::stream::TokenizerId;
use batchweave_core::tokenizer::Builtin;
use batchweave_log::read_tokenizer;
use batchweave_store::Store;
use tiktoken_rs::CoreBPE;
use tokenizers::Tokenizer;

pub(super) struct Vocabulary {
    words: Words,
    /// The token that ends a document, where it is known.
    pub(super) end: Option<u32>,
}

enum Words {
    Bytes,
    Bpe(Box<CoreBPE>),
    File(Box<Tokenizer>),
}

/// The text of the end token of built-in vocabularies.
const END: &str = "<|endoftext|>";

impl Vocabulary {
    /// Finds the vocabulary of a stream. `file` is the one that the command line names; `cursor` is that of the
    /// producer, which holds the end token.
    pub(super) async fn find(
        store: &dyn Store,
        id: &TokenizerId,
        file: Option<&Path>,
        cursor: Option<&Cursor>,
    ) -> Result<Self, CliError> {
        if let Some(path) = file {
            return Self::of_file(path, id, cursor);
        }
        match id.builtin() {
            Some(builtin) if id.is_builtin() => return Self::builtin(builtin),
            _ => {}
        }
        if let Some(bytes) = read_tokenizer(store, id).await? {
            let key = keys::tokenizer(&id.fingerprint);
            let broken = |why| CliError::Unsound(format!("{}/{key}: {why}", store.root()));
            return Self::of_bytes(&bytes, cursor).map_err(broken);
        }
        // The name of a vocabulary with another fingerprint: a producer that is not of these programs.
        id.builtin().map_or_else(
            || Err(CliError::Absent(none_stored(store, id))),
            Self::builtin,
        )
    }

    fn builtin(builtin: Builtin) -> Result<Self, CliError> {
        let loaded = match builtin {
            Builtin::Bytes => None,
            Builtin::Gpt2 => Some(tiktoken_rs::r50k_base()),
            Builtin::Cl100k => Some(tiktoken_rs::cl100k_base()),
            Builtin::O200k => Some(tiktoken_rs::o200k_base()),
        };
        let broken = |e| CliError::Unsound(format!("the vocabulary {}: {e}", builtin.name()));
        let bpe = loaded.transpose().map_err(broken)?;
        Ok(Self {
            words: bpe.map_or(Words::Bytes, |bpe| Words::Bpe(Box::new(bpe))),
            end: Some(builtin.end_token()),
        })
    }

    /// Reads the file of `--tokenizer`, which must be the one that made the tokens.
    fn of_file(path: &Path, id: &TokenizerId, cursor: Option<&Cursor>) -> Result<Self, CliError> {
        let name = path.display().to_string();
        let wrong = |why| CliError::Input(format!("--tokenizer {name}: {why}"));
        let bytes = std::fs::read(path)
            .map_err(|why| wrong(format!("{why}; name the tokenizer.json of the stream")))?;
        id.check_file(&bytes, &name).map_err(|_| {
            wrong(format!(
                "not the file that made the tokens: the stream has the tokenizer {}, fingerprint {}; name the file \
                 that its producers use",
                id.name, id.fingerprint
            ))
        })?;
        Self::of_bytes(&bytes, cursor).map_err(wrong)
    }

    fn of_bytes(bytes: &[u8], cursor: Option<&Cursor>) -> Result<Self, String> {
        let tokenizer = Tokenizer::from_bytes(bytes)
            .map_err(|why| format!("not usable by the tokenizers library: {why}"))?;
        let settings = cursor.and_then(|cursor| cursor.0.get("settings"));
        let end = settings.and_then(|settings| settings.get("tokenizer.end_token")?.as_u64());
        Ok(Self {
            words: Words::File(Box::new(tokenizer)),
            end: end.and_then(|token| u32::try_from(token).ok()),
        })
    }

    /// Decodes tokens; a character that a row boundary cuts becomes U+FFFD.
    pub(super) fn text(&self, tokens: &[u32]) -> String {
        match &self.words {
            Words::File(tokenizer) => of_library(tokenizer, tokens),
            Words::Bpe(bpe) => self.of_bytes_of(tokens, |token| bpe.decode_bytes(&[token]).ok()),
            Words::Bytes => self.of_bytes_of(tokens, |token| Some(vec![u8::try_from(token).ok()?])),
        }
    }

    fn of_bytes_of(&self, tokens: &[u32], word: impl Fn(u32) -> Option<Vec<u8>>) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            match word(token) {
                _ if Some(token) == self.end => bytes.extend_from_slice(END.as_bytes()),
                Some(word) => bytes.extend(word),
                None => bytes.extend_from_slice(unknown(token).as_bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Decodes by the library, with special tokens; it would pass over unknown tokens in silence.
fn of_library(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    let is_known = |token: u32| tokenizer.id_to_token(token).is_some();
    let mut text = String::new();
    for run in tokens.chunk_by(|a, b| is_known(*a) == is_known(*b)) {
        match tokenizer.decode(run, false) {
            Ok(known) if run.first().is_some_and(|token| is_known(*token)) => text += &known,
            _ => text.extend(run.iter().map(|token| unknown(*token))),
        }
    }
    text
}

fn unknown(token: u32) -> String {
    format!("<{token}?>")
}

fn none_stored(store: &dyn Store, id: &TokenizerId) -> String {
    let (root, name, fingerprint) = (store.root(), &id.name, id.fingerprint.to_string());
    format!(
        "--decode: {root} keeps no file of its tokenizer {name:?}: pass --tokenizer FILE with the tokenizer.json of \
         its producers (fingerprint {fingerprint:.16}), or start a producer of this version, which stores it"
    )
}
