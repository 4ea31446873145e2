//! Tokenizers: text in, token ids out. Text that spells a special token is ordinary text, so no document can end
//! itself.
//!
//! - `embedded` has the encodings of the program, `huggingface` reads tokenizer.json files, `bytes` makes one
//!   token per byte, `none` stands for the one that made ids;
//! - `single_thread` keeps fastokens from starting threads.

mod bytes;
mod embedded;
mod huggingface;
mod none;
mod single_thread;

use std::path::Path;
use std::sync::Arc;

use batchweave_core::ids::Hash;
use batchweave_core::stream::TokenizerId;

pub use embedded::Encoding;

/// The properties of a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name and fingerprint, as stream.json stores them.
    pub id: TokenizerId,
    /// All ids are below this.
    pub id_bound: u32,
    /// The token that follows each document.
    pub end_token: u32,
}

/// Makes tokens of texts; shared by all tokenizing threads.
pub trait Tokenizer: Send + Sync {
    /// Returns the properties of the tokenizer.
    fn identity(&self) -> &Identity;

    /// Returns the special tokens with their texts.
    fn specials(&self) -> &[(String, u32)] {
        &[]
    }

    /// Returns the tokens of `text`, without any for its beginning or end.
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError>;

    /// Returns the text of `tokens`, special tokens included, for people: a cut character is U+FFFD. Tokens that the
    /// library refuses give no text.
    fn decode(&self, tokens: &[u32]) -> String;
}

/// The reason why a tokenizer cannot be loaded, or failed.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("tokenizer.path: {path} can't be read: {why}; name a tokenizer.json file")]
    Unreadable { path: String, why: std::io::Error },
    /// The path is a folder.
    #[error(
        "tokenizer.path: {path} is a folder; name the tokenizer.json file in it, for example {path}/tokenizer.json"
    )]
    Folder { path: String },
    /// The path is the name of a model.
    #[error(
        "tokenizer.path: no file {path}, which looks like a model's name; download that model's tokenizer.json and \
         name the file{embedded}"
    )]
    ModelName {
        path: String,
        /// A further remedy, for a model whose encoding is part of this program.
        embedded: &'static str,
    },
    /// Neither library supports the file.
    #[error(
        "tokenizer.path: {path} is not usable: {detail}; name a tokenizer.json file of the Hugging Face format"
    )]
    Unusable { path: String, detail: String },
    /// No end token, or one that the vocabulary lacks.
    #[error("tokenizer.end_token: {detail}")]
    EndToken { detail: String },
    /// The library refuses the embedded ranks: a fault of the build.
    #[error(
        "the embedded encoding {name} can't be built: {detail}; this build is broken, please report it"
    )]
    Embedded { name: &'static str, detail: String },
    /// The tokenizer refused a text.
    #[error("the tokenizer failed on a text of {bytes} bytes: {detail}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        detail: String,
    },
}

/// A tokenizer to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice<'a> {
    /// An encoding that is part of this program.
    Embedded(Encoding),
    /// One token per byte, with 256 as end token.
    Bytes,
    /// None: documents are ids below `vocab_size`.
    None { vocab_size: u32, end_token: u32 },
    /// A `tokenizer.json` file of the Hugging Face format.
    File {
        path: &'a Path,
        /// The text of the end token; empty selects the first usual one that the file has.
        end_token: &'a str,
    },
}

/// Loads a tokenizer, which takes up to two seconds of CPU time.
pub fn load(choice: &Choice<'_>) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
    single_thread::keep_fastokens_on_the_calling_thread();
    Ok(match choice {
        Choice::None {
            vocab_size,
            end_token,
        } => Arc::new(none::NoTokenizer::new(*vocab_size, *end_token)),
        Choice::Bytes => Arc::new(bytes::Bytes::new()),
        Choice::Embedded(encoding) => Arc::new(embedded::Embedded::new(*encoding)?),
        Choice::File { path, end_token } => huggingface::load(path, end_token)?,
    })
}

fn identity(name: &str, fingerprint: Hash, id_bound: u32, end_token: u32) -> Identity {
    let id = TokenizerId {
        name: name.to_owned(),
        fingerprint,
    };
    Identity {
        id,
        id_bound,
        end_token,
    }
}

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod tests;
