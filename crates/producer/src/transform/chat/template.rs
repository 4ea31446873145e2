//! The model's template: read from a file, compiled once, rendered within bounds of time and size.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use minijinja::{Environment, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::python_compat;
use super::special_tokens::{GENERATION_BEGINS, GENERATION_ENDS};

/// Most template instructions per conversation: enough for some 10,000 turns, and a bound for endless loops.
const FUEL: u64 = 10_000_000;
const NAME: &str = "chat";

/// The reason why a template cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The file cannot be read.
    #[error(
        "chat.template: {path} can't be read: {why}; name a .jinja file or a tokenizer_config.json"
    )]
    Unreadable { path: String, why: io::Error },
    /// The JSON file has no template.
    #[error(
        "chat.template: {path} has no \"chat_template\" ({detail}); name the model's .jinja file"
    )]
    Absent { path: String, detail: String },
    /// No process can render the template.
    #[error(
        "chat.template: the process that renders conversations can't be used: {why}; check that this user may start one more"
    )]
    NoRenderer { why: io::Error },
    /// The template does not compile.
    #[error("chat.template: {path} is not a valid template: {detail}; correct it at that place")]
    Broken { path: String, detail: String },
}

/// The source of a template and its special tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TemplateFile {
    path: String,
    source: String,
    /// `bos_token` and the like.
    tokens: BTreeMap<String, String>,
    /// Most bytes of a rendered text.
    pub(super) output_bytes_max: u64,
}

impl TemplateFile {
    /// Reads `path`: a template, or a `tokenizer_config.json` that holds one.
    pub fn read(path: &Path, output_bytes_max: u64) -> Result<Self, TemplateError> {
        let name = path.display().to_string();
        let unreadable = |why| TemplateError::Unreadable {
            path: name.clone(),
            why,
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let (source, tokens) = if path.extension().is_some_and(|e| e == "json") {
            from_json(&text).map_err(|detail| TemplateError::Absent {
                path: name.clone(),
                detail,
            })?
        } else {
            // The special tokens are in the model's tokenizer_config.json, beside the template.
            let beside = path.with_file_name("tokenizer_config.json");
            let tokens = std::fs::read_to_string(beside).ok();
            let tokens = tokens.and_then(|text| serde_json::from_str(&text).ok());
            (text, special_tokens(&tokens.unwrap_or(Json::Null)))
        };
        Ok(Self {
            path: name,
            source,
            tokens,
            output_bytes_max,
        })
    }

    #[cfg(test)]
    pub(super) fn for_test(source: &str, tokens: BTreeMap<String, String>, most: u64) -> Self {
        Self {
            path: "a test".to_owned(),
            source: source.to_owned(),
            tokens,
            output_bytes_max: most,
        }
    }

    /// Returns a text that differs for templates that may render differently.
    pub fn fingerprint(&self) -> String {
        format!("{}\n{:?}", self.source, self.tokens)
    }

    /// Returns the error for a template that does not compile.
    pub(super) fn broken(&self, detail: String) -> TemplateError {
        TemplateError::Broken {
            path: self.path.clone(),
            detail,
        }
    }
}

/// A compiled template and its bounds.
#[derive(Debug)]
pub(super) struct Template {
    env: Environment<'static>,
    tokens: BTreeMap<String, String>,
    marks: bool,
    output_bytes_max: u64,
}

impl Template {
    pub(super) fn compile(file: &TemplateFile) -> Result<Self, String> {
        let mut env = environment();
        let (marked, marks) = with_marks(&file.source);
        env.add_template_owned(NAME, marked)
            .map_err(|e| e.to_string())?;
        Ok(Self {
            env,
            tokens: file.tokens.clone(),
            marks,
            output_bytes_max: file.output_bytes_max,
        })
    }

    /// Returns whether the template marks the assistant's text by `{% generation %}` blocks.
    pub(super) fn marks_generation(&self) -> bool {
        self.marks
    }

