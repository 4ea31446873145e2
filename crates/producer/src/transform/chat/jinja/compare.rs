//! Equality, order and membership, as Python has them.

use std::cmp::Ordering;
use std::rc::Rc;

use super::ast::Comparison;
use super::numbers::{Number, number};
use super::value::{Dict, Fault, Made, Value, View, fail, whole};

/// Returns whether a comparison holds.
pub(super) fn holds(comparison: Comparison, left: &Value, right: &Value) -> Made<bool> {
    Ok(match comparison {
        Comparison::Equal => equal(left, right)?,
        Comparison::Unequal => !equal(left, right)?,
        Comparison::In => contains(right, left)?,
        Comparison::NotIn => !contains(right, left)?,
        Comparison::Less => ordered(left, right, "<")? == Some(Ordering::Less),
        Comparison::Greater => ordered(left, right, ">")? == Some(Ordering::Greater),
        Comparison::LessEqual => {
            matches!(
                ordered(left, right, "<=")?,
                Some(Ordering::Less | Ordering::Equal)
            )
        }
        Comparison::GreaterEqual => {
            matches!(
                ordered(left, right, ">=")?,
                Some(Ordering::Greater | Ordering::Equal)
            )
        }
    })
}

fn compare_numbers(left: Number, right: Number) -> Option<Ordering> {
    match (left, right) {
        (Number::Int(left), Number::Int(right)) => Some(left.cmp(&right)),
        (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
        (Number::Int(left), Number::Float(right)) => compare_mixed(left, right),
        (Number::Float(left), Number::Int(right)) => {
            compare_mixed(right, left).map(Ordering::reverse)
        }
    }
}

/// Compares exactly, which a conversion of large numbers would not.
fn compare_mixed(left: i128, right: f64) -> Option<Ordering> {
    if right.is_nan() {
        return None;
    }
    match whole(right.floor()) {
        Some(floor) => Some(left.cmp(&floor).then(if right > right.floor() {
            Ordering::Less
        } else {
            Ordering::Equal
        })),
        None => Some(if right > 0.0 {
            Ordering::Less
        } else {
            Ordering::Greater
        }),
    }
}

/// Returns whether Python's `==` holds.
pub(super) fn equal(left: &Value, right: &Value) -> Made<bool> {
    if let (Some(left), Some(right)) = (number(left), number(right)) {
        return Ok(compare_numbers(left, right) == Some(Ordering::Equal));
    }
    Ok(match (left, right) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Text(left) | Value::Markup(left), Value::Text(right) | Value::Markup(right)) => {
            left == right
        }
        (Value::List(left), Value::List(right))
        | (Value::Tuple(left) | Value::Group(left), Value::Tuple(right) | Value::Group(right)) => {
            equal_items(left, right)?
        }
        (Value::Dict(left), Value::Dict(right)) => equal_entries(left, right)?,
        (Value::Range(left), Value::Range(right)) => {
            let both = (left.len(), right.len());
            both.0 == both.1
                && (both.0 == 0 || left.start == right.start)
                && (both.0 <= 1 || left.step == right.step)
        }
        (Value::View(..), Value::View(..)) => {
            return fail("comparing parts of dicts is not supported");
        }
        (Value::Namespace(left), Value::Namespace(right)) => Rc::ptr_eq(left, right),
        (Value::Generator(left), Value::Generator(right)) => Rc::ptr_eq(left, right),
        (Value::Loop(left), Value::Loop(right)) => Rc::ptr_eq(left, right),
        (Value::Call(left), Value::Call(right)) => {
            if !Rc::ptr_eq(left, right) {
                return fail("comparing functions is not supported");
            }
            true
        }
        _ => false,
    })
}

fn equal_items(left: &[Value], right: &[Value]) -> Made<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right) {
        if !equal(left, right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether two dicts have the same keys with equal values, in any order.
fn equal_entries(left: &Dict, right: &Dict) -> Made<bool> {
    if left.entries.len() != right.entries.len() {
        return Ok(false);
    }
    for (key, value) in &left.entries {
        match right.get(key)? {
            Some(other) if equal(value, other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns the order of two values; `None` for what has none, as a NaN.
pub(super) fn ordered(left: &Value, right: &Value, sign: &str) -> Made<Option<Ordering>> {
    left.defined()?;
    right.defined()?;
    if let (Some(left), Some(right)) = (number(left), number(right)) {
        return Ok(compare_numbers(left, right));
    }
    match (left, right) {
        (Value::Text(left) | Value::Markup(left), Value::Text(right) | Value::Markup(right)) => {
            Ok(Some(left.cmp(right)))
        }
        (Value::List(left), Value::List(right))
        | (Value::Tuple(left) | Value::Group(left), Value::Tuple(right) | Value::Group(right)) => {
            for (left, right) in left.iter().zip(right.iter()) {
                if !equal(left, right)? {
                    return ordered(left, right, sign);
                }
            }
            Ok(Some(left.len().cmp(&right.len())))
        }
        _ => fail(format!(
            "'{sign}' not supported between instances of '{}' and '{}'",
            left.type_name(),
            right.type_name()
        )),
    }
}

/// Returns the order of two values, and keeps the first fault.
pub(super) fn order(left: &Value, right: &Value, fault: &mut Option<Fault>) -> Ordering {
    match ordered(left, right, "<") {
        Ok(order) => order.unwrap_or(Ordering::Equal),
        Err(why) => {
            fault.get_or_insert(why);
            Ordering::Equal
        }
    }
}

/// Returns whether `item in all` holds.
pub(super) fn contains(all: &Value, item: &Value) -> Made<bool> {
    match all {
        Value::Text(text) | Value::Markup(text) => {
            if let Some(part) = item.as_text() {
                return Ok(text.contains(&**part));
            }
            item.defined()?;
            fail(format!(
                "'in <string>' requires string as left operand, not {}",
                item.type_name()
            ))
        }
        Value::Dict(dict) | Value::View(View::Keys, dict) => {
            if let Value::Undefined(_) = item {
                return Ok(false);
            }
            Ok(dict.get(item)?.is_some())
        }
        Value::Generator(items) => loop {
            let next = { items.borrow_mut().pop_front() };
            match next {
                Some(own) if equal(&own, item)? => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        },
        _ if !all.is_iterable() => fail(format!(
            "argument of type '{}' is not iterable",
            all.type_name()
        )),
        _ => {
            for own in all.items()? {
                if equal(&own, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}
