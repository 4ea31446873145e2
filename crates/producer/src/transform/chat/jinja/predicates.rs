//! Jinja2's tests, those after `is`.

use std::rc::Rc;

use super::ast::Comparison;
use super::compare::{contains, holds};
use super::numbers::{Number, number};
use super::value::{Given, Made, Value, fail};
use super::{names, words};

fn comparison(name: &str) -> Option<Comparison> {
    Some(match name {
        "eq" | "==" | "equalto" => Comparison::Equal,
        "ne" | "!=" => Comparison::Unequal,
        "lt" | "<" | "lessthan" => Comparison::Less,
        "le" | "<=" => Comparison::LessEqual,
        "gt" | ">" | "greaterthan" => Comparison::Greater,
        "ge" | ">=" => Comparison::GreaterEqual,
        _ => return None,
    })
}

/// Returns whether a test holds.
pub(super) fn apply(name: &str, value: &Value, given: Given) -> Made<bool> {
    let one = |given: Given| {
        given
            .plain::<1>(name, 1)
            .map(|[one]| one.unwrap_or(Value::None))
    };
    if let Some(comparison) = comparison(name) {
        return holds(comparison, value, &one(given)?);
    }
    match name {
        "in" => return contains(&one(given)?, value),
        "sameas" => return same(value, &one(given)?),
        "divisibleby" => return is_divisible(value, &one(given)?),
        _ => {}
    }
    given.plain::<0>(name, 0)?;
    Ok(match name {
        "defined" => !matches!(value, Value::Undefined(_)),
        "undefined" => matches!(value, Value::Undefined(_)),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => number(value).is_some(),
        "string" => value.as_text().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "iterable" => value.is_iterable(),
        "sequence" => is_sequence(value),
        "callable" => is_callable(value),
        "escaped" => matches!(value, Value::Markup(_)),
        "odd" | "even" => is_odd_or_even(value, name)?,
        "lower" | "upper" => words::is(&value.text()?, &format!("is{name}"))?,
        "filter" => value.as_text().is_some_and(|name| names::is_filter(name)),
        "test" => value.as_text().is_some_and(|name| names::is_test(name)),
        _ => return fail(format!("no test named {name:?}")),
    })
}

fn is_divisible(value: &Value, by: &Value) -> Made<bool> {
    value.defined()?;
    match (number(value), number(by)) {
        (Some(Number::Int(_)), Some(Number::Int(0))) => fail("integer modulo by zero"),
        (Some(Number::Int(value)), Some(Number::Int(by))) => Ok(value % by == 0),
        _ => fail("divisibleby of other than whole numbers is not supported"),
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(
        value,
        Value::Undefined(_)
            | Value::Text(_)
            | Value::Markup(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Group(_)
            | Value::Dict(_)
            | Value::Range(_)
    )
}

fn is_callable(value: &Value) -> bool {
    match value {
        // Undefined values have a call that fails.
        Value::Undefined(_) | Value::Call(_) => true,
        Value::Loop(state) => state.is_recursive(),
        _ => false,
    }
}

fn is_odd_or_even(value: &Value, name: &str) -> Made<bool> {
    match number(value) {
        Some(Number::Int(value)) => Ok((value % 2 != 0) == (name == "odd")),
        Some(Number::Float(value)) => {
            let wanted = f64::from(u8::from(name == "odd"));
            Ok(value.rem_euclid(2.0).total_cmp(&wanted).is_eq())
        }
        None => {
            value.defined()?;
            fail(format!("{name} of a {}", value.type_name()))
        }
    }
}

/// Returns whether two values are one object, as far as Python defines that.
fn same(left: &Value, right: &Value) -> Made<bool> {
    Ok(match (left, right) {
        (Value::None, Value::None) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Int(left), Value::Int(right)) if left != right => false,
        // Python keeps one object of each small number.
        (Value::Int(left), Value::Int(_)) if (-5..=256).contains(left) => true,
        (Value::Text(left), Value::Text(right)) if left != right => false,
        (Value::List(left), Value::List(right)) => Rc::ptr_eq(left, right),
        (Value::Dict(left), Value::Dict(right)) => Rc::ptr_eq(left, right),
        (Value::Call(left), Value::Call(right)) => Rc::ptr_eq(left, right),
        _ if left.type_name() != right.type_name() => false,
        _ => {
            return fail(format!(
                "sameas of two values of type {} is not supported",
                left.type_name()
            ));
        }
    })
}
