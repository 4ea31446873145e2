//! The quick way to a text in a line of JSON: the string is copied once, in stretches between its
//! escapes. Whatever is not as usual, or wrong, is left to the parser, which says what.

use serde::de::IgnoredAny;

/// The string under `field`, if the line is an object that has it and nothing in it is odd.
pub(super) fn field(line: &str, field: &str) -> Option<String> {
    // Of all of the line at once: stretches between escapes are short. Blanks of other kinds are odd enough.
    if !clean(line) {
        return None;
    }
    let mut rest = begin(line, '{')?;
    let mut found = None;
    loop {
        let (key, after) = plain_string(begin(rest, '"')?)?;
        rest = blanks(begin(after, ':')?);
        if key == field {
            // A field that is there again and again would be copied as often.
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
    let end = special(text.as_bytes())?;
    let (inside, rest) = (text.get(..end)?, text.get(end..)?);
    Some((inside, rest.strip_prefix('"')?))
}

/// A string, and what follows its end.
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

/// The character that what follows a backslash stands for, and how long that is.
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
            // Halves of pairs are no characters: the parser joins them.
            return Some((char::from_u32(code)?, 5));
        }
        _ => return None,
    };
    Some((one, 1))
}

/// Where the next `"` or `\` is.
fn special(text: &[u8]) -> Option<usize> {
    memchr::memchr2(b'"', b'\\', text)
}

/// No control characters, which JSON wants escaped in strings.
fn clean(text: &str) -> bool {
    // Without an early end, and without a sum: many bytes at a time.
    text.bytes().fold(u8::MAX, u8::min) >= 0x20
}
