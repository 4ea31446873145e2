//! Methods of Python's types.

use super::callables::{Callable, Given};
use super::compare::{Number, equal, number};
use super::format::braces;
use super::sequences::truth;
use super::value::{Dict, Made, Value, View, fail};
use super::words;

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
        Value::Text(text) => text_method(text, name, given),
        Value::List(items) | Value::Tuple(items) | Value::Group(items) => match name {
            "copy" => {
                given.plain::<0>("copy", 0)?;
                Ok(value.clone())
            }
            "count" => {
                let [wanted] = given.plain("count", 1)?;
                let mut count = 0;
                for item in items.iter() {
                    count += usize::from(equal(item, &wanted.clone().unwrap_or(Value::None))?);
                }
                Ok(Value::size(count))
            }
            _ => {
                let [wanted] = given.plain("index", 1)?;
                let wanted = wanted.unwrap_or(Value::None);
                for (at, item) in items.iter().enumerate() {
                    if equal(item, &wanted)? {
                        return Ok(Value::size(at));
                    }
                }
                fail(format!("{} is not in list", wanted.repr()?))
            }
        },
        Value::Dict(dict) if name == "get" => {
            let [key, default] = given.plain("get", 1)?;
            let found = match key.unwrap_or(Value::None) {
                Value::Undefined(_) => None,
                key => dict.get(&key)?,
            };
            Ok(found.cloned().or(default).unwrap_or(Value::None))
        }
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

/// Returns the texts of a text or a tuple of them.
fn texts_of(value: Option<Value>, function: &str) -> Made<Vec<String>> {
    match value {
        Some(Value::Tuple(items)) => items
            .iter()
            .map(|item| text_of(Some(item.clone()), function))
            .collect(),
        other => Ok(vec![text_of(other, function)?]),
    }
}

/// Returns the part of `text` between two places, and the place where it begins.
fn part(
    text: &str,
    start: Option<Value>,
    stop: Option<Value>,
    name: &str,
) -> Made<Option<(String, usize)>> {
    let none = |value: &Option<Value>| matches!(value, None | Some(Value::None));
    if none(&start) && none(&stop) {
        return Ok(Some((text.to_owned(), 0)));
    }
    let length = text.chars().count() as i128;
    let clamp = |at: i128| if at < 0 { (at + length).max(0) } else { at };
    let given = |value: Option<Value>| value.filter(|value| !matches!(value, Value::None));
    let start = clamp(int_of(given(start), 0, name)?);
    let stop = clamp(int_of(given(stop), length, name)?).min(length);
    if start > stop {
        return Ok(None);
    }
    let (from, count) = (
        usize::try_from(start).unwrap_or(0),
        usize::try_from(stop - start).unwrap_or(0),
    );
    Ok(Some((text.chars().skip(from).take(count).collect(), from)))
}

