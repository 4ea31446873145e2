//! From the values of a document to those of a template.

use std::rc::Rc;

use minijinja::value::ValueKind;

use super::super::special_tokens::ESCAPE;
use super::value::{Dict, Made, Value, fail};

/// The names of a message's reasoning; the first of them that has a value gives it to the others.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Takes over the values of documents.
#[derive(Debug, Default)]
pub(super) struct Documents {
    /// Whether a text had an escaped special token.
    pub(super) has_escapes: bool,
    /// Whether escapes are left out.
    pub(super) unescapes: bool,
}

impl Documents {
    /// Returns the messages, each with the names of its reasoning that transformers gives it.
    pub(super) fn messages(&mut self, turns: &minijinja::Value) -> Made<Value> {
        let message = |turn: minijinja::Value| match self.value(&turn)? {
            Value::Dict(dict) => aliased(dict),
            other => Ok(other),
        };
        let all = turns.try_iter().into_iter().flatten();
        Ok(Value::list(all.map(message).collect::<Made<_>>()?))
    }

    /// Returns the value of a template.
    pub(super) fn value(&mut self, value: &minijinja::Value) -> Made<Value> {
        Ok(match value.kind() {
            ValueKind::Undefined => Value::Undefined(None),
            ValueKind::None => Value::None,
            ValueKind::Bool => Value::Bool(value.is_true()),
            ValueKind::Number => match i128::try_from(value.clone()) {
                Ok(whole) if value.is_integer() => Value::Int(whole),
                _ => Value::Float(f64::try_from(value.clone()).map_or(f64::NAN, |float| float)),
            },
            ValueKind::String => match value.as_str() {
                Some(text) => self.text(text),
                None => return fail("a text that is none"),
            },
            ValueKind::Seq => {
                let items = value.try_iter().into_iter().flatten();
                Value::list(items.map(|item| self.value(&item)).collect::<Made<_>>()?)
            }
            ValueKind::Map => {
                let mut dict = Dict::default();
                for key in value.try_iter().into_iter().flatten() {
                    let item = value.get_item(&key).unwrap_or_default();
                    dict.insert(self.value(&key)?, self.value(&item)?)?;
                }
                Value::Dict(Rc::new(dict))
            }
            other => return fail(format!("a value of the kind {other}")),
        })
    }

    fn text(&mut self, text: &str) -> Value {
        if !text.contains(ESCAPE) {
            return text.into();
        }
        self.has_escapes = true;
        if self.unescapes {
            return text.replace(ESCAPE, "").into();
        }
        text.into()
    }
}

fn aliased(dict: Rc<Dict>) -> Made<Value> {
    let given = |name: &&str| {
        let found = dict.get_text(&(*name).into());
        found.filter(|value| !matches!(value, Value::None)).cloned()
    };
    let Some(reasoning) = REASONING.iter().find_map(given) else {
        return Ok(Value::Dict(dict));
    };
    let mut made = Dict::default();
    made.insert("thinking".into(), reasoning.clone())?;
    for (key, value) in &dict.entries {
        made.insert(key.clone(), value.clone())?;
    }
    made.insert("reasoning_content".into(), reasoning)?;
    Ok(Value::Dict(Rc::new(made)))
}
