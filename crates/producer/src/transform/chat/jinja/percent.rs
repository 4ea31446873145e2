//! Python's `%` formatting.

use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use super::number_format::{Spec, formatted};
use super::numbers::{Number, as_float, number, truncated};
use super::value::{Made, Value, fail};

fn number_here(chars: &mut Peekable<Chars<'_>>) -> Made<Option<usize>> {
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.is_empty() {
        return Ok(None);
    }
    match digits.parse() {
        Ok(number @ 0..=1_000_000) => Ok(Some(number)),
        _ => fail("a width or precision beyond 1,000,000 is not supported"),
    }
}

/// Returns the value of `argument` whose name is before the next `)`.
fn named_value(chars: &mut Peekable<Chars<'_>>, argument: &Value) -> Made<Value> {
    let mut name = String::new();
    loop {
        match chars.next() {
            Some(')') => break,
            Some('(') => return fail("nested parentheses in a format are not supported"),
            Some(c) => name.push(c),
            None => return fail("incomplete format key"),
        }
    }
    let Value::Dict(dict) = argument else {
        return fail("format requires a mapping");
    };
    match dict.get_text(&Arc::from(name.as_str())) {
        Some(value) => Ok(value.clone()),
        None => fail(format!("no value for {name:?} in a format")),
    }
}

/// Reads flags, width and precision of a conversion.
fn percent_spec(chars: &mut Peekable<Chars<'_>>) -> Made<Spec> {
    let mut spec = Spec::default();
    while let Some(flag) = chars.next_if(|c| "#0- +".contains(*c)) {
        match flag {
            '#' => spec.alternate = true,
            '0' => spec.zero = true,
            '-' => spec.align = Some('<'),
            sign => spec.sign = Some(if spec.sign == Some('+') { '+' } else { sign }),
        }
    }
    spec.width = number_here(chars)?.unwrap_or(0);
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = Some(number_here(chars)?.unwrap_or(0));
    }
    while chars.next_if(|c| "hlL".contains(*c)).is_some() {}
    Ok(spec)
}

/// Returns the text of `template % argument`, as Python formats it.
pub(super) fn percent(template: &str, argument: &Value) -> Made<String> {
    let mut positional = match argument {
        Value::Tuple(items) | Value::Group(items) => items.to_vec(),
        other => vec![other.clone()],
    }
    .into_iter();
    let mut by_name = false;
    let mut out = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let named = match chars.next_if_eq(&'(') {
            Some(_) => Some(named_value(&mut chars, argument)?),
            None => None,
        };
        by_name |= named.is_some();
        let spec = percent_spec(&mut chars)?;
        let Some(kind) = chars.next() else {
            return fail("incomplete format");
        };
        if kind == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = named.or_else(|| positional.next()) else {
            return fail("not enough arguments for format string");
        };
        out.push_str(&conversion(kind, spec, &value)?);
    }
    let rest = positional.next().is_some();
    if rest && !by_name && !matches!(argument, Value::Dict(_) | Value::List(_)) {
        return fail("not all arguments converted during string formatting");
    }
    Ok(out)
}

/// Returns the text of a value by one conversion of a template.
fn conversion(kind: char, mut spec: Spec, value: &Value) -> Made<String> {
    match kind {
        's' | 'r' => {
            let text = if kind == 's' {
                value.text()?
            } else {
                value.repr()?
            };
            spec.align.get_or_insert('>');
            spec.zero = false;
            spec.kind = Some('s');
            spec.sign = None;
            spec.alternate = false;
            formatted(&text.into(), &spec)
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
            number_conversion(kind, spec, value)
        }
        _ => fail(format!("the format %{kind} is not supported")),
    }
}

/// Returns the text of a number by a conversion of numbers.
fn number_conversion(kind: char, mut spec: Spec, value: &Value) -> Made<String> {
    value.defined()?;
    let Some(found) = number(value) else {
        return fail(format!(
            "%{kind} format: a real number is required, not {}",
            value.type_name()
        ));
    };
    let whole = "diuxXo".contains(kind);
    let value = match found {
        Number::Float(value) if "diu".contains(kind) => truncated(value)?,
        Number::Float(_) if whole => {
            return fail(format!("%{kind} format: an integer is required"));
        }
        Number::Int(value) if whole => Value::Int(value),
        other => Value::Float(as_float(other)),
    };
    if whole && spec.precision.is_some() {
        return fail("a precision of whole numbers is not supported");
    }
    spec.kind = Some(if matches!(kind, 'i' | 'u') { 'd' } else { kind });
    if spec.align == Some('<') {
        spec.zero = false;
    }
    formatted(&value, &spec)
}
