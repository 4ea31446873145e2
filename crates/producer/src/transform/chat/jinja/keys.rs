//! The keys by which filters compare items.

use super::arguments::is_given;
use super::attributes;
use super::compare::order;
use super::value::{Made, Value, fail};

/// A path of attributes, as `"function.name"` or `0`.
pub(super) struct Path(Vec<Value>);

impl Path {
    pub(super) fn parse(attribute: &Value) -> Made<Self> {
        Ok(Self(match attribute {
            Value::Text(text) => {
                let part = |part: &str| match part.parse() {
                    Ok(number) if part.bytes().all(|b| b.is_ascii_digit()) => Value::Int(number),
                    _ => part.into(),
                };
                text.split('.').map(part).collect()
            }
            Value::Int(_) => vec![attribute.clone()],
            other => return fail(format!("an attribute that is a {}", other.type_name())),
        }))
    }

    pub(super) fn get(&self, value: &Value, default: Option<&Value>) -> Made<Value> {
        let mut found = value.clone();
        for part in &self.0 {
            found = attributes::item(&found, part)?;
            if let (Value::Undefined(_), Some(default)) = (&found, default) {
                found = default.clone();
            }
        }
        Ok(found)
    }
}

/// Returns a key as filters compare it that take no account of case.
pub(super) fn lowered(value: Value, keeps_case: bool) -> Value {
    match value {
        Value::Text(text) if !keeps_case => text.to_lowercase().into(),
        other => other,
    }
}

/// Returns the items with the keys by which they are compared.
pub(super) fn keyed(
    items: Vec<Value>,
    attribute: Option<Value>,
    keeps_case: bool,
) -> Made<Vec<(Value, Value)>> {
    let path = is_given(attribute)
        .map(|attribute| Path::parse(&attribute))
        .transpose()?;
    let key = |item: Value| {
        let key = match &path {
            Some(path) => path.get(&item, None)?,
            None => item.clone(),
        };
        Ok((lowered(key, keeps_case), item))
    };
    items.into_iter().map(key).collect()
}

/// Sorts items by their keys.
pub(super) fn sort_keyed(items: &mut [(Value, Value)], reverse: bool) -> Made<()> {
    let mut fault = None;
    items.sort_by(|left, right| {
        let order = order(&left.0, &right.0, &mut fault);
        if reverse { order.reverse() } else { order }
    });
    fault.map_or(Ok(()), Err)
}
