//! The numbers among values.

use super::text::float;
use super::value::{Made, Value, fail, whole};

/// A number of any kind.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

/// Returns the number in a value; `True` and `False` are 1 and 0.
pub(super) fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Bool(value) => Some(Number::Int(i128::from(*value))),
        Value::Int(value) => Some(Number::Int(*value)),
        Value::Float(value) => Some(Number::Float(*value)),
        _ => None,
    }
}

/// Returns the float that a number is.
#[expect(clippy::cast_precision_loss, reason = "Python rounds too")]
pub(super) fn as_float(value: Number) -> f64 {
    match value {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// Returns the whole part of a float.
pub(super) fn truncated(value: f64) -> Made<Value> {
    if !value.is_finite() {
        return fail(format!("cannot convert float {} to integer", float(value)));
    }
    match whole(value.trunc()) {
        Some(whole) => Ok(Value::Int(whole)),
        None => fail("a whole number beyond 127 bits is not supported"),
    }
}