    /// Returns the text of a conversation; `ask` ends it with the prompt for the next assistant turn.
    pub(super) fn render(
        &self,
        turns: &[Value],
        tools: &Value,
        ask: bool,
    ) -> Result<String, String> {
        let template = self.env.get_template(NAME).map_err(|e| e.to_string())?;
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, text) in &self.tokens {
            context.insert(name, Value::from(text.as_str()));
        }
        context.insert("messages", Value::from(turns.to_vec()));
        context.insert("add_generation_prompt", Value::from(ask));
        let tools = if tools.is_undefined() {
            Value::from(())
        } else {
            tools.clone()
        };
        context.insert("tools", tools);
        context.insert("documents", Value::from(()));
        let mut out = Bounded {
            text: Vec::new(),
            left: self.output_bytes_max,
        };
        let rendered = template.render_captured_to(context, &mut out).map(drop);
        if let Err(error) = rendered {
            if out.left == 0 {
                let most = self.output_bytes_max;
                return Err(format!(
                    "the template writes more than {most} bytes (source.max_document_bytes)"
                ));
            }
            let mut text = format!("the template fails: {error}");
            text.truncate(text.floor_char_boundary(400));
            return Err(text);
        }
        String::from_utf8(out.text).map_err(|e| e.to_string())
    }
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    // The settings with which the transformers library compiles templates.
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_fuel(Some(FUEL));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    python_compat::add(&mut env);
    env
}

type Found = (String, BTreeMap<String, String>);

fn from_json(text: &str) -> Result<Found, String> {
    let json: Json = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let source = match &json["chat_template"] {
        Json::String(source) => source.clone(),
        // Several templates, by name.
        Json::Array(all) => {
            let default = all.iter().find(|one| one["name"] == "default");
            let source = default.and_then(|one| one["template"].as_str());
            source
                .ok_or("none of its templates is named default")?
                .to_owned()
        }
        _ => return Err("there is no such field".to_owned()),
    };
    Ok((source, special_tokens(&json)))
}

/// `bos_token` and the like: a string, or an object with `content`.
fn special_tokens(json: &Json) -> BTreeMap<String, String> {
    let fields = json.as_object().into_iter().flatten();
    let tokens = fields.filter(|(name, _)| name.ends_with("_token"));
    let text = |value: &Json| {
        let text = value.as_str().or_else(|| value["content"].as_str());
        text.map(ToOwned::to_owned)
    };
    tokens
        .filter_map(|(name, value)| Some((name.clone(), text(value)?)))
        .collect()
}

/// Replaces `{% generation %}` and its end, which Jinja does not know, by marks with the same trimming of blanks
/// around them. Returns whether there were any.
fn with_marks(source: &str) -> (String, bool) {
    let mut out = String::with_capacity(source.len());
    let (mut rest, mut marks) = (source, false);
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        out.push_str(before);
        let inner = tag.trim_start_matches("{%").trim_end_matches("%}");
        let (left, inner) = control(inner, str::starts_with, |s| s.get(1..));
        let (right, inner) = control(inner, str::ends_with, |s| s.get(..s.len() - 1));
        let mark = match inner.trim() {
            "generation" => Some(GENERATION_BEGINS),
            "endgeneration" => Some(GENERATION_ENDS),
            _ => None,
        };
        match mark {
            Some(mark) => {
                marks = true;
                let text = format!("{{%{left} if true %}}{{{{ \"{mark}\" }}}}{{% endif {right}%}}");
                out.push_str(&text);
            }
            None => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    (out, marks)
}

/// Returns the sign of whitespace control at one end of a tag, and the tag without it.
fn control<'a>(
    tag: &'a str,
    has: impl Fn(&'a str, &'static str) -> bool,
    without: impl Fn(&'a str) -> Option<&'a str>,
) -> (&'static str, &'a str) {
    for sign in ["-", "+"] {
        if has(tag, sign) {
            return (sign, without(tag).unwrap_or_default());
        }
    }
    ("", tag)
}

/// A writer that fails beyond a number of bytes.
struct Bounded {
    text: Vec<u8>,
    left: u64,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            self.left = 0;
            return Err(io::Error::other("too long"));
        };
        self.left = left;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
