//! Tokenizers: text in, token ids out. Text that spells a special token is ordinary text: a document
//! can't end itself.

mod bytes;
mod embedded;
mod huggingface;
mod single_thread;

use std::path::Path;
use std::sync::Arc;

use batchweave_core::ids::Hash;
use batchweave_core::stream::TokenizerId;

pub use embedded::Encoding;

/// What a tokenizer is, apart from doing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name and fingerprint, as stream.json keeps them.
    pub id: TokenizerId,
    /// All ids are below this.
    pub id_bound: u32,
    /// The token that follows each document.
    pub end_token: u32,
}

/// Turns documents into tokens; shared by all tokenizing threads.
pub trait Tokenizer: Send + Sync {
    /// What it is.
    fn identity(&self) -> &Identity;

    /// The special tokens, by their texts.
    fn specials(&self) -> &[(String, u32)] {
        &[]
    }

    /// The tokens of `text`, without any that mark beginning or end.
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError>;
}

/// Why a tokenizer can't be had, or failed.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file can't be read.
    #[error("tokenizer.path: {path} can't be read: {why}; name a tokenizer.json file")]
    Unreadable {
        /// As configured.
        path: String,
        /// The system's words.
        why: std::io::Error,
    },
    /// Neither library takes the file.
    #[error(
        "tokenizer.path: {path} is not usable: {detail}; name a tokenizer.json file of the Hugging Face format"
    )]
    Unusable {
        /// As configured.
        path: String,
        /// Both libraries' words.
        detail: String,
    },
    /// No end token, or one that the vocabulary lacks.
    #[error("tokenizer.end_token: {detail}")]
    EndToken {
        /// Why, and what to write.
        detail: String,
    },
    /// Embedded ranks that the library refuses: a fault of the build.
    #[error(
        "the embedded encoding {name} can't be built: {detail}; this build is broken, please report it"
    )]
    Embedded {
        /// The encoding.
        name: &'static str,
        /// The library's words.
        detail: String,
    },
    /// The tokenizer refused a text.
    #[error("the tokenizer failed on a text of {bytes} bytes: {detail}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// The library's words.
        detail: String,
    },
}

/// Which tokenizer to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice<'a> {
    /// An encoding that is part of this program.
    Embedded(Encoding),
    /// Bytes as they are, with 256 as end token.
    Bytes,
    /// A `tokenizer.json` file.
    File {
        /// The file.
        path: &'a Path,
        /// The end token's text; empty: the one of the usual names that the file has.
        end_token: &'a str,
    },
}

/// Loads a tokenizer; takes up to two seconds of CPU.
pub fn load(choice: &Choice<'_>) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
    single_thread::keep_fastokens_on_the_calling_thread();
    Ok(match choice {
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
