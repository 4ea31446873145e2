//! `tokenizer.json` files, encoded by fastokens, or by the `tokenizers` crate where fastokens does not support the
//! file. The latter is slower by an order of magnitude, so it is logged.

use std::path::Path;
use std::sync::Arc;

use batchweave_core::ids::Hash;
use batchweave_core::tokenizer::id_bound;
use fastokens::AddedTokenPolicy;
use serde_json::Value;

use super::{Identity, Tokenizer, TokenizerError, identity};

/// Usual texts of end tokens, in the order of preference.
const USUAL_END_TOKENS: [&str; 7] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
    "<EOS_TOKEN>",
    "[SEP]",
];

/// Makes the tokenizer of the file's content.
pub(super) fn load(
    path: &Path,
    bytes: &[u8],
    end_token: &str,
) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
    let name = path.display().to_string();
    let unusable = |detail: String| TokenizerError::Unusable {
        path: name.clone(),
        detail,
    };
    let json: Value = serde_json::from_slice(bytes).map_err(|e| unusable(e.to_string()))?;
    if let Some(found) = other_json(&json) {
        return Err(TokenizerError::OtherJson {
            path: name,
            found,
            remedy: remedy(path),
        });
    }
    let library = Library::open(&json, bytes, &name).map_err(&unusable)?;
    let end_token = find_end_token(end_token, |token| library.token_id(token));
    let bound = id_bound(bytes)
        .ok_or_else(|| unusable("its vocabulary has no ids of 32 bits".to_owned()))?;
    Ok(Arc::new(FileTokenizer {
        identity: identity(&short_name(path), Hash::sha256(bytes), bound, end_token?),
        specials: specials(&json),
        library,
    }))
}

/// Returns the advice for a path to another file of a model.
fn remedy(path: &Path) -> String {
    let beside = path.with_file_name("tokenizer.json");
    if beside != path && beside.is_file() {
        format!("name {}, which is beside it", beside.display())
    } else {
        "name the model's tokenizer.json, SentencePiece model or rank file of tiktoken".to_owned()
    }
}

/// Returns the content of a JSON file beside a tokenizer: the other files of a model.
fn other_json(json: &Value) -> Option<&'static str> {
    let has = |key: &str| json.get(key).is_some();
    let ids = || {
        let object = json.as_object().filter(|object| object.len() > 1)?;
        object.values().next()?.as_u64()
    };
    if json["model"].is_object() {
        None
    } else if has("tokenizer_class") || has("chat_template") || has("added_tokens_decoder") {
        Some("a tokenizer_config.json, which has the settings beside a tokenizer")
    } else if has("model_type") || has("architectures") {
        Some("the config.json of a model")
    } else if has("bos_token") || has("eos_token") {
        Some("a special_tokens_map.json, which has the names of special tokens only")
    } else if ids().is_some() {
        Some("a vocabulary without the rules that divide texts")
    } else {
        Some("JSON without the field \"model\" of a tokenizer")
    }
}

/// Returns the error for a file that cannot be read: newcomers name folders, and models by their name on a hub.
pub(super) fn unreadable(path: String, why: std::io::Error) -> TokenizerError {
    if why.kind() == std::io::ErrorKind::IsADirectory {
        return TokenizerError::Folder { path };
    }
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let parts: Vec<&str> = path.split('/').collect();
    let model = parts.len() <= 2
        && (parts.iter()).all(|text| !text.is_empty() && text.chars().all(part))
        && !path.starts_with('.')
        && Path::new(&path).extension() != Some("json".as_ref());
    if why.kind() != std::io::ErrorKind::NotFound || !model {
        return TokenizerError::Unreadable { path, why };
    }
    let gpt2 = matches!(path.as_str(), "gpt2" | "openai-community/gpt2");
    let embedded = if gpt2 {
        "; or remove tokenizer.kind and tokenizer.path: gpt2 is the default"
    } else {
        ""
    };
    TokenizerError::ModelName { path, embedded }
}

/// Returns the last folder and the file's name, because the folder usually has the model's name.
pub(super) fn short_name(path: &Path) -> String {
    let last: Vec<_> = path
        .components()
        .rev()
        .take(2)
        .map(|c| c.as_os_str().to_string_lossy())
        .collect();
    last.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// Returns the added tokens that are special.
fn specials(json: &Value) -> Vec<(String, u32)> {
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let special = added.filter(|token| token["special"] == true);
    let pair = |token: &Value| {
        let id = u32::try_from(token["id"].as_u64()?).ok()?;
        Some((token["content"].as_str()?.to_owned(), id))
    };
    special.filter_map(pair).collect()
}

pub(super) fn find_end_token(
    configured: &str,
    known: impl Fn(&str) -> Option<u32>,
) -> Result<u32, TokenizerError> {
    let absent = |detail| TokenizerError::EndToken { detail };
    if !configured.is_empty() {
        return known(configured).ok_or_else(|| {
            absent(format!(
                "the vocabulary has no token {configured:?}; write one of its tokens"
            ))
        });
    }
    USUAL_END_TOKENS.iter().find_map(|token| known(token)).ok_or_else(|| {
        absent("the vocabulary has none of the usual end tokens; name the one that ends a document".to_owned())
    })
}

struct FileTokenizer {
    identity: Identity,
    specials: Vec<(String, u32)>,
    library: Library,
}

enum Library {
    Fastokens(Box<fastokens::Tokenizer>),
    Tokenizers(Box<tokenizers::Tokenizer>),
}

impl Library {
    /// Opens the file called `name` with the fast library, else with the slow one. An error says what is wrong with it.
    fn open(json: &Value, bytes: &[u8], name: &str) -> Result<Self, String> {
        let why = match fastokens::Tokenizer::from_json(json.clone()) {
            Ok(mut inner) => {
                inner.set_truncation(None);
                inner.set_padding(None);
                return Ok(Self::Fastokens(Box::new(inner)));
            }
            Err(why) => why,
        };
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|slow| format!("fastokens says: {why}; tokenizers says: {slow}"))?;
        tracing::warn!(tokenizer = name, reason = %why, "fastokens does not support this tokenizer; using the slower tokenizers crate");
        inner.with_padding(None);
        inner.set_encode_special_tokens(true);
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        Ok(Self::Tokenizers(Box::new(inner)))
    }

    fn token_id(&self, text: &str) -> Option<u32> {
        match self {
            Self::Fastokens(inner) => inner.token_to_id(text),
            Self::Tokenizers(inner) => inner.token_to_id(text),
        }
    }
}

impl Tokenizer for FileTokenizer {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn specials(&self) -> &[(String, u32)] {
        &self.specials
    }

    fn token_id(&self, text: &str) -> Option<u32> {
        self.library.token_id(text)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoded = match &self.library {
            Library::Fastokens(inner) => inner
                .encode_with_policy(text, false, AddedTokenPolicy::SkipSpecial)
                .map_err(|e| e.to_string()),
            Library::Tokenizers(inner) => inner
                .encode_fast(text, false)
                .map(|encoded| encoded.get_ids().to_vec())
                .map_err(|e| e.to_string()),
        };
        encoded.map_err(|detail| TokenizerError::Encode {
            bytes: text.len(),
            detail,
        })
    }

    fn decode(&self, tokens: &[u32]) -> String {
        match &self.library {
            Library::Fastokens(inner) => inner.decode(tokens, false).unwrap_or_default(),
            Library::Tokenizers(inner) => inner.decode(tokens, false).unwrap_or_default(),
        }
    }
}
