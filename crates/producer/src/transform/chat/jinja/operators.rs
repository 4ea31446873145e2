//! Arithmetic, as Python has it.

use super::ast::Operator;
use super::numbers::{Number, as_float, number};
use super::percent::percent;
use super::value::{Made, Value, fail};

/// Whole numbers up to this one are floats without a loss.
const EXACT: i128 = 1 << 53;

fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Modulo => "%",
        Operator::Power => "** or pow()",
    }
}

/// Returns the result of an operator.
pub(super) fn binary(operator: Operator, left: &Value, right: &Value) -> Made<Value> {
    left.defined()?;
    if operator == Operator::Modulo
        && let Value::Text(template) = left
    {
        return percent(template, right).map(Value::from);
    }
    right.defined()?;
    if let (Some(left), Some(right)) = (number(left), number(right)) {
        return numbers(operator, left, right);
    }
    match (operator, left, right) {
        (Operator::Add, Value::Text(left), Value::Text(right)) => {
            let mut text = String::with_capacity(left.len() + right.len());
            text.push_str(left);
            text.push_str(right);
            Ok(text.into())
        }
        (Operator::Add, Value::List(left), Value::List(right)) => {
            Ok(Value::list([&left[..], &right[..]].concat()))
        }
        (Operator::Add, Value::Tuple(left), Value::Tuple(right)) => {
            Ok(Value::tuple([&left[..], &right[..]].concat()))
        }
        (Operator::Multiply, all, Value::Int(_) | Value::Bool(_)) if repeats(all) => {
            repeated(all, right)
        }
        (Operator::Multiply, Value::Int(_) | Value::Bool(_), all) if repeats(all) => {
            repeated(all, left)
        }
        _ => refused(operator, left, right),
    }
}

/// Fails with the reason why the operator does not take these values.
fn refused(operator: Operator, left: &Value, right: &Value) -> Made<Value> {
    match (left, right) {
        (Value::Markup(_), _) | (_, Value::Markup(_)) => fail(format!(
            "{} with the result of \"escape\" or \"safe\" is not supported",
            sign(operator)
        )),
        (Value::View(..), _) | (_, Value::View(..)) => fail(format!(
            "{} with parts of dicts is not supported",
            sign(operator)
        )),
        (Value::Dict(_), Value::Dict(_)) => fail("an operator between dicts is not supported"),
        _ => fail(format!(
            "unsupported operand type(s) for {}: '{}' and '{}'",
            sign(operator),
            left.type_name(),
            right.type_name()
        )),
    }
}

fn repeats(value: &Value) -> bool {
    matches!(value, Value::Text(_) | Value::List(_) | Value::Tuple(_))
}

fn repeated(all: &Value, times: &Value) -> Made<Value> {
    let times = match number(times) {
        Some(Number::Int(times)) => times.max(0),
        _ => 0,
    };
    let times = usize::try_from(times).ok();
    let length = match all {
        Value::Text(text) => text.len(),
        other => other.len()? * size_of::<Value>(),
    };
    let fits = times.and_then(|times| times.checked_mul(length));
    let (Some(times), Some(0..=0x1000_0000)) = (times, fits) else {
        return fail("a repetition of more than 256 MiB");
    };
    Ok(match all {
        Value::Text(text) => text.repeat(times).into(),
        Value::List(items) => Value::list(vec![&items[..]; times].concat()),
        Value::Tuple(items) => Value::tuple(vec![&items[..]; times].concat()),
        other => other.clone(),
    })
}

fn numbers(operator: Operator, left: Number, right: Number) -> Made<Value> {
    if let (Number::Int(left), Number::Int(right)) = (left, right) {
        return whole_numbers(operator, left, right);
    }
    let left = as_float(left);
    let right = as_float(right);
    let zero = right == 0.0;
    Ok(Value::Float(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide if zero => return fail("float division by zero"),
        Operator::Divide => left / right,
        Operator::FloorDivide if zero => return fail("float floor division by zero"),
        Operator::FloorDivide => floor_divide(left, right),
        Operator::Modulo if zero => return fail("float modulo by zero"),
        Operator::Modulo => modulo(left, right),
        Operator::Power if left < 0.0 && right.fract() != 0.0 => {
            return fail("a complex number is not supported");
        }
        Operator::Power if left == 0.0 && right < 0.0 => {
            return fail("0.0 cannot be raised to a negative power");
        }
        Operator::Power => {
            let made = left.powf(right);
            if made.is_infinite() && left.is_finite() && right.is_finite() {
                return fail("numerical result out of range");
            }
            made
        }
    }))
}

/// Returns the remainder with the sign of the divisor.
fn modulo(left: f64, right: f64) -> f64 {
    let rest = left % right;
    if rest == 0.0 {
        return 0.0f64.copysign(right);
    }
    if (rest < 0.0) == (right < 0.0) {
        rest
    } else {
        rest + right
    }
}

fn floor_divide(left: f64, right: f64) -> f64 {
    let rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest != 0.0 && (rest < 0.0) != (right < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0.0f64.copysign(left / right);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 {
        floor + 1.0
    } else {
        floor
    }
}

fn whole_numbers(operator: Operator, left: i128, right: i128) -> Made<Value> {
    let made = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide if right == 0 => return fail("division by zero"),
        Operator::Divide => {
            if left.abs() > EXACT || right.abs() > EXACT {
                return fail("a division of numbers beyond 2^53 is not supported");
            }
            return Ok(Value::Float(
                as_float(Number::Int(left)) / as_float(Number::Int(right)),
            ));
        }
        Operator::FloorDivide if right == 0 => return fail("integer division or modulo by zero"),
        Operator::FloorDivide => floored_quotient(left, right),
        Operator::Modulo if right == 0 => return fail("integer modulo by zero"),
        Operator::Modulo => floored_rest(left, right),
        Operator::Power if right < 0 => {
            return numbers(
                operator,
                Number::Float(as_float(Number::Int(left))),
                Number::Int(right),
            );
        }
        Operator::Power => match left {
            0 | 1 => Some(if right == 0 { 1 } else { left }),
            -1 => Some(if right % 2 == 0 { 1 } else { -1 }),
            _ => u32::try_from(right)
                .ok()
                .and_then(|right| left.checked_pow(right)),
        },
    };
    match made {
        Some(made) => Ok(Value::Int(made)),
        None => fail("a whole number beyond 127 bits is not supported"),
    }
}

/// Returns the quotient of a division that leaves a rest of the divisor's sign, as Python's does; Rust's leaves one of no
/// sign. `None` when it has more than 127 bits.
fn floored_quotient(left: i128, right: i128) -> Option<i128> {
    let quotient = left.checked_div_euclid(right)?;
    let rest = left.rem_euclid(right);
    Some(if right < 0 && rest != 0 {
        quotient - 1
    } else {
        quotient
    })
}

/// Returns the rest of a division, with the divisor's sign.
fn floored_rest(left: i128, right: i128) -> Option<i128> {
    let rest = left.checked_rem_euclid(right)?;
    Some(if right < 0 && rest != 0 {
        rest + right
    } else {
        rest
    })
}

/// Returns the value with the other sign, or with its own.
pub(super) fn signed(value: &Value, negative: bool) -> Made<Value> {
    value.defined()?;
    match number(value) {
        Some(Number::Int(value)) => Ok(Value::Int(if negative { -value } else { value })),
        Some(Number::Float(value)) => Ok(Value::Float(if negative { -value } else { value })),
        None => fail(format!(
            "bad operand type for unary {}: '{}'",
            if negative { '-' } else { '+' },
            value.type_name()
        )),
    }
}
