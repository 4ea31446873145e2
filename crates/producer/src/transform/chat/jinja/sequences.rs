//! Jinja2's filters of lists, dicts and other iterables.

use std::cmp::Ordering;

use super::arguments::{text_of, truth};
use super::ast::Operator;
use super::compare::ordered;
use super::keys::{Path, keyed, sort_keyed};
use super::operators::binary;
use super::value::{Dict, Given, Made, Value, View, fail};
use super::{groups, predicates};

/// Applies a filter by its name.
type Apply = fn(&str, &Value, Given) -> Made<Value>;

/// Applies the filter `name`; `filter` applies those that it is given by name.
pub(super) fn apply(filter: Apply, name: &str, value: &Value, given: Given) -> Made<Value> {
    match name {
        "first" => first(value),
        "last" => last(value),
        "list" => Ok(Value::list(value.items()?)),
        "join" => join(value, given),
        "items" => match value {
            Value::Undefined(_) => Ok(Value::generator(Vec::new())),
            Value::Dict(dict) => {
                let items = Value::View(View::Items, dict.clone()).items()?;
                Ok(Value::generator(items))
            }
            _ => fail("Can only get item pairs from a mapping."),
        },
        "reverse" => {
            if let Value::Text(text) = value {
                return Ok(text.chars().rev().collect::<String>().into());
            }
            let mut items = value.items()?;
            items.reverse();
            Ok(Value::generator(items))
        }
        "map" => map(filter, value, given),
        "select" | "reject" | "selectattr" | "rejectattr" => select(name, value, given),
        "sort" => sort(value, given),
        "min" | "max" => extreme(name, value, given),
        "unique" => unique(value, given),
        "sum" => sum(value, given),
        "groupby" => groups::groupby(value, given),
        "dictsort" => groups::dictsort(value, given),
        "batch" => groups::batch(value, given),
        "slice" => groups::slices(value, given),
        _ => fail(format!("the filter {name:?} is not supported")),
    }
}

fn sort(value: &Value, given: Given) -> Made<Value> {
    let names = ["reverse", "case_sensitive", "attribute"];
    let [reverse, case, attribute] = given.bind("sort", names, 0)?;
    if let Some(Value::Text(text)) = &attribute
        && text.contains(',')
    {
        return fail("sort by several attributes is not supported");
    }
    let mut items = keyed(value.items()?, attribute, truth(case)?)?;
    sort_keyed(&mut items, truth(reverse)?)?;
    Ok(Value::list(
        items.into_iter().map(|(_, item)| item).collect(),
    ))
}

fn unique(value: &Value, given: Given) -> Made<Value> {
    let [case, attribute] = given.bind("unique", ["case_sensitive", "attribute"], 0)?;
    let mut seen = Dict::default();
    let mut kept = Vec::new();
    for (key, item) in keyed(value.items()?, attribute, truth(case)?)? {
        if seen.get(&key)?.is_none() {
            seen.insert(key, Value::None)?;
            kept.push(item);
        }
    }
    Ok(Value::generator(kept))
}

fn sum(value: &Value, given: Given) -> Made<Value> {
    let [attribute, start] = given.bind("sum", ["attribute", "start"], 0)?;
    let mut sum = start.unwrap_or(Value::Int(0));
    if let Value::Text(_) = sum {
        return fail("sum() can't sum strings");
    }
    for (key, _) in keyed(value.items()?, attribute, true)? {
        sum = binary(Operator::Add, &sum, &key)?;
    }
    Ok(sum)
}

fn first(value: &Value) -> Made<Value> {
    let none = Value::Undefined(Some("the first item".into()));
    if let Value::Generator(items) = value {
        return Ok(items.borrow_mut().pop_front().unwrap_or(none));
    }
    if let Value::List(items) = value {
        return Ok(items.first().cloned().unwrap_or(none));
    }
    Ok(value.items()?.into_iter().next().unwrap_or(none))
}

fn last(value: &Value) -> Made<Value> {
    let none = Value::Undefined(Some("the last item".into()));
    match value {
        Value::List(items) => Ok(items.last().cloned().unwrap_or(none)),
        Value::Generator(_) => fail("'generator' object is not reversible"),
        _ => Ok(value.items()?.pop().unwrap_or(none)),
    }
}

fn join(value: &Value, given: Given) -> Made<Value> {
    let [separator, attribute] = given.bind("join", ["d", "attribute"], 0)?;
    let between = separator.unwrap_or_else(|| "".into()).text()?;
    let mut out = String::new();
    for (n, (item, _)) in keyed(value.items()?, attribute, true)?
        .into_iter()
        .enumerate()
    {
        if n > 0 {
            out.push_str(&between);
        }
        item.write_text(&mut out)?;
    }
    Ok(out.into())
}

fn map(apply: Apply, value: &Value, mut given: Given) -> Made<Value> {
    if !value.is_true()? && !matches!(value, Value::None) {
        return Ok(Value::generator(Vec::new()));
    }
    if let Value::None = value {
        return Ok(Value::generator(Vec::new()));
    }
    let by_attribute = given.positional.is_empty()
        && given
            .keywords
            .iter()
            .any(|(name, _)| &**name == "attribute");
    let mut made = Vec::new();
    if by_attribute {
        let [attribute, default] = given.bind("map", ["attribute", "default"], 1)?;
        let path = Path::parse(&attribute.unwrap_or(Value::None))?;
        for item in value.items()? {
            made.push(path.get(&item, default.as_ref())?);
        }
        return Ok(Value::generator(made));
    }
    if given.positional.is_empty() {
        return fail("map requires a filter argument");
    }
    let filter = text_of(Some(given.positional.remove(0)), "map")?;
    for item in value.items()? {
        made.push(apply(&filter, &item, given.clone())?);
    }
    Ok(Value::generator(made))
}

fn select(name: &str, value: &Value, mut given: Given) -> Made<Value> {
    if !value.is_true()? {
        return Ok(Value::generator(Vec::new()));
    }
    let path = if name.ends_with("attr") {
        if given.positional.is_empty() {
            return fail(format!("{name}: missing parameter for attribute name"));
        }
        Some(Path::parse(&given.positional.remove(0))?)
    } else {
        None
    };
    let test = if given.positional.is_empty() {
        None
    } else {
        Some(text_of(Some(given.positional.remove(0)), name)?)
    };
    let wanted = name.starts_with("select");
    let mut kept = Vec::new();
    for item in value.items()? {
        let key = match &path {
            Some(path) => path.get(&item, None)?,
            None => item.clone(),
        };
        let holds = match &test {
            Some(test) => predicates::apply(test, &key, given.clone())?,
            None => key.is_true()?,
        };
        if holds == wanted {
            kept.push(item);
        }
    }
    Ok(Value::generator(kept))
}

fn extreme(name: &str, value: &Value, given: Given) -> Made<Value> {
    let [case, attribute] = given.bind(name, ["case_sensitive", "attribute"], 0)?;
    let mut best: Option<(Value, Value)> = None;
    for (key, item) in keyed(value.items()?, attribute, truth(case)?)? {
        let better = match &best {
            None => true,
            Some((best, _)) => {
                let wanted = if name == "min" {
                    Ordering::Less
                } else {
                    Ordering::Greater
                };
                ordered(&key, best, if name == "min" { "<" } else { ">" })? == Some(wanted)
            }
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or(
        Value::Undefined(Some("an item of an empty list".into())),
        |(_, item)| item,
    ))
}