fn text_method(text: &str, name: &str, given: Given) -> Made<Value> {
    let markup = |value: &Value| matches!(value, Value::Markup(_));
    if given.positional.iter().any(markup) {
        return fail(format!(
            "{name} of the result of \"escape\" or \"safe\" is not supported"
        ));
    }
    match name {
        "format" => return braces(text, &given).map(Value::from),
        "split" | "rsplit" => {
            let [separator, most] = given.bind(name, ["sep", "maxsplit"], 0)?;
            let most = usize::try_from(int_of(most, -1, name)?).ok();
            let parts = match separator {
                None | Some(Value::None) => words::split_blanks(text, most, name == "rsplit"),
                other => {
                    let separator = text_of(other, name)?;
                    if separator.is_empty() {
                        return fail("empty separator");
                    }
                    words::split(text, &separator, most, name == "rsplit")
                }
            };
            return Ok(Value::list(parts.into_iter().map(Value::from).collect()));
        }
        "splitlines" => {
            let [ends] = given.bind(name, ["keepends"], 0)?;
            let lines = words::lines(text, truth(ends)?);
            return Ok(Value::list(lines.into_iter().map(Value::from).collect()));
        }
        "replace" => {
            let [old, new, count] = given.bind(name, ["", "", "count"], 2)?;
            let (old, new) = (text_of(old, name)?, text_of(new, name)?);
            let count = usize::try_from(int_of(count, -1, name)?).ok();
            return Ok(match count {
                Some(count) => text.replacen(&old, &new, count).into(),
                None => text.replace(&old, &new).into(),
            });
        }
        "startswith" | "endswith" => {
            let [wanted, start, stop] = given.plain(name, 1)?;
            let wanted = texts_of(wanted, name)?;
            let Some((text, _)) = part(text, start, stop, name)? else {
                return Ok(Value::Bool(false));
            };
            return Ok(Value::Bool(wanted.iter().any(|wanted| match name {
                "startswith" => text.starts_with(wanted),
                _ => text.ends_with(wanted),
            })));
        }
        "count" | "find" | "index" | "rfind" | "rindex" => {
            let [wanted, start, stop] = given.plain(name, 1)?;
            let wanted = text_of(wanted, name)?;
            let part = part(text, start, stop, name)?;
            return found(part, &wanted, name);
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = given.plain(name, 1)?;
            let width = int_of(width, 0, name)?;
            let filler = text_or(" ", fill, name)?;
            let mut chars = filler.chars();
            let (Some(fill), None) = (chars.next(), chars.next()) else {
                return fail("The fill character must be exactly one character long");
            };
            return words::padded(text, width, fill, name).map(Value::from);
        }
        "zfill" => {
            let [width] = given.plain(name, 1)?;
            let width = int_of(width, 0, name)?;
            let signed = text.starts_with(['+', '-']);
            let (sign, digits) = text.split_at(usize::from(signed));
            let padded = words::padded(digits, width - sign.len() as i128, '0', "rjust")?;
            return Ok(format!("{sign}{padded}").into());
        }
        "join" => {
            let [items] = given.plain(name, 1)?;
            let mut out = String::new();
            for (n, item) in items
                .unwrap_or(Value::None)
                .items()?
                .into_iter()
                .enumerate()
            {
                if n > 0 {
                    out.push_str(text);
                }
                out.push_str(&text_of(Some(item), "join")?);
            }
            return Ok(out.into());
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = given.plain(name, 0)?;
            let chars = match chars {
                None | Some(Value::None) => None,
                other => Some(text_of(other, name)?),
            };
            return Ok(words::strip(text, chars.as_deref(), name).into());
        }
        "partition" | "rpartition" | "removeprefix" | "removesuffix" => {
            let [wanted] = given.plain(name, 1)?;
            return around(text, &text_of(wanted, name)?, name);
        }
        _ => {}
    }
    given.plain::<0>(name, 0)?;
    if name.starts_with("is") {
        return words::is(text, name).map(Value::Bool);
    }
    words::cased(text, name).map(Value::from)
}

fn found(part: Option<(String, usize)>, wanted: &str, name: &str) -> Made<Value> {
    if name == "count" {
        return Ok(Value::size(
            part.map_or(0, |(text, _)| text.matches(wanted).count()),
        ));
    }
    let place = part.and_then(|(text, from)| {
        let at = if name.starts_with('r') {
            text.rfind(wanted)
        } else {
            text.find(wanted)
        };
        at.map(|at| from + text[..at].chars().count())
    });
    match place {
        Some(at) => Ok(Value::size(at)),
        None if name.ends_with("index") => fail("substring not found"),
        None => Ok(Value::Int(-1)),
    }
}

fn around(text: &str, wanted: &str, name: &str) -> Made<Value> {
    match name {
        "removeprefix" => return Ok(text.strip_prefix(wanted).unwrap_or(text).into()),
        "removesuffix" => return Ok(text.strip_suffix(wanted).unwrap_or(text).into()),
        _ if wanted.is_empty() => return fail("empty separator"),
        _ => {}
    }
    let parts = match (name, text.split_once(wanted), text.rsplit_once(wanted)) {
        ("partition", Some((before, after)), _) | ("rpartition", _, Some((before, after))) => {
            [before, wanted, after]
        }
        ("partition", ..) => [text, "", ""],
        _ => ["", "", text],
    };
    Ok(Value::tuple(parts.map(Value::from).to_vec()))
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
