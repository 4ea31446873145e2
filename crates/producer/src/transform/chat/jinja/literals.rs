//! Numbers and strings as templates write them.

use super::token::Kind;

/// Returns the number at the beginning of `text` and its length; `None` when it is too large.
pub(super) fn number(text: &str, after_dot: bool) -> Option<(Kind, usize)> {
    let bytes = text.as_bytes();
    let whole = digits(bytes, 0);
    if !after_dot && let Some(end) = fraction(bytes, whole) {
        let plain: String = text[..end].chars().filter(|c| *c != '_').collect();
        return Some((Kind::Float(plain.parse().ok()?), end));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        let begins = text
            .get(..2)
            .is_some_and(|p| p.eq_ignore_ascii_case(prefix));
        if !begins {
            continue;
        }
        let end = 2 + text[2..]
            .find(|c: char| c != '_' && !c.is_digit(radix))
            .unwrap_or(text.len() - 2);
        let plain: String = text[2..end].chars().filter(|c| *c != '_').collect();
        if !plain.is_empty() {
            return Some((Kind::Int(i128::from_str_radix(&plain, radix).ok()?), end));
        }
    }
    // A number does not begin with 0, except for 0 itself.
    let end = if bytes[0] == b'0' {
        (1..whole)
            .find(|at| !matches!(bytes[*at], b'0' | b'_'))
            .unwrap_or(whole)
    } else {
        whole
    };
    let plain: String = text[..end].chars().filter(|c| *c != '_').collect();
    Some((Kind::Int(plain.parse().ok()?), end))
}

/// Returns the end of the digits at `from`, with `_` between them.
fn digits(bytes: &[u8], from: usize) -> usize {
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = from;
    while digit(at) || (at > from && bytes.get(at) == Some(&b'_') && digit(at + 1)) {
        at += 1;
    }
    at
}

/// Returns the end of the fraction and the exponent after a whole number; `None` when it has neither.
fn fraction(bytes: &[u8], whole: usize) -> Option<usize> {
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') {
        let after = digits(bytes, end + 1);
        if after > end + 1 {
            end = after;
        }
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let after = digits(bytes, end + 1 + sign);
        if after > end + 1 + sign {
            return Some(after);
        }
    }
    (end > whole).then_some(end)
}

/// Returns the text of a string literal without its quotes, as Python's `unicode-escape` decodes it.
pub(super) fn unescape(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(kind) = chars.next() else { break };
        match kind {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(kind),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'a' => out.push('\x07'),
            'b' => out.push('\x08'),
            'f' => out.push('\x0c'),
            'v' => out.push('\x0b'),
            '0'..='7' => {
                let mut code = kind.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit;
                    chars.next();
                }
                out.push(character(code)?);
            }
            'x' | 'u' | 'U' => {
                let length = match kind {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let mut code = 0u32;
                for _ in 0..length {
                    let Some(digit) = chars.next().and_then(|c| c.to_digit(16)) else {
                        return Err(format!("a truncated \\{kind} escape"));
                    };
                    code = code.wrapping_mul(16) + digit;
                }
                out.push(character(code)?);
            }
            'N' => return Err("a \\N escape, which is not supported".to_owned()),
            other => {
                out.push('\\');
                out.push_str(&undecoded(other));
            }
        }
    }
    Ok(out)
}

/// Python first writes a character beyond ASCII as an escape, whose backslash the one before it then escapes.
fn undecoded(c: char) -> String {
    match u32::from(c) {
        0..=0x7f => c.to_string(),
        code @ 0x80..=0xff => format!("x{code:02x}"),
        code @ 0x100..=0xffff => format!("u{code:04x}"),
        code => format!("U{code:08x}"),
    }
}

fn character(code: u32) -> Result<char, String> {
    char::from_u32(code).ok_or_else(|| "a string with half a surrogate pair".to_owned())
}
