//! Python's format specifications: fill, alignment, sign, width, precision.

use super::numbers::{Number, as_float, number};
use super::text::float;
use super::value::{Made, Value, fail};

#[derive(Debug, Clone, Default)]
pub(super) struct Spec {
    pub(super) fill: Option<char>,
    pub(super) align: Option<char>,
    pub(super) sign: Option<char>,
    pub(super) alternate: bool,
    pub(super) zero: bool,
    pub(super) width: usize,
    pub(super) comma: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

impl Spec {
    /// Parses a format specification `[[fill]align][sign][#][0][width][,][.precision][type]`.
    pub(super) fn parse(text: &str) -> Made<Self> {
        let mut spec = Self::default();
        let mut chars = text.chars().collect::<Vec<char>>().into_iter().peekable();
        let aligns = |c: &char| "<>=^".contains(*c);
        let all: Vec<char> = text.chars().collect();
        if all.get(1).is_some_and(aligns) {
            (spec.fill, spec.align) = (chars.next(), chars.next());
        } else if all.first().is_some_and(aligns) {
            spec.align = chars.next();
        }
        spec.sign = chars.next_if(|c| "+- ".contains(*c));
        spec.alternate = chars.next_if_eq(&'#').is_some();
        spec.zero = chars.next_if_eq(&'0').is_some();
        let digits = |chars: &mut std::iter::Peekable<std::vec::IntoIter<char>>| {
            let mut text = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                text.push(digit);
            }
            text
        };
        let width = digits(&mut chars);
        spec.comma = chars.next_if(|c| *c == ',' || *c == '_');
        let precision = chars.next_if_eq(&'.').map(|_| digits(&mut chars));
        spec.kind = chars.next();
        let small = |text: &str| match text.parse::<usize>() {
            Ok(number @ 0..=1_000_000) => Ok(number),
            _ => fail(format!("the format {text:?} is not supported")),
        };
        if !width.is_empty() {
            spec.width = small(&width)?;
        }
        spec.precision = precision.as_deref().map(small).transpose()?;
        if chars.next().is_some() {
            return fail(format!("the format {text:?} is not supported"));
        }
        Ok(spec)
    }
}

/// Returns the sign before the digits of a number.
fn sign(negative: bool, spec: &Spec) -> &'static str {
    match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    }
}

/// Returns a text by a specification, which must not be one for numbers.
fn formatted_text(text: &str, spec: &Spec) -> Made<String> {
    if spec.sign.is_some() || spec.alternate || spec.comma.is_some() || spec.align == Some('=') {
        return fail("a format for numbers with a text");
    }
    if !matches!(spec.kind, None | Some('s')) {
        return fail(format!(
            "Unknown format code {:?} for object of type 'str'",
            spec.kind
        ));
    }
    let text: String = match spec.precision {
        Some(most) => text.chars().take(most).collect(),
        None => text.to_owned(),
    };
    if spec.zero && spec.align.is_none() && spec.fill.is_none() && spec.width > 0 {
        return Ok(padded("", &text, spec, '<', '0'));
    }
    Ok(padded("", &text, spec, '<', ' '))
}

/// Returns the text of Python's `format(value, spec)`.
pub(super) fn formatted(value: &Value, spec: &Spec) -> Made<String> {
    if let Value::Text(text) = value {
        return formatted_text(text, spec);
    }
    let (Some(found), false) = (number(value), matches!(value, Value::Bool(_))) else {
        return fail(format!(
            "a format of a {} is not supported",
            value.type_name()
        ));
    };
    let (negative, digits) = match (found, spec.kind) {
        (Number::Int(value), None | Some('d' | 'x' | 'X' | 'o' | 'b')) => {
            if spec.precision.is_some() {
                return fail("Precision not allowed in integer format specifier");
            }
            (value < 0, whole(value, spec)?)
        }
        (found, None | Some('f' | 'F' | 'e' | 'E' | 'g' | 'G' | '%')) => {
            let value = as_float(found);
            let negative = value.is_sign_negative() && !value.is_nan();
            (negative, fraction(value.abs(), spec)?)
        }
        (_, kind) => return fail(format!("the format code {kind:?} is not supported")),
    };
    let sign = sign(negative, spec);
    if !spec.zero || spec.align.is_some() {
        return Ok(padded(sign, &digits, spec, '>', ' '));
    }
    if spec.comma.is_some() {
        return fail("zeros with groups of digits are not supported");
    }
    let spec = Spec {
        align: Some('='),
        ..spec.clone()
    };
    Ok(padded(sign, &digits, &spec, '>', '0'))
}

