//! Methods of Python's types.

use super::compare::equal;
use super::text_methods;
use super::value::{Callable, Dict, Given, Made, Value, View, fail};

/// Calls the method `name` of `value`.
pub(super) fn call(value: &Value, name: &str, given: Given) -> Made<Value> {
    match value {
        Value::Text(text) => text_methods::call(text, name, given),
        Value::List(items) | Value::Tuple(items) | Value::Group(items) => match name {
            "copy" => {
                given.plain::<0>("copy", 0)?;
                Ok(value.clone())
            }
            "count" => count(items, given),
            _ => index(items, given),
        },
        Value::Dict(dict) if name == "get" => get(dict, given),
        Value::Dict(dict) => {
            given.plain::<0>(name, 0)?;
            Ok(match name {
                "items" => Value::View(View::Items, dict.clone()),
                "keys" => Value::View(View::Keys, dict.clone()),
                "values" => Value::View(View::Values, dict.clone()),
                _ => value.clone(),
            })
        }
        Value::Loop(state) => state.method(name, given),
        Value::Call(callable) => match &**callable {
            Callable::Function(function) => function.method(name),
            Callable::Method(..) => fail("the method of a function is not supported"),
        },
        other => fail(format!(
            "the method {name:?} of a {} is not supported",
            other.type_name()
        )),
    }
}

/// Returns the value of a key, else the given default.
fn get(dict: &Dict, given: Given) -> Made<Value> {
    let [key, default] = given.plain("get", 1)?;
    let found = match key.unwrap_or(Value::None) {
        Value::Undefined(_) => None,
        key => dict.get(&key)?,
    };
    Ok(found.cloned().or(default).unwrap_or(Value::None))
}

/// Returns how many of the items are equal to the given value.
fn count(items: &[Value], given: Given) -> Made<Value> {
    let [wanted] = given.plain("count", 1)?;
    let wanted = wanted.unwrap_or(Value::None);
    let mut count = 0;
    for item in items {
        count += usize::from(equal(item, &wanted)?);
    }
    Ok(Value::size(count))
}

/// Returns the place of the first item that is equal to the given value.
fn index(items: &[Value], given: Given) -> Made<Value> {
    let [wanted] = given.plain("index", 1)?;
    let wanted = wanted.unwrap_or(Value::None);
    for (at, item) in items.iter().enumerate() {
        if equal(item, &wanted)? {
            return Ok(Value::size(at));
        }
    }
    fail(format!("{} is not in list", wanted.repr()?))
}
