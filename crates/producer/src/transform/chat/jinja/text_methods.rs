//! Methods of Python's texts.

use super::arguments::{int_of, text_of, text_or, truth};
use super::braces::braces;
use super::value::{Given, Made, Value, fail};
use super::words;

/// Calls the method `name` of `text`.
pub(super) fn call(text: &str, name: &str, given: Given) -> Made<Value> {
    let markup = |value: &Value| matches!(value, Value::Markup(_));
    if given.positional.iter().any(markup) {
        return fail(format!(
            "{name} of the result of \"escape\" or \"safe\" is not supported"
        ));
    }
    match name {
        "format" => braces(text, &given).map(Value::from),
        "split" | "rsplit" => split(text, name, given),
        "splitlines" => splitlines(text, given),
        "replace" => replace(text, given),
        "startswith" | "endswith" => begins_or_ends(text, name, given),
        "count" | "find" | "index" | "rfind" | "rindex" => {
            let [wanted, start, stop] = given.plain(name, 1)?;
            let wanted = text_of(wanted, name)?;
            found(part(text, start, stop, name)?, &wanted, name)
        }
        "center" | "ljust" | "rjust" => justified(text, name, given),
        "zfill" => zfill(text, given),
        "join" => join(text, name, given),
        "strip" | "lstrip" | "rstrip" => strip(text, name, given),
        "partition" | "rpartition" | "removeprefix" | "removesuffix" => {
            let [wanted] = given.plain(name, 1)?;
            around(text, &text_of(wanted, name)?, name)
        }
        _ => {
            given.plain::<0>(name, 0)?;
            if name.starts_with("is") {
                return words::is(text, name).map(Value::Bool);
            }
            words::cased(text, name).map(Value::from)
        }
    }
}

fn split(text: &str, name: &str, given: Given) -> Made<Value> {
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
    Ok(Value::list(parts.into_iter().map(Value::from).collect()))
}

fn splitlines(text: &str, given: Given) -> Made<Value> {
    let [ends] = given.bind("splitlines", ["keepends"], 0)?;
    let lines = words::lines(text, truth(ends)?);
    Ok(Value::list(lines.into_iter().map(Value::from).collect()))
}

fn replace(text: &str, given: Given) -> Made<Value> {
    let [old, new, count] = given.bind("replace", ["", "", "count"], 2)?;
    let old = text_of(old, "replace")?;
    let new = text_of(new, "replace")?;
    Ok(match usize::try_from(int_of(count, -1, "replace")?) {
        Ok(count) => text.replacen(&old, &new, count).into(),
        Err(_) => text.replace(&old, &new).into(),
    })
}

/// Returns the text with zeros behind its sign, up to the given width.
fn zfill(text: &str, given: Given) -> Made<Value> {
    let [width] = given.plain("zfill", 1)?;
    let width = int_of(width, 0, "zfill")?;
    let signed = text.starts_with(['+', '-']);
    let (sign, digits) = text.split_at(usize::from(signed));
    let padded = words::padded(digits, width - sign.len() as i128, '0', "rjust")?;
    Ok(format!("{sign}{padded}").into())
}

fn strip(text: &str, name: &str, given: Given) -> Made<Value> {
    let [chars] = given.plain(name, 0)?;
    let chars = match chars {
        None | Some(Value::None) => None,
        other => Some(text_of(other, name)?),
    };
    Ok(words::strip(text, chars.as_deref(), name).into())
}

fn begins_or_ends(text: &str, name: &str, given: Given) -> Made<Value> {
    let [wanted, start, stop] = given.plain(name, 1)?;
    let wanted = texts_of(wanted, name)?;
    let Some((text, _)) = part(text, start, stop, name)? else {
        return Ok(Value::Bool(false));
    };
    Ok(Value::Bool(wanted.iter().any(|wanted| match name {
        "startswith" => text.starts_with(wanted),
        _ => text.ends_with(wanted),
    })))
}

fn justified(text: &str, name: &str, given: Given) -> Made<Value> {
    let [width, fill] = given.plain(name, 1)?;
    let width = int_of(width, 0, name)?;
    let filler = text_or(" ", fill, name)?;
    let mut chars = filler.chars();
    let (Some(fill), None) = (chars.next(), chars.next()) else {
        return fail("The fill character must be exactly one character long");
    };
    words::padded(text, width, fill, name).map(Value::from)
}

fn join(text: &str, name: &str, given: Given) -> Made<Value> {
    let [items] = given.plain(name, 1)?;
    let items = items.unwrap_or(Value::None).items()?;
    let mut out = String::new();
    for (n, item) in items.into_iter().enumerate() {
        if n > 0 {
            out.push_str(text);
        }
        out.push_str(&text_of(Some(item), "join")?);
    }
    Ok(out.into())
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
