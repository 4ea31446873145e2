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
/// of a tokenizer.json, which alone decides in transformers, or for other files `add_bos_token` in the
/// tokenizer_config.json beside it.
pub fn own_begin_token(path: &Path) -> Option<(String, String)> {
    let read =
        |path: &Path| -> Option<Value> { serde_json::from_slice(&std::fs::read(path).ok()?).ok() };
    if let Some(tokenizer) = read(path) {
        let token = first_of(&tokenizer["post_processor"])?;
        return Some((token, path.display().to_string()));
    }
    let beside = path.with_file_name("tokenizer_config.json");
    let settings = read(&beside).filter(|settings| settings["add_bos_token"] == true)?;
    let token = &settings["bos_token"];
    let text = token.as_str().or_else(|| token["content"].as_str())?;
    Some((text.to_owned(), beside.display().to_string()))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Choice, RankSettings, load};
    use super::*;

    /// Returns a tokenizer.json of single letters with this post-processor.
    fn file(processor: &Value) -> String {
        let special = |id: u32, text: &str| {
            json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        };
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": [special(3, "<bos>"), special(4, "</s>")],
            "pre_tokenizer": byte_level, "post_processor": processor, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
        })
        .to_string()
    }

    fn template(single: &[&str]) -> Value {
        let piece = |part: &&str| match *part {
            "A" => json!({"Sequence": {"id": "A", "type_id": 0}}),
            special => json!({"SpecialToken": {"id": special, "type_id": 0}}),
        };
        let special = |id: u32, text: &str| json!({"id": text, "ids": [id], "tokens": [text]});
        json!({"type": "TemplateProcessing", "single": single.iter().map(piece).collect::<Vec<_>>(),
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": special(3, "<bos>"), "</s>": special(4, "</s>")}})
    }

    /// The oracle is what the library adds to a text by itself.
    #[test]
    fn the_begin_token_of_a_file_is_the_one_that_the_library_adds() {
        let bert = |kind: &str| {
            json!({"type": kind, "sep": ["</s>", 4], "cls": ["<bos>", 3], "trim_offsets": true,
                   "add_prefix_space": false})
        };
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true});
        for (processor, adds) in [
            (Value::Null, false),
            (byte_level.clone(), false),
            (template(&["A"]), false),
            (template(&["A", "</s>"]), false),
            (template(&["<bos>", "A"]), true),
            (template(&["<bos>", "A", "</s>"]), true),
            (
                json!({"type": "Sequence", "processors": [byte_level, template(&["<bos>", "A"])]}),
                true,
            ),
            (bert("BertProcessing"), true),
            (bert("RobertaProcessing"), true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = &folder.path().join("tokenizer.json");
            std::fs::write(path, file(&processor)).unwrap();
            let oracle = tokenizers::Tokenizer::from_file(path).unwrap();
            let by_library = oracle.encode("abb", true).unwrap().get_ids().to_vec();
            assert_eq!(by_library[0] == 3, adds, "{processor}");
            let own = own_begin_token(path);
            let name = path.display().to_string();
            assert_eq!(own, adds.then(|| ("<bos>".to_owned(), name)), "{processor}");
            let settings = RankSettings::default();
            let tokenizer = load(&Choice::File {
                path,
                settings,
                end_token: "",
            })
            .unwrap();
            let token = begin_token("<bos>", tokenizer.as_ref()).unwrap();
            let mut tokens: Vec<u32> = token.into_iter().filter(|_| adds).collect();
            tokens.extend(tokenizer.encode("abb").unwrap());
            assert_eq!(by_library[..tokens.len()], tokens, "{processor}");
        }
    }

    #[test]
    fn of_a_file_without_a_post_processor_the_settings_beside_it_decide() {
        let folder = tempfile::tempdir().unwrap();
        let model = &folder.path().join("tokenizer.model");
        std::fs::write(model, b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\xff").unwrap();
        let beside = folder.path().join("tokenizer_config.json");
        let name = beside.display().to_string();
        assert_eq!(own_begin_token(model), None);
        for (settings, adds) in [
            (
                r#"{"add_bos_token": true, "bos_token": {"content": "<s>"}}"#,
                true,
            ),
            (r#"{"add_bos_token": true, "bos_token": "<s>"}"#, true),
            (r#"{"add_bos_token": false, "bos_token": "<s>"}"#, false),
            (r#"{"bos_token": "<s>"}"#, false),
        ] {
            std::fs::write(&beside, settings).unwrap();
            let own = own_begin_token(model);
            assert_eq!(
                own,
                adds.then(|| ("<s>".to_owned(), name.clone())),
                "{settings}"
            );
        }
    }

    #[test]
    fn a_token_that_the_vocabulary_lacks_is_named() {
        let bytes = load(&Choice::Bytes).unwrap();
        assert_eq!(begin_token("", bytes.as_ref()).unwrap(), None);
        assert_eq!(
            begin_token("<|endoftext|>", bytes.as_ref()).unwrap(),
            Some(256)
        );
        let why = begin_token("<s>", bytes.as_ref()).unwrap_err().to_string();
        assert!(
            why.contains("no token \"<s>\"; its special tokens are \"<|endoftext|>\""),
            "{why}"
        );
    }
}
