//! The fast path to a text in a line of JSON: the string is copied once, in stretches between its escapes.
//! Unusual and wrong lines are left to the parser, which names the error.

use serde::de::IgnoredAny;

/// Returns the string under `field`, if the line is a usual object that has it.
pub(super) fn field(line: &str, field: &str) -> Option<String> {
    // Checked for the whole line at once, because stretches between escapes are short. Control characters outside of
    // strings are rare enough for the parser.
    if !clean(line) {
        return None;
    }
    let mut rest = begin(line, '{')?;
    let mut found = None;
    loop {
        let (key, after) = plain_string(begin(rest, '"')?)?;
        rest = blanks(begin(after, ':')?);
        if key == field {
            // A repeated field would be copied each time.
            if found.is_some() {
                return None;
            }
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

/// Returns the text after `mark`, which may follow blanks.
fn begin(text: &str, mark: char) -> Option<&str> {
    blanks(text).strip_prefix(mark)
}

/// Removes leading blanks of JSON, which are fewer than those of Unicode.
fn blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r'])
}

/// Returns a string without escapes, and the text after it.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let end = special(text.as_bytes())?;
    let (inside, rest) = (text.get(..end)?, text.get(end..)?);
    Some((inside, rest.strip_prefix('"')?))
}

/// Returns a string, and the text after it.
fn string(text: &str) -> Option<(String, &str)> {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    loop {
        let at = from + special(bytes.get(from..)?)?;
        out.push_str(text.get(from..at)?);
        if bytes.get(at) == Some(&b'"') {
            return Some((out, text.get(at + 1..)?));
        }
        let (escaped, length) = escape(bytes.get(at + 1..)?)?;
        out.push(escaped);
        from = at + 1 + length;
    }
}

/// Returns the character that an escape stands for, and the number of bytes after the backslash.
fn escape(text: &[u8]) -> Option<(char, usize)> {
    let one = match text.first()? {
        b'n' => '\n',
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => {
            let add = |code: u32, digit: &u8| Some((code << 4) | char::from(*digit).to_digit(16)?);
            let code = text.get(1..5)?.iter().try_fold(0, add)?;
            // Halves of surrogate pairs are left to the parser, which joins them.
            return Some((char::from_u32(code)?, 5));
        }
        _ => return None,
    };
    Some((one, 1))
}

/// Returns the offset of the next `"` or `\`.
fn special(text: &[u8]) -> Option<usize> {
    memchr::memchr2(b'"', b'\\', text)
}

/// Returns whether the text is free of control characters, which JSON strings must escape.
fn clean(text: &str) -> bool {
    // A minimum without early exit lets the compiler check many bytes at a time.
    text.bytes().fold(u8::MAX, u8::min) >= 0x20
}
