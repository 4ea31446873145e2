//! Tokenizers: text in, token ids out. Text that spells a special token is ordinary text, so no document can end
//! itself.
//!
//! - `embedded` has the encodings of the program, `huggingface` reads tokenizer.json files, `rank_file` tiktoken's,
//!   `sentencepiece` models of that library, `bytes` makes one token per byte, `none` stands for the one that made ids;
//! - `begin_token` finds the token that documents begin with;
//! - `ranks` has the content of a rank file, `rank_definition` makes the tokenizer.json that stands for it, of `json_parts`;
//! - `single_thread` keeps fastokens from starting threads.

mod begin_token;
mod bytes;
mod embedded;
mod huggingface;
mod json_parts;
mod none;
mod rank_definition;
mod rank_file;
mod ranks;
mod sentencepiece;
mod single_thread;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ::bytes::Bytes as FileBytes;
use batchweave_core::ids::Hash;
use batchweave_core::stream::TokenizerId;

pub use begin_token::{begin_token, own_begin_token};
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

    /// Returns the id of the token with this text: a special one, or of a tokenizer.json any.
    fn token_id(&self, text: &str) -> Option<u32> {
        let mut specials = self.specials().iter();
        specials.find(|(own, _)| own == text).map(|(_, id)| *id)
    }

    /// Returns the tokenizer.json that the stream keeps in place of a rank file or a SentencePiece model; `None` for
    /// all other tokenizers.
    fn definition(&self) -> Option<FileBytes> {
        None
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
    /// The JSON file is another one of a model.
    #[error("tokenizer.path: {path} is {found}; {remedy}")]
    OtherJson {
        path: String,
        found: &'static str,
        remedy: String,
    },
    /// A rank file of tiktoken is damaged.
    #[error(
        "tokenizer.path: {path} is not usable as a rank file of tiktoken: {detail}; copy the file again"
    )]
    RankFile { path: String, detail: String },
    /// A SentencePiece model is damaged, or not one that the program encodes with.
    #[error(
        "tokenizer.path: {path} is not usable as a SentencePiece model: {detail}; copy the file again, or name the \
         model's tokenizer.json"
    )]
    SentencePiece { path: String, detail: String },
    /// A rank file needs a pattern, or the pattern does not fit.
    #[error("tokenizer.pattern: {detail}")]
    Pattern { detail: String },
    /// A special token of a rank file does not fit.
    #[error("tokenizer.special_tokens: {detail}")]
    SpecialTokens { detail: String },
    /// The file is of no format that the program reads.
    #[error(
        "tokenizer.path: {path} is {found}; name a tokenizer.json of the Hugging Face format, a SentencePiece model, \
         or a rank file of tiktoken (lines of a token in base64 and its rank)"
    )]
    Format { path: String, found: &'static str },
    /// A setting of rank files, for another file.
    #[error(
        "tokenizer.{key}: is for rank files of tiktoken, and {path} is {found}, which has its own; remove it"
    )]
    NotRanks {
        key: &'static str,
        path: String,
        found: &'static str,
    },
    /// No end token, or one that the vocabulary lacks.
    #[error("tokenizer.end_token: {detail}")]
    EndToken { detail: String },
    /// The vocabulary lacks the begin token.
    #[error("tokenizer.begin_token: {detail}")]
    BeginToken { detail: String },
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
    /// A `tokenizer.json` file of the Hugging Face format, a SentencePiece model, or a rank file of tiktoken: the
    /// content decides.
    File {
        path: &'a Path,
        settings: RankSettings<'a>,
        /// The text of the end token; empty selects the first usual one that the file has.
        end_token: &'a str,
    },
}

/// The settings that a rank file of tiktoken needs beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankSettings<'a> {
    /// The name of a split pattern, or a regular expression; empty for other files.
    pub pattern: &'a str,
    /// The special tokens with their ids; empty for other files.
    pub special_tokens: &'a BTreeMap<String, u32>,
}

impl Default for RankSettings<'_> {
    fn default() -> Self {
        static NONE: BTreeMap<String, u32> = BTreeMap::new();
        Self {
            pattern: "",
            special_tokens: &NONE,
        }
    }
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
        Choice::File {
            path,
            settings,
            end_token,
        } => load_file(path, *settings, end_token)?,
    })
}

/// Loads a file by its content: Llama 3's rank file has the name of a SentencePiece model.
fn load_file(
    path: &Path,
    settings: RankSettings<'_>,
    end_token: &str,
) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|why| huggingface::unreadable(name.clone(), why))?;
    if ranks::are_ranks(&bytes) {
        let made = rank_file::RankFile::new(path, &bytes, settings, end_token)?;
        return Ok(Arc::new(made));
    }
    let is_model = sentencepiece::is_model(&bytes);
    let found = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "empty",
        Some(b'{') => "",
        Some(_) if is_model => "",
        Some(_) => "of another format, or damaged",
    };
    if !found.is_empty() {
        return Err(TokenizerError::Format { path: name, found });
    }
    check_not_ranks(settings, name, is_model)?;
    if is_model {
        let made = sentencepiece::SentencePiece::new(path, &bytes, end_token)?;
        return Ok(Arc::new(made));
    }
    huggingface::load(path, &bytes, end_token)
}

/// Fails for settings that rank files alone have; the file called `name` is another one.
fn check_not_ranks(
    settings: RankSettings<'_>,
    name: String,
    is_model: bool,
) -> Result<(), TokenizerError> {
    let key = if !settings.pattern.is_empty() {
        "pattern"
    } else if !settings.special_tokens.is_empty() {
        "special_tokens"
    } else {
        return Ok(());
    };
    let found = if is_model {
        "a SentencePiece model"
    } else {
        "a tokenizer.json"
    };
    Err(TokenizerError::NotRanks {
        key,
        path: name,
        found,
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
