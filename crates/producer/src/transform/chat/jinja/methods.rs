//! Methods of Python's types.

use super::callables::{Callable, Given};
use super::compare::{Number, equal, number};
use super::text_methods;
use super::value::{Dict, Made, Value, View, fail};

pub(super) const TEXT: [&str; 39] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
pub(super) const TEXT_OTHERS: [&str; 8] = [
    "encode",
    "expandtabs",
    "format_map",
    "isidentifier",
    "isprintable",
    "istitle",
    "maketrans",
    "translate",
];
pub(super) const LIST: [&str; 3] = ["count", "index", "copy"];
pub(super) const LIST_OTHERS: [&str; 8] = [
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
];
pub(super) const TUPLE: [&str; 2] = ["count", "index"];
pub(super) const DICT: [&str; 5] = ["copy", "get", "items", "keys", "values"];
pub(super) const DICT_OTHERS: [&str; 6] = [
    "clear",
    "fromkeys",
    "pop",
    "popitem",
    "setdefault",
    "update",
];

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
        Value::Call(callable) => match (&**callable, name) {
            (Callable::Cycler(items, at), "next") => {
                let current = items[at.get()].clone();
                at.set((at.get() + 1) % items.len());
                Ok(current)
            }
            (Callable::Cycler(_, at), "reset") => {
                at.set(0);
                Ok(Value::None)
            }
            _ => fail("the method of a function is not supported"),
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

/// Returns a text argument.
pub(super) fn text_of(value: Option<Value>, function: &str) -> Made<String> {
    match value {
        Some(Value::Text(text)) => Ok(text.to_string()),
        Some(other) => {
            other.defined()?;
            fail(format!(
                "{function}: a text is needed, not a {}",
                other.type_name()
            ))
        }
        None => fail(format!("{function} lacks an argument")),
    }
}

/// Returns a text argument that may be absent.
pub(super) fn text_or(default: &str, value: Option<Value>, function: &str) -> Made<String> {
    match value {
        None => Ok(default.to_owned()),
        given => text_of(given, function),
    }
}

/// Returns a whole number that an argument gives.
pub(super) fn int_of(value: Option<Value>, default: i128, function: &str) -> Made<i128> {
    match value {
        None => Ok(default),
        Some(value) => {
            if let Some(Number::Int(value)) = number(&value) {
                return Ok(value);
            }
            value.defined()?;
            fail(format!(
                "{function}: a whole number is needed, not a {}",
                value.type_name()
            ))
        }
    }
}

/// Returns a dict of pairs and names, as Python's `dict(...)` makes it.
pub(super) fn dict(given: Given) -> Made<Dict> {
    let mut made = Dict::default();
    if given.positional.len() > 1 {
        return fail("dict expected at most 1 argument");
    }
    match given.positional.into_iter().next() {
        None => {}
        Some(Value::Dict(dict)) => made = (*dict).clone(),
        Some(Value::Namespace(_)) => return fail("dict of a namespace is not supported"),
        Some(pairs) => {
            pairs.defined()?;
            for pair in pairs.items()? {
                match &pair.items()?[..] {
                    [key, value] => made.insert(key.clone(), value.clone())?,
                    _ => return fail("dict: an item is not a pair"),
                }
            }
        }
    }
    for (name, value) in given.keywords {
        made.insert(Value::Text(name), value)?;
    }
    Ok(made)
}
