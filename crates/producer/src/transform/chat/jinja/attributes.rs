//! `value.name`, `value[key]` and slices.

use std::rc::Rc;
use std::sync::Arc;

use super::names;
use super::numbers::{Number, number};
use super::value::{Callable, Made, Value, fail, no_attribute};

/// Returns `value.name`: an attribute of Python's type, else the item of this name.
pub(super) fn attribute(value: &Value, name: &Arc<str>) -> Made<Value> {
    if let Some(own) = python_attribute(value, name)? {
        return Ok(own);
    }
    if let Value::Dict(dict) = value
        && let Some(found) = dict.get_text(name)
    {
        return Ok(found.clone());
    }
    Ok(Value::absent(name))
}

/// Returns a method as a value. It only names the method: the interpreter calls it.
fn method(value: &Value, name: &Arc<str>) -> Value {
    Value::Call(Rc::new(Callable::Method(value.clone(), name.clone())))
}

/// Returns the attribute of a function, of which only cyclers have some.
fn function_attribute(own: &Callable, value: &Value, name: &Arc<str>) -> Made<Value> {
    match own {
        Callable::Function(own) if own.methods().contains(&&**name) => Ok(method(value, name)),
        Callable::Function(own) => own.attribute(name),
        Callable::Method(..) => no_attribute(name),
    }
}

fn python_attribute(value: &Value, name: &Arc<str>) -> Made<Option<Value>> {
    value.defined()?;
    if name.starts_with("__") && name.ends_with("__") {
        return fail(format!("access to the attribute {name:?} is unsafe"));
    }
    let (own, others): (&[&str], &[&str]) = match value {
        Value::Loop(state) => {
            return match &**name {
                "cycle" | "changed" => Ok(Some(method(value, name))),
                other => state.attribute(other),
            };
        }
        Value::Namespace(values) => return Ok(values.borrow().get_text(name).cloned()),
        Value::Group(items) => match &**name {
            "grouper" => return Ok(Some(items[0].clone())),
            "list" => return Ok(Some(items[1].clone())),
            _ => (&names::TUPLE, &[]),
        },
        Value::Text(_) => (&names::TEXT, &names::TEXT_OTHERS),
        Value::Markup(_) if names::TEXT.contains(&&**name) => (&[], &names::TEXT),
        Value::Markup(_) => (&[], &["unescape", "striptags", "escape"]),
        Value::List(_) => (&names::LIST, &names::LIST_OTHERS),
        Value::Tuple(_) => (&names::TUPLE, &[]),
        Value::Dict(_) => (&names::DICT, &names::DICT_OTHERS),
        Value::Call(own) => return function_attribute(own, value, name).map(Some),
        Value::None | Value::Undefined(_) => (&[], &[]),
        _ => (&[], &names::OTHERS),
    };
    if own.contains(&&**name) {
        return Ok(Some(method(value, name)));
    }
    if others.contains(&&**name) {
        return fail(format!(
            "the attribute {name:?} of a {} is unsafe or not supported",
            value.type_name()
        ));
    }
    Ok(None)
}

/// Returns the place of item `at` of `length`, counted from the end where it is negative.
fn place(at: i128, length: usize) -> Option<usize> {
    let at = if at < 0 { at + length as i128 } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// Returns `value[key]`: the item, else the attribute of this name.
pub(super) fn item(value: &Value, key: &Value) -> Made<Value> {
    value.defined()?;
    let index = match number(key) {
        Some(Number::Int(index)) => Some(index),
        _ => None,
    };
    let found = match (value, index) {
        (Value::List(items) | Value::Tuple(items) | Value::Group(items), Some(index)) => {
            place(index, items.len()).map(|at| items[at].clone())
        }
        (Value::Text(text), Some(index)) => {
            let at = if text.is_ascii() {
                place(index, text.len()).map(|at| text[at..=at].to_owned())
            } else {
                let at = place(index, text.chars().count());
                at.and_then(|at| text.chars().nth(at)).map(String::from)
            };
            at.map(Value::from)
        }
        (Value::Markup(_), Some(_)) => return fail("an item of markup is not supported"),
        (Value::Range(range), Some(index)) => {
            place(index, range.len()).map(|at| Value::Int(range.get(at)))
        }
        (Value::Dict(dict), _) => match key {
            Value::Undefined(_) => None,
            // Jinja2 takes a key that can't be one as undefined.
            _ => dict.get(key).unwrap_or(None).cloned(),
        },
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let Some(name) = key.as_text() else {
        return Ok(Value::Undefined(None));
    };
    match python_attribute(value, name)? {
        Some(own) => Ok(own),
        None => Ok(Value::absent(name)),
    }
}

fn bound(value: &Value) -> Made<Option<i128>> {
    match (value, number(value)) {
        (Value::None, _) => Ok(None),
        (_, Some(Number::Int(at))) => Ok(Some(at)),
        _ => {
            value.defined()?;
            fail("slice indices must be integers or None")
        }
    }
}

/// Returns the places of `[start:stop:step]` among `length` items.
fn places(length: usize, parts: &[Value; 3]) -> Made<Vec<usize>> {
    let length = length as i128;
    let step = bound(&parts[2])?.unwrap_or(1);
    if step == 0 {
        return fail("slice step cannot be zero");
    }
    let (low, high) = if step > 0 {
        (0, length)
    } else {
        (-1, length - 1)
    };
    let clamp = |at: i128| {
        let at = if at < 0 { at + length } else { at };
        at.clamp(low, high)
    };
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let start = bound(&parts[0])?.map_or(first, clamp);
    let stop = bound(&parts[1])?.map_or(last, clamp);
    let mut places = Vec::new();
    let mut at = start;
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        places.extend(usize::try_from(at));
        at = at.saturating_add(step);
    }
    Ok(places)
}

/// Returns the part `value[start:stop:step]` of a sequence or text, as Python slices it.
pub(super) fn slice(value: &Value, parts: &[Value; 3]) -> Made<Value> {
    value.defined()?;
    match value {
        Value::Text(text) => {
            let chars: Vec<char> = text.chars().collect();
            let places = places(chars.len(), parts)?;
            Ok(places
                .into_iter()
                .map(|at| chars[at])
                .collect::<String>()
                .into())
        }
        Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
            let places = places(items.len(), parts)?;
            let items = places.into_iter().map(|at| items[at].clone()).collect();
            Ok(if matches!(value, Value::List(_)) {
                Value::list(items)
            } else {
                Value::tuple(items)
            })
        }
        Value::Range(_) | Value::Markup(_) => fail(format!(
            "a slice of a {} is not supported",
            value.type_name()
        )),
        _ => fail(format!(
            "'{}' object is not subscriptable by a slice",
            value.type_name()
        )),
    }
}
