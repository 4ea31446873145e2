//! Python's `str.format`.

use std::sync::Arc;

use super::attributes;
use super::number_format::{Spec, formatted};
use super::value::{Given, Made, Value, fail};

/// Returns the text of `template.format(...)`, as Python formats it.
pub(super) fn braces(template: &str, given: &Given) -> Made<String> {
    let mut out = String::new();
    let mut chars = template.chars().peekable();
    let mut next = 0;
    while let Some(c) = chars.next() {
        match c {
            '{' if chars.next_if_eq(&'{').is_some() => out.push('{'),
            '}' if chars.next_if_eq(&'}').is_some() => out.push('}'),
            '}' => return fail("Single '}' encountered in format string"),
            '{' => {
                let mut field = String::new();
                loop {
                    match chars.next() {
                        Some('}') => break,
                        Some('{') => return fail("nested fields in a format are not supported"),
                        Some(c) => field.push(c),
                        None => return fail("expected '}' before end of string"),
                    }
                }
                out.push_str(&replaced(&field, given, &mut next)?);
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

fn replaced(field: &str, given: &Given, next: &mut usize) -> Made<String> {
    let (path, spec) = field.split_once(':').unwrap_or((field, ""));
    let (path, conversion) = path.split_once('!').unwrap_or((path, ""));
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (first, rest) = path.split_at(end);
    let value = if first.is_empty() {
        let value = given.positional.get(*next);
        *next += 1;
        value
    } else if let Ok(at) = first.parse::<usize>() {
        given.positional.get(at)
    } else {
        let named = given.keywords.iter().find(|(name, _)| &**name == first);
        named.map(|(_, value)| value)
    };
    let Some(value) = value else {
        return fail(format!("no value for {{{field}}} in a format"));
    };
    let value = reached(value.clone(), rest)?;
    let value = match conversion {
        "" => value,
        "s" => value.text()?.into(),
        "r" => value.repr()?.into(),
        other => return fail(format!("the conversion !{other} is not supported")),
    };
    if spec.is_empty() {
        return value.text();
    }
    formatted(&value, &Spec::parse(spec)?)
}

/// Returns the value at the path `.name` or `[key]` below another.
fn reached(mut value: Value, mut path: &str) -> Made<Value> {
    while !path.is_empty() {
        if let Some(rest) = path.strip_prefix('.') {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let name: Arc<str> = rest[..end].into();
            value = attributes::attribute(&value, &name)?;
            path = &rest[end..];
        } else {
            let Some((key, rest)) = path.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            else {
                return fail("a format's field is not complete");
            };
            let index = key.parse().map_or_else(|_| Value::from(key), Value::Int);
            value = attributes::item(&value, &index)?;
            path = rest;
        }
        value.defined()?;
    }
    Ok(value)
}
