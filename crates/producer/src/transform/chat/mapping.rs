//! From the fields of a document to messages with `role` and `content`, which templates expect.
//!
//! With the default keys messages stay as they are. With others a role must be known, because a template writes an
//! unknown one as it is, and the model would learn it.

use std::collections::BTreeMap;

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::{Deserialize, Serialize};

use super::learned::LossRules;
use crate::sources::Reason;

/// The roles that need no entry in `chat.roles`.
const ROLES: [&str; 6] = [
    "system",
    "user",
    "assistant",
    "tool",
    "developer",
    "function",
];
/// The settings for ShareGPT's form, as an error names them.
const SHAREGPT: &str = "chat.role_key = \"from\", chat.content_key = \"value\" and \
                        chat.roles = { human = \"user\", gpt = \"assistant\" }";
/// Most names of fields in a message to people.
const NAMES_MAX: usize = 12;

/// The names of a document's fields, and those of roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Field with the list of messages.
    pub messages: String,
    /// Field with the tools.
    pub tools: String,
    /// Field of a message with its role.
    pub role_key: String,
    /// Field of a message with its text.
    pub content_key: String,
    /// The template's role for each role in the documents.
    pub roles: BTreeMap<String, String>,
    /// The messages that are learned.
    pub loss: LossRules,
}

impl From<(&str, &str)> for Mapping {
    fn from((messages, tools): (&str, &str)) -> Self {
        Self {
            messages: messages.to_owned(),
            tools: tools.to_owned(),
            role_key: "role".to_owned(),
            content_key: "content".to_owned(),
            roles: BTreeMap::new(),
            loss: LossRules::default(),
        }
    }
}

fn wrong(detail: String) -> Reason {
    Reason::Messages { detail }
}

fn field(value: &Value, name: &str) -> Option<Value> {
    let found = value.get_attr(name).unwrap_or(Value::UNDEFINED);
    (!found.is_undefined()).then_some(found)
}

fn names(value: &Value) -> String {
    let keys = value.try_iter().into_iter().flatten();
    let keys: Vec<String> = keys.take(NAMES_MAX).map(|key| key.to_string()).collect();
    if keys.is_empty() {
        "nothing".to_owned()
    } else {
        keys.join(", ")
    }
}

fn is_sharegpt(message: &Value) -> bool {
    let [role, content, from, value] =
        ["role", "content", "from", "value"].map(|name| field(message, name).is_some());
    !role && !content && from && value
}

impl Mapping {
    /// Returns whether messages stay as they are.
    fn is_plain(&self) -> bool {
        self.role_key == "role" && self.content_key == "content" && self.roles.is_empty()
    }

    /// Returns the list of messages in `document`, with `role` and `content`.
    pub(super) fn turns(&self, document: &Value) -> Result<Value, Reason> {
        if document.kind() != ValueKind::Map {
            let kind = document.kind();
            return Err(wrong(format!(
                "is a {kind}, not a JSON object; write {{\"{}\": [...]}}",
                self.messages
            )));
        }
        let Some(mut messages) = field(document, &self.messages) else {
            return Err(self.missing(document));
        };
        if let Some(text) = messages.as_str() {
            // Tables often hold lists as JSON.
            let parsed = serde_json::from_str(text);
            messages = parsed.map_err(|_| self.no_list())?;
        }
        if messages.kind() != ValueKind::Seq {
            return Err(self.no_list());
        }
        let items = messages.try_iter().map_err(|_| self.no_list())?;
        let turns = items.enumerate().map(|(n, turn)| self.turn(n + 1, turn));
        Ok(Value::from(turns.collect::<Result<Vec<Value>, Reason>>()?))
    }

    fn no_list(&self) -> Reason {
        wrong(format!(
            "field {:?} is not a list of messages; correct it, or name the right one in chat.messages",
            self.messages
        ))
    }

    fn missing(&self, document: &Value) -> Reason {
        let wanted = &self.messages;
        let sharegpt = field(document, "conversations").is_some_and(|list| {
            let mut turns = list.try_iter().into_iter().flatten();
            turns.next().is_some_and(|turn| is_sharegpt(&turn))
        });
        wrong(if sharegpt {
            format!(
                "has no field \"{wanted}\" and is in ShareGPT's form; set chat.messages = \"conversations\", {SHAREGPT}"
            )
        } else {
            let names = names(document);
            format!(
                "has no field \"{wanted}\", only {names}; name the list of messages in chat.messages"
            )
        })
    }

    fn turn(&self, n: usize, turn: Value) -> Result<Value, Reason> {
        if self.is_plain() {
            if is_sharegpt(&turn) {
                return Err(wrong(format!(
                    "has no \"role\" in message {n} and is in ShareGPT's form; set {SHAREGPT}"
                )));
            }
            return Ok(turn);
        }
        let role_key = self.role_key.as_str();
        let content_key = self.content_key.as_str();
        let Some(role) = field(&turn, role_key) else {
            let names = names(&turn);
            return Err(wrong(format!(
                "has no \"{role_key}\" in message {n}, only {names}; name the role's field in chat.role_key"
            )));
        };
        let role = self.role(n, &role)?;
        let mut pairs = Vec::new();
        for key in turn.try_iter().into_iter().flatten() {
            let value = turn.get_item(&key).unwrap_or_default();
            match key.as_str() {
                Some(name) if name == role_key => {
                    pairs.push((Value::from("role"), Value::from(role)));
                }
                Some(name) if name == content_key => pairs.push((Value::from("content"), value)),
                Some("role" | "content") => {}
                _ => pairs.push((key, value)),
            }
        }
        Ok(pairs.into_iter().collect())
    }

    /// Returns the template's role for `role`.
    fn role<'a>(&'a self, n: usize, role: &'a Value) -> Result<&'a str, Reason> {
        if let Some(name) = role.as_str() {
            if let Some(mapped) = self.roles.get(name) {
                return Ok(mapped);
            }
            if ROLES.contains(&name) || self.roles.values().any(|known| known == name) {
                return Ok(name);
            }
        }
        let mut shown = role.to_string();
        shown.truncate(shown.floor_char_boundary(40));
        let roles: Vec<&str> = self.roles.keys().map(String::as_str).chain(ROLES).collect();
        let known = roles.join(", ");
        Err(wrong(format!(
            "has the role {shown:?} in message {n}, and the known ones are {known}; add it to chat.roles, as \
             {{ human = \"user\" }}"
        )))
    }
}

#[cfg(test)]
mod tests;
