//! The quick way to a text in a line of JSON: the string is copied once, in stretches between its
//! escapes. Whatever is not as usual, or wrong, is left to the parser, which says what.

use serde::de::IgnoredAny;

/// The string under `field`, if the line is an object that has it and nothing in it is odd.
pub(super) fn field(line: &str, field: &str) -> Option<String> {
    let mut rest = begin(line, '{')?;
    let mut found = None;
    loop {
        let (key, after) = plain_string(begin(rest, '"')?)?;
        rest = blanks(begin(after, ':')?);
        if key == field {
            let (text, after) = string(rest.strip_prefix('"')?)?;
            (found, rest) = (Some(text), after);
        } else {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
            values.next()?.ok()?;
            rest = rest.get(values.byte_offset()..)?;
        }
        if let Some(after) = begin(rest, ',') {
            rest = after;
            continue;
        }
        return blanks(begin(rest, '}')?).is_empty().then_some(found)?;
    }
}

/// What follows `mark`, which may have blanks before it.
fn begin(text: &str, mark: char) -> Option<&str> {
    blanks(text).strip_prefix(mark)
}

/// JSON has fewer blanks than others.
fn blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r'])
}

/// A string without escapes, and what follows its end.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let end = memchr::memchr2(b'"', b'\\', text.as_bytes())?;
    let (inside, rest) = (text.get(..end)?, text.get(end..)?);
    clean(inside).then_some((inside, rest.strip_prefix('"')?))
}

/// A string, and what follows its end.
fn string(mut text: &str) -> Option<(String, &str)> {
    let mut out = String::with_capacity(text.len());
    loop {
        let end = memchr::memchr2(b'"', b'\\', text.as_bytes())?;
        let (inside, rest) = (text.get(..end)?, text.get(end..)?);
        if !clean(inside) {
            return None;
        }
        out.push_str(inside);
        if let Some(rest) = rest.strip_prefix('"') {
            return Some((out, rest));
        }
        let (escaped, after) = escape(rest.get(1..)?)?;
        out.push(escaped);
        text = after;
    }
}

/// The character that follows a backslash stands for, and what follows that.
fn escape(text: &str) -> Option<(char, &str)> {
    let (kind, rest) = text.split_at_checked(1)?;
    let one = match kind {
        "n" => '\n',
        "\"" => '"',
        "\\" => '\\',
        "/" => '/',
        "t" => '\t',
        "r" => '\r',
        "b" => '\u{8}',
        "f" => '\u{c}',
        "u" => {
            let (digits, rest) = rest.split_at_checked(4)?;
            let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
            // Halves of pairs are no characters: the parser joins them.
            let one = char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| hex)?)?;
            return Some((one, rest));
        }
        _ => return None,
    };
    Some((one, rest))
}

/// No control characters, which JSON wants escaped.
fn clean(text: &str) -> bool {
    // Without an early end, and without a sum: many bytes at a time.
    text.bytes().fold(u8::MAX, u8::min) >= 0x20
}
