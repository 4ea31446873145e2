//! A model as one `tokenizer.json`: what the stream keeps, so that every reader decodes it as any other file, and whose
//! hash is the fingerprint. Its vocabulary and decoder are for readers; the model itself is beside them, byte for
//! byte, because no kind of model of a tokenizer.json divides texts as SentencePiece does.
//!
//! The bytes are part of the stored format: another order of fields would be another fingerprint.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::to_string;

use super::super::json_parts::{AddedToken, end_template};
use super::model::{Model, Use};
use super::normalizer::SPACE;

/// Returns the definition of a model; `file` is its bytes, `end` the text of the end token, and `end_id` its id.
pub(super) fn tokenizer_json(
    model: &Model,
    file: &[u8],
    end: &str,
    end_id: u32,
) -> Result<String, serde_json::Error> {
    let ids = || (0_u32..).zip(&model.pieces);
    let added: Vec<AddedToken<'_>> = ids()
        .filter(|(_, piece)| piece.usage == Use::Control)
        .map(|(id, piece)| AddedToken::special(id, &piece.text))
        .collect();
    let vocab: BTreeMap<&str, u32> = ids().map(|(id, p)| (p.text.as_str(), id)).collect();
    let unknown = ids().find(|(id, _)| *id == model.unknown);
    let unknown = to_string(unknown.map_or("", |(_, piece)| &piece.text))?;
    let added = to_string(&added)?;
    let vocab = to_string(&vocab)?;
    let template = end_template(end, end_id)?;
    let decoder = decoder(model);
    let file = STANDARD.encode(file);
    Ok(format!(
        r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":{added},"normalizer":null,"pre_tokenizer":null,
"post_processor":{template},
"decoder":{decoder},
"model":{{"type":"WordLevel","unk_token":{unknown},"vocab":{vocab},"sentencepiece_model":"{file}"}}}}"#
    ))
}

/// Returns the decoder: spaces for their sign, bytes joined, and without the space that was added to the text.
fn decoder(model: &Model) -> String {
    let mut steps = Vec::new();
    if model.escape_spaces {
        steps.push(format!(
            r#"{{"type":"Replace","pattern":{{"String":"{SPACE}"}},"content":" "}}"#
        ));
    }
    if model.bytes.is_some() {
        steps.push(r#"{"type":"ByteFallback"}"#.to_owned());
    }
    steps.push(r#"{"type":"Fuse"}"#.to_owned());
    if model.dummy_prefix {
        let (start, stop) = if model.space_as_suffix {
            (0, 1)
        } else {
            (1, 0)
        };
        steps.push(format!(
            r#"{{"type":"Strip","content":" ","start":{start},"stop":{stop}}}"#
        ));
    }
    format!(r#"{{"type":"Sequence","decoders":[{}]}}"#, steps.join(","))
}