fn padded(sign: &str, digits: &str, spec: &Spec, align: char, fill: char) -> String {
    let fill = spec.fill.unwrap_or(fill);
    let missing = spec
        .width
        .saturating_sub(sign.chars().count() + digits.chars().count());
    let fill = |count: usize| fill.to_string().repeat(count);
    match spec.align.unwrap_or(align) {
        '<' => format!("{sign}{digits}{}", fill(missing)),
        '^' => format!(
            "{}{sign}{digits}{}",
            fill(missing / 2),
            fill(missing - missing / 2)
        ),
        '=' => format!("{sign}{}{digits}", fill(missing)),
        _ => format!("{}{sign}{digits}", fill(missing)),
    }
}

fn whole(value: i128, spec: &Spec) -> Made<String> {
    let size = value.unsigned_abs();
    let (prefix, digits) = match spec.kind {
        Some('x') => ("0x", format!("{size:x}")),
        Some('X') => ("0X", format!("{size:X}")),
        Some('o') => ("0o", format!("{size:o}")),
        Some('b') => ("0b", format!("{size:b}")),
        _ => ("", size.to_string()),
    };
    if spec.comma.is_some() && !prefix.is_empty() {
        return fail("groups of digits in this base are not supported");
    }
    let digits = grouped(digits, spec.comma);
    Ok(if spec.alternate {
        format!("{prefix}{digits}")
    } else {
        digits
    })
}

/// Puts a sign between the thousands of a number.
fn grouped(digits: String, comma: Option<char>) -> String {
    let Some(comma) = comma else { return digits };
    let end = digits.find('.').unwrap_or(digits.len());
    let mut out = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && at < end && (end - at).is_multiple_of(3) {
            out.push(comma);
        }
        out.push(c);
    }
    out
}

fn fraction(value: f64, spec: &Spec) -> Made<String> {
    if spec.alternate {
        return fail("the flag # of a fraction is not supported");
    }
    if !value.is_finite() {
        let name = float(value);
        let upper = matches!(spec.kind, Some('F' | 'E' | 'G'));
        let percent = if spec.kind == Some('%') { "%" } else { "" };
        return Ok(if upper {
            name.to_uppercase()
        } else {
            name + percent
        });
    }
    let precision = spec.precision.unwrap_or(6);
    let text = match spec.kind {
        None if spec.precision.is_none() => float(value),
        None => return fail("a precision without a type is not supported"),
        Some('%') => format!("{:.precision$}%", value * 100.0),
        Some('e' | 'E') => exponent(value, precision),
        Some('g' | 'G') => general(value, precision),
        _ => format!("{value:.precision$}"),
    };
    let text = grouped(text, spec.comma);
    Ok(if matches!(spec.kind, Some('E' | 'G')) {
        text.to_uppercase()
    } else {
        text
    })
}

fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

fn general(value: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let text = format!("{value:.0$e}", precision - 1);
    let power: i32 = text
        .split_once('e')
        .and_then(|(_, power)| power.parse().ok())
        .unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    let most = i32::try_from(precision).unwrap_or(i32::MAX);
    if !(-4..most).contains(&power) {
        let text = exponent(value, precision - 1);
        let (digits, power) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{power}", trim(digits));
    }
    let decimals = usize::try_from(most - 1 - power).unwrap_or(0);
    trim(&format!("{value:.decimals$}"))
}
