//! Parts of the `tokenizer.json` that a stream keeps of other files. Their bytes are part of the stored format.

use serde::Serialize;
use serde_json::to_string;

#[derive(Serialize)]
pub(super) struct AddedToken<'a> {
    id: u32,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl<'a> AddedToken<'a> {
    /// Returns a special token, which is found only as it is written.
    pub(super) fn special(id: u32, content: &'a str) -> Self {
        Self {
            id,
            content,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }
}

/// Returns the template that ends each text with the token `token`, whose id is `end_id`.
pub(super) fn end_template(token: &str, end_id: u32) -> Result<String, serde_json::Error> {
    let end = to_string(token)?;
    Ok(format!(
        r#"{{"type":"TemplateProcessing","single":[{{"Sequence":{{"id":"A","type_id":0}}}},{{"SpecialToken":{{"id":{end},"type_id":0}}}}],"pair":[{{"Sequence":{{"id":"A","type_id":0}}}},{{"Sequence":{{"id":"B","type_id":1}}}}],"special_tokens":{{{end}:{{"id":{end},"ids":[{end_id}],"tokens":[{end}]}}}}}}"#
    ))
}
