//! Jinja2's filters of numbers.

use super::arguments::{int_of, text_or};
use super::numbers::{Number, as_float, number, truncated};
use super::text::is_space;
use super::value::{Given, Made, Value, fail};

/// Returns the number that Python's `float()` finds in an ASCII text: `_` stands between two digits only.
fn parsed(text: &str) -> Option<f64> {
    let plain = text.trim_matches(is_space);
    let bytes = plain.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let between = |at: usize| at.checked_sub(1).is_some_and(digit) && digit(at + 1);
    let mut all = bytes.iter().enumerate();
    if !plain.is_ascii() || all.any(|(at, byte)| *byte == b'_' && !between(at)) {
        return None;
    }
    plain.replace('_', "").parse().ok()
}

pub(super) fn int(value: &Value, given: Given) -> Made<Value> {
    let [other, base] = given.bind("int", ["default", "base"], 0)?;
    if int_of(base, 10, "int")? != 10 {
        return fail("int with another base than 10 is not supported");
    }
    let other = other.unwrap_or(Value::Int(0));
    match (value, number(value)) {
        (_, Some(Number::Int(value))) => Ok(Value::Int(value)),
        (_, Some(Number::Float(value))) if value.is_infinite() => {
            fail("cannot convert float infinity to integer")
        }
        (_, Some(Number::Float(value))) if value.is_finite() => truncated(value),
        (Value::Text(text), _) => {
            let plain = text.trim_matches(is_space);
            let digits = plain.strip_prefix(['+', '-']).unwrap_or(plain);
            let whole = digits.starts_with(|c: char| c.is_ascii_digit())
                && !digits.contains("__")
                && !digits.ends_with('_')
                && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_');
            if !plain.is_ascii() {
                return fail("int of a text beyond ASCII is not supported");
            }
            if whole {
                let plain: String = plain.chars().filter(|c| *c != '_').collect();
                return match plain.parse() {
                    Ok(value) => Ok(Value::Int(value)),
                    Err(_) => fail("a whole number beyond 127 bits is not supported"),
                };
            }
            match parsed(text) {
                Some(value) if value.is_finite() => truncated(value),
                _ => Ok(other),
            }
        }
        (Value::Undefined(_), _) => {
            value.defined()?;
            Ok(other)
        }
        _ => Ok(other),
    }
}

pub(super) fn float(value: &Value, given: Given) -> Made<Value> {
    let [other] = given.bind("float", ["default"], 0)?;
    let other = other.unwrap_or(Value::Float(0.0));
    match (value, number(value)) {
        (_, Some(value)) => Ok(Value::Float(as_float(value))),
        (Value::Text(text), _) if !text.is_ascii() => {
            fail("float of a text beyond ASCII is not supported")
        }
        (Value::Text(text), _) => Ok(parsed(text).map_or(other, Value::Float)),
        _ => {
            value.defined()?;
            Ok(other)
        }
    }
}

pub(super) fn absolute(value: &Value) -> Made<Value> {
    value.defined()?;
    match number(value) {
        Some(Number::Int(value)) => match value.checked_abs() {
            Some(value) => Ok(Value::Int(value)),
            None => fail("a whole number beyond 127 bits is not supported"),
        },
        Some(Number::Float(value)) => Ok(Value::Float(value.abs())),
        None => fail(format!(
            "bad operand type for abs(): '{}'",
            value.type_name()
        )),
    }
}

pub(super) fn round(value: &Value, given: Given) -> Made<Value> {
    let [precision, method] = given.bind("round", ["precision", "method"], 0)?;
    let precision = int_of(precision, 0, "round")?;
    let method = text_or("common", method, "round")?;
    value.defined()?;
    let Some(found) = number(value) else {
        return fail(format!(
            "type {} doesn't define __round__ method",
            value.type_name()
        ));
    };
    let Ok(decimals @ 0..=300) = usize::try_from(precision) else {
        return fail("round: a precision below 0 or above 300 is not supported");
    };
    match (method.as_str(), found) {
        ("common", Number::Int(value)) => Ok(Value::Int(value)),
        ("common", Number::Float(value)) if value.is_finite() => {
            let text = format!("{value:.decimals$}");
            Ok(Value::Float(text.parse().unwrap_or(value)))
        }
        ("common", Number::Float(value)) => Ok(Value::Float(value)),
        ("ceil" | "floor", found) => {
            let directed = if method == "ceil" {
                f64::ceil
            } else {
                f64::floor
            };
            rounded(as_float(found), decimals, directed)
        }
        _ => fail("method must be common, ceil or floor"),
    }
}

/// Returns a number with this many decimals, rounded by `directed`. Powers of ten above 22 are not exact.
fn rounded(value: f64, decimals: usize, directed: fn(f64) -> f64) -> Made<Value> {
    let scale = (0..decimals).fold(1.0, |scale, _| scale * 10.0);
    let whole = directed(value * scale);
    if decimals > 22 || !whole.is_finite() || whole.abs() > 1e15 {
        return fail("round of such a number is not supported");
    }
    // Python rounds to an int, which has no -0.0.
    Ok(Value::Float((whole + 0.0) / scale))
}
