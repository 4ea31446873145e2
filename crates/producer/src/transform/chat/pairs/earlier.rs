//! Pairs as they were made in the first dialect: the prompt before both answers, whatever these begin with, and the fields
//! of objects in the order of their names. Only a producer that began so compares with it.

use serde_json::{Map, Value};

use super::PairFields;
use crate::sources::Reason;

/// Returns both conversations as objects like a line of messages.
pub(super) fn conversations(fields: &PairFields, raw: &[u8]) -> Result<[Vec<u8>; 2], Reason> {
    let document: Value = serde_json::from_slice(raw).map_err(|e| Reason::broken_json(&e))?;
    let mapping = &fields.mapping;
    let prompt = match &document[&fields.prompt] {
        Value::Null => Vec::new(),
        value => messages(fields, value, "user")?,
    };
    let answer = |name: &str| {
        let mut turns = prompt.clone();
        turns.extend(messages(fields, &document[name], "assistant")?);
        let mut conversation = Map::new();
        conversation.insert(mapping.messages.clone(), Value::Array(turns));
        if let Some(tools) = document.get(&mapping.tools) {
            conversation.insert(mapping.tools.clone(), tools.clone());
        }
        Ok(Value::Object(conversation).to_string().into_bytes())
    };
    Ok([answer(&fields.chosen)?, answer(&fields.rejected)?])
}

/// Returns the messages of a field; a text is one message with `role`.
fn messages(fields: &PairFields, value: &Value, role: &str) -> Result<Vec<Value>, Reason> {
    match value {
        Value::Array(turns) => Ok(turns.clone()),
        Value::String(text) => {
            if text.trim_start().starts_with('[')
                && let Ok(Value::Array(turns)) = serde_json::from_str(text)
            {
                return Ok(turns);
            }
            let mut turn = Map::new();
            turn.insert(fields.mapping.role_key.clone(), role.into());
            turn.insert(fields.mapping.content_key.clone(), text.as_str().into());
            Ok(vec![Value::Object(turn)])
        }
        _ => Err(super::wrong("has other fields".to_owned())),
    }
}
