//! Jinja2's filters: which there are, and those of texts.

use std::rc::Rc;

use super::arguments::{int_of, text_of, text_or, truth};
use super::names::{FILTERS, FILTERS_REFUSED};
use super::percent::percent;
use super::text::is_space;
use super::value::{Dict, Given, Made, Value, fail};
use super::{json, markup, numeric, sequences, words};

/// Filters that take the result of `escape` or `safe`.
const OF_MARKUP: [&str; 10] = [
    "count", "d", "default", "e", "escape", "length", "safe", "string", "tojson", "trim",
];

/// Applies the filter `name`.
pub(super) fn apply(name: &str, value: &Value, given: Given) -> Made<Value> {
    let markup = |value: &Value| matches!(value, Value::Markup(_));
    let touches = markup(value) || given.positional.iter().any(markup);
    if touches && !OF_MARKUP.contains(&name) {
        return fail(format!(
            "{name} of the result of \"escape\" or \"safe\" is not supported"
        ));
    }
    match name {
        "default" | "d" => default(value, given),
        "tojson" => json::dumps(value, given),
        "length" | "count" => value.len().map(Value::size),
        "trim" => trim(value, given),
        "string" => match value {
            Value::Markup(_) => Ok(value.clone()),
            _ => value.text().map(Value::from),
        },
        "upper" | "lower" | "capitalize" => {
            given.plain::<0>(name, 0)?;
            words::cased(&value.text()?, name).map(Value::from)
        }
        "title" => title(&value.text()?),
        "replace" => replace(value, given),
        "indent" => indent(value, given),
        "truncate" => truncate(value, given),
        "center" => {
            let [width] = given.bind(name, ["width"], 0)?;
            let width = int_of(width, 80, name)?;
            words::padded(&value.text()?, width, ' ', name).map(Value::from)
        }
        "wordcount" => wordcount(&value.text()?),
        "format" => format(value, given),
        "safe" => value.text().map(|text| Value::Markup(text.into())),
        "e" | "escape" if markup(value) => Ok(value.clone()),
        "e" | "escape" | "forceescape" => {
            let text = value.text()?;
            Ok(Value::Markup(markup::escaped(&text).into()))
        }
        "int" => numeric::int(value, given),
        "float" => numeric::float(value, given),
        "abs" => numeric::absolute(value),
        "round" => numeric::round(value, given),
        "attr" => {
            let [attribute] = given.bind(name, ["name"], 1)?;
            let attribute = text_of(attribute, name)?;
            fail(format!("the filter attr({attribute:?}) is not supported"))
        }
        _ if FILTERS_REFUSED.contains(&name) => {
            fail(format!("the filter {name:?} is not supported"))
        }
        _ if FILTERS.contains(&name) => sequences::apply(apply, name, value, given),
        _ => fail(format!("no filter named {name:?}")),
    }
}

fn default(value: &Value, given: Given) -> Made<Value> {
    let [other, boolean] = given.bind("default", ["default_value", "boolean"], 0)?;
    let for_false = truth(boolean)?;
    if matches!(value, Value::Undefined(_)) || (for_false && !value.is_true()?) {
        return Ok(other.unwrap_or_else(|| "".into()));
    }
    Ok(value.clone())
}

fn trim(value: &Value, given: Given) -> Made<Value> {
    let [chars] = given.bind("trim", ["chars"], 0)?;
    let chars = match chars {
        None | Some(Value::None) => None,
        other => Some(text_of(other, "trim")?),
    };
    let text = value.text()?;
    let text = words::strip(&text, chars.as_deref(), "strip");
    Ok(match value {
        Value::Markup(_) => Value::Markup(text.into()),
        _ => text.into(),
    })
}

/// Returns words with a capital at each beginning, by Jinja2's own rule.
fn title(text: &str) -> Made<Value> {
    let mut out = String::new();
    let mut begins = true;
    for c in text.chars() {
        let breaks = c == '-' || "({[<".contains(c) || is_space(c);
        if begins && !breaks {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        begins = breaks;
    }
    if text.contains('Σ') {
        return fail("title of a text with sigma is not supported");
    }
    Ok(out.into())
}

fn replace(value: &Value, given: Given) -> Made<Value> {
    let [old, new, count] = given.bind("replace", ["old", "new", "count"], 2)?;
    let text = |value: Option<Value>| value.unwrap_or(Value::None).text();
    let (old, new, value) = (text(old)?, text(new)?, value.text()?);
    let count = match count {
        None | Some(Value::None) => None,
        count => usize::try_from(int_of(count, -1, "replace")?).ok(),
    };
    Ok(match count {
        Some(count) => value.replacen(&old, &new, count).into(),
        None => value.replace(&old, &new).into(),
    })
}

fn indent(value: &Value, given: Given) -> Made<Value> {
    let [width, first, blank] = given.bind("indent", ["width", "first", "blank"], 0)?;
    let width = match width {
        Some(Value::Text(text)) => text.to_string(),
        width => {
            let width = int_of(width, 4, "indent")?.clamp(0, 1000);
            " ".repeat(usize::try_from(width).unwrap_or(0))
        }
    };
    let first = truth(first)?;
    let blank = truth(blank)?;
    let Value::Text(text) = value else {
        value.defined()?;
        return fail(format!(
            "indent of a {} is not supported",
            value.type_name()
        ));
    };
    let text = format!("{text}\n");
    let lines = words::lines(&text, false);
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        if n > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&width);
            }
        }
        out.push_str(line);
    }
    Ok(if first { format!("{width}{out}") } else { out }.into())
}

fn truncate(value: &Value, given: Given) -> Made<Value> {
    let names = ["length", "killwords", "end", "leeway"];
    let [length, killwords, end, leeway] = given.bind("truncate", names, 0)?;
    let length = int_of(length, 255, "truncate")?;
    let killwords = truth(killwords)?;
    let end = text_or("...", end, "truncate")?;
    let leeway = match leeway {
        None | Some(Value::None) => 5,
        leeway => int_of(leeway, 5, "truncate")?,
    };
    let Value::Text(text) = value else {
        value.defined()?;
        return fail(format!(
            "truncate of a {} is not supported",
            value.type_name()
        ));
    };
    let ending = end.chars().count() as i128;
    if length < ending || leeway < 0 {
        return fail("truncate: expected a length that the end fits in, and a leeway from 0");
    }
    if text.chars().count() as i128 <= length + leeway {
        return Ok(value.clone());
    }
    let kept = usize::try_from(length - ending).unwrap_or(0);
    let kept: String = text.chars().take(kept).collect();
    if killwords {
        return Ok((kept + &end).into());
    }
    let kept = kept
        .rsplit_once(' ')
        .map_or(kept.as_str(), |(before, _)| before);
    Ok(format!("{kept}{end}").into())
}

fn wordcount(text: &str) -> Made<Value> {
    if !text.is_ascii() {
        return fail("wordcount of a text beyond ASCII is not supported");
    }
    let words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    Ok(Value::size(words.filter(|word| !word.is_empty()).count()))
}

fn format(value: &Value, given: Given) -> Made<Value> {
    if !given.positional.is_empty() && !given.keywords.is_empty() {
        return fail("can't handle positional and keyword arguments at the same time");
    }
    let argument = if given.keywords.is_empty() {
        Value::tuple(given.positional)
    } else {
        let pairs = given
            .keywords
            .into_iter()
            .map(|(name, value)| (Value::Text(name), value));
        Value::Dict(Rc::new(Dict::from_pairs(pairs.collect())?))
    };
    percent(&value.text()?, &argument).map(Value::from)
}
