//! The model's template: read from a file, compiled once, rendered within bounds of time and size.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use minijinja::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::dialect::{CurrentDialect, Dialect};
use super::earlier::Earlier;
use super::jinja::{Bounds, Date, Jinja};
use super::wrong::wrong;
use crate::sources::Reason;

/// Most steps of a template per conversation: enough for some 10,000 turns, and a bound for endless loops.
const FUEL: u64 = 10_000_000;
/// Number of characters of a text in a message to people.
const SHOWN: usize = 40;

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
    /// The date that `strftime_now` writes.
    date: Option<Date>,
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
            let settings = std::fs::read_to_string(beside)
                .ok()
                .and_then(|settings| serde_json::from_str(&settings).ok());
            (text, special_tokens(&settings.unwrap_or(Json::Null)))
        };
        Ok(Self {
            path: name,
            source,
            tokens,
            date: None,
            output_bytes_max,
        })
    }

    /// Returns the template with the date of `chat.date`, if that names one.
    #[must_use]
    pub fn with_date(self, date: &str) -> Self {
        let date = Date::parse(date);
        Self { date, ..self }
    }

    #[cfg(test)]
    pub(super) fn for_test(source: &str, tokens: BTreeMap<String, String>, most: u64) -> Self {
        Self {
            path: "a test".to_owned(),
            source: source.to_owned(),
            tokens,
            date: None,
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

/// A parsed template and its bounds.
#[derive(Debug)]
pub(super) struct Template {
    jinja: Jinja,
    file: TemplateFile,
    dialect: CurrentDialect,
    earlier: OnceLock<Result<Earlier, String>>,
}

impl Template {
    pub(super) fn compile(file: &TemplateFile) -> Result<Self, String> {
        Ok(Self {
            jinja: Jinja::parse(&file.source)?,
            file: file.clone(),
            dialect: CurrentDialect::default(),
            earlier: OnceLock::new(),
        })
    }

    /// Goes on by the rules of `dialect`.
    pub(super) fn continue_in(&self, dialect: Dialect) {
        self.dialect.set(dialect);
    }

    /// Returns whether the template marks the assistant's text by `{% generation %}` blocks.
    pub(super) fn marks_generation(&self) -> bool {
        self.jinja.marks_generation()
    }

    /// Returns the text of a conversation, with marks around its generation blocks; `ask` ends it with the prompt for
    /// the next assistant turn.
    pub(super) fn render(
        &self,
        turns: &[Value],
        tools: &Value,
        ask: bool,
    ) -> Result<String, Reason> {
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, text) in &self.file.tokens {
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
        let bounds = Bounds {
            fuel: FUEL,
            bytes: self.file.output_bytes_max,
        };
        let rendered = self.jinja.render(&context, self.file.date, bounds);
        let made = rendered.map_err(|why| {
            let mut text = format!("the template fails: {why}");
            text.truncate(text.floor_char_boundary(400));
            text
        });
        if self.dialect.get().is_earlier() {
            self.compare(made.as_ref(), &context)?;
        }
        made.map_err(wrong)
    }

    /// Fails where the first dialect made another text.
    fn compare(
        &self,
        made: Result<&String, &String>,
        context: &BTreeMap<&str, Value>,
    ) -> Result<(), Reason> {
        let compile = || Earlier::compile(&self.file.source, self.file.output_bytes_max);
        let earlier = match self.earlier.get_or_init(compile) {
            Ok(earlier) => earlier.render(context),
            Err(why) => Err(why.clone()),
        };
        let detail = match (made, earlier) {
            (Ok(made), Ok(earlier)) if *made == earlier => return Ok(()),
            (Err(_), Err(_)) => return Ok(()),
            (Ok(made), Ok(earlier)) => {
                let (now, before) = difference(made, &earlier);
                format!("the template now writes {now:?} where it wrote {before:?}, as Jinja2 does")
            }
            (Ok(_), Err(_)) => {
                "the template now renders the conversation, which it did not".to_owned()
            }
            (Err(why), Ok(_)) => {
                format!("{why}, as with Jinja2, and the conversation was rendered before")
            }
        };
        self.dialect.get().refuse_if_earlier(|| detail)
    }
}

/// Returns the parts of two texts from their first difference on.
fn difference<'t>(one: &'t str, other: &'t str) -> (&'t str, &'t str) {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
    let at = one.floor_char_boundary(same.count());
    let at = other.floor_char_boundary(at);
    let part = |text: &'t str| &text[at..text.floor_char_boundary(at + SHOWN)];
    (part(one), part(other))
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
