//! Conversations: from messages to tokens by the model's own template, and which of the tokens are to
//! be learned.
//!
//! The template is rendered to text; where the text spells a special token, that token stands in the
//! result, unless a message spelled it: what people wrote stays text (`shield`). To be learned is what
//! stands in the template's `{% generation %}` blocks, or, when it has none, what an assistant turn
//! adds to the text that asks for it.

mod python;
mod shield;
mod template;

use std::ops::Range;
use std::sync::Arc;

use minijinja::Value;

use crate::packing::Content;
use crate::sources::Reason;
use crate::tokenizer::{Tokenizer, TokenizerError};

pub use template::{Template, TemplateError};

use shield::{GENERATION_BEGINS, GENERATION_ENDS, SHIELD};

/// Makes tokens of conversations.
pub struct Chat {
    template: Template,
    tokenizer: Arc<dyn Tokenizer>,
    /// Fields of the document.
    messages: String,
    tools: String,
    specials: shield::Specials,
}

/// What one document becomes; `Ok(None)` for a blank line.
pub type Turns = Result<Option<Content>, Reason>;

fn wrong(detail: impl Into<String>) -> Reason {
    Reason::Chat {
        detail: detail.into(),
    }
}

impl Chat {
    /// By `template`; `messages` and `tools` name the fields.
    pub fn new(
        template: Template,
        tokenizer: Arc<dyn Tokenizer>,
        (messages, tools): (&str, &str),
    ) -> Self {
        let specials = shield::Specials::new(tokenizer.specials());
        Self {
            template,
            tokenizer,
            messages: messages.to_owned(),
            tools: tools.to_owned(),
            specials,
        }
    }

    /// The template's text, which decides the tokens too.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// The tokens of the conversation in the JSON object `raw`.
    pub fn turns(&self, raw: &[u8]) -> Turns {
        if raw.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let (text, learned) = self.text(raw)?;
        let turns = self.encode(&text, &learned);
        turns.map(Some).map_err(Reason::tokenizer)
    }

    /// The rendered text with its shields, and what of it is to be learned.
    fn text(&self, raw: &[u8]) -> Result<(String, Vec<Range<usize>>), Reason> {
        let document: Value = serde_json::from_slice(raw).map_err(|e| Reason::BrokenJson {
            column: e.column(),
            detail: crate::sources::without_place(&e.to_string()),
        })?;
        let field = |name: &str| {
            let value = document.get_attr(name).unwrap_or(Value::UNDEFINED);
            self.specials.shield(&value).map_err(wrong)
        };
        let messages = field(&self.messages)?;
        let tools = field(&self.tools)?;
        let turns: Vec<Value> = match messages.try_iter() {
            Ok(turns) if messages.kind() == minijinja::value::ValueKind::Seq => turns.collect(),
            _ => {
                let name = &self.messages;
                return Err(wrong(format!("field {name:?} is no list of messages")));
            }
        };
        let whole = self.render(&turns, &tools, false)?;
        if self.template.marks_generation() {
            return marked(&whole);
        }
        let learned = self.assistant_turns(&turns, &tools, &whole)?;
        Ok((whole, learned))
    }

    fn render(&self, turns: &[Value], tools: &Value, ask: bool) -> Result<String, Reason> {
        self.template.render(turns, tools, ask).map_err(wrong)
    }

    /// What each assistant turn adds to the text that asks for it.
    fn assistant_turns(
        &self,
        turns: &[Value],
        tools: &Value,
        whole: &str,
    ) -> Result<Vec<Range<usize>>, Reason> {
        let mut learned = Vec::new();
        for (n, turn) in turns.iter().enumerate() {
            let role = turn.get_attr("role").unwrap_or_default();
            if role.as_str() != Some("assistant") {
                continue;
            }
            let before = self.render(&turns[..n], tools, true)?;
            let after = self.render(&turns[..=n], tools, false)?;
            if !whole.starts_with(&before) || !whole.starts_with(&after) {
                let turn = n + 1;
                return Err(wrong(format!(
                    "the template writes message {turn} differently when others follow, so that what the assistant \
                     said in it can't be told; a template with {{% generation %}} blocks says so itself"
                )));
            }
            let end = after.trim_end().len();
            if before.len() < end {
                learned.push(before.len()..end);
            }
        }
        Ok(learned)
    }

    fn encode(&self, text: &str, learned: &[Range<usize>]) -> Result<Content, TokenizerError> {
        let mut tokens = Vec::new();
        let mut marks = Vec::new();
        for part in self.specials.split(text, learned) {
            match part {
                shield::Part::Special(id, learn) => {
                    tokens.push(id);
                    marks.push(learn);
                }
                shield::Part::Text {
                    text,
                    mut learn,
                    changes,
                } => {
                    let encoded = self.tokenizer.encode(&text)?;
                    let mut from = 0;
                    for offset in changes {
                        let before = self.tokenizer.encode(&text[..offset])?;
                        // A token across the border belongs to what follows it.
                        let same = encoded.iter().zip(&before).take_while(|(a, b)| a == b);
                        let to = same.count().max(from);
                        marks.extend(std::iter::repeat_n(learn, to - from));
                        (from, learn) = (to, !learn);
                    }
                    marks.extend(std::iter::repeat_n(learn, encoded.len() - from));
                    tokens.extend(encoded);
                }
            }
        }
        Ok(Content::Turns(tokens, marks))
    }
}

/// Takes the marks of generation blocks out of the text.
fn marked(text: &str) -> Result<(String, Vec<Range<usize>>), Reason> {
    let mut clean = String::with_capacity(text.len());
    let (mut learned, mut began) = (Vec::new(), None);
    for c in text.chars() {
        match (c, began) {
            (GENERATION_BEGINS, None) => began = Some(clean.len()),
            (GENERATION_ENDS, Some(from)) => {
                learned.push(from..clean.len());
                began = None;
            }
            (GENERATION_BEGINS | GENERATION_ENDS, _) => {
                return Err(wrong("the template's generation blocks do not match"));
            }
            _ => clean.push(c),
        }
    }
    if began.is_some() {
        return Err(wrong("the template's last generation block does not end"));
    }
    Ok((clean, learned))
}

/// Whether a text holds one of the characters that mark places here.
fn holds_marks(text: &str) -> bool {
    text.contains([SHIELD, GENERATION_BEGINS, GENERATION_ENDS])
}

#[cfg(test)]
mod tests;
