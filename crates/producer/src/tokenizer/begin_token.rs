//! The token that each document begins with: the one of the configuration, and the one that the tokenizer's own files
//! put before a text, which models were trained with.

use std::path::Path;

use serde_json::Value;

use super::{Tokenizer, TokenizerError};

/// Special tokens that an error lists.
const LISTED: usize = 8;

/// Returns the token with the configured text; `None` for an empty text, which says that there is none.
pub fn begin_token(text: &str, tokenizer: &dyn Tokenizer) -> Result<Option<u32>, TokenizerError> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = tokenizer.token_id(text).map(Some);
    found.ok_or_else(|| {
        let names = tokenizer.specials().iter().take(LISTED);
        let names: Vec<String> = names.map(|(text, _)| format!("{text:?}")).collect();
        let known = if names.is_empty() {
            "write one of its tokens".to_owned()
        } else {
            format!("its special tokens are {}", names.join(", "))
        };
        TokenizerError::BeginToken {
            detail: format!("the vocabulary has no token {text:?}; {known}"),
        }
    })
}

/// Returns the token that the files of a tokenizer put before each text, and the file that says so: the post-processor
/// of the tokenizer.json at `path`, or `add_bos_token` in the tokenizer_config.json beside it.
pub fn own_begin_token(path: &Path) -> Option<(String, String)> {
    let beside = path.with_file_name("tokenizer_config.json");
    let read =
        |path: &Path| -> Option<Value> { serde_json::from_slice(&std::fs::read(path).ok()?).ok() };
    let settings = read(&beside).unwrap_or_default();
    match settings["add_bos_token"].as_bool() {
        Some(false) => return None,
        Some(true) => {
            let token = &settings["bos_token"];
            let token = token.as_str().or_else(|| token["content"].as_str());
            if let Some(token) = token {
                return Some((token.to_owned(), beside.display().to_string()));
            }
        }
        None => {}
    }
    let token = first_of(&read(path)?["post_processor"])?;
    Some((token, path.display().to_string()))
}

/// Returns the token that a post-processor puts before a text.
fn first_of(processor: &Value) -> Option<String> {
    match processor["type"].as_str()? {
        "TemplateProcessing" => {
            let first = processor["single"].as_array()?.first()?;
            first["SpecialToken"]["id"].as_str().map(ToOwned::to_owned)
        }
        "BertProcessing" | "RobertaProcessing" => {
            processor["cls"][0].as_str().map(ToOwned::to_owned)
        }
        "Sequence" => processor["processors"]
            .as_array()?
            .iter()
            .find_map(first_of),
        _ => None,
    }
}
