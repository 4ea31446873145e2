//! The fast path to a text in a line of JSON: one pass copies the string and finds its escapes and its end. Unusual and
//! wrong lines are left to the parser, which names the error.

use serde::de::IgnoredAny;

/// Bytes that are copied and searched at a time.
const BLOCK: usize = 16;
/// Room for a string grows by this many bytes, so that few lines need more.
const ROOM_STEP: usize = 64 << 10;
/// A word with 1 in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Writes the string under `field` to the beginning of `out`, which may hold anything, and returns it, if the line is a
/// usual object that has it.
pub(super) fn field<'a>(line: &[u8], field: &str, out: &'a mut Vec<u8>) -> Option<&'a str> {
    let mut rest = begin(line, b'{')?;
    // The number of bytes of the text, and what is before and behind its string.
    let mut found: Option<(usize, &[u8], &[u8])> = None;
    loop {
        let (key, after) = plain_string(begin(rest, b'"')?)?;
        rest = blanks(begin(after, b':')?);
        if key == field.as_bytes() {
            // The last one counts, and the parser finds it.
            if found.is_some() {
                return None;
            }
            let text = rest.strip_prefix(b"\"")?;
            let (length, after) = string(text, out)?;
            found = Some((length, line.get(..line.len() - text.len())?, after));
            rest = after;
        } else {
            let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
            values.next()?.ok()?;
            rest = rest.get(values.byte_offset()..)?;
        }
        if let Some(after) = begin(rest, b',') {
            rest = after;
            continue;
        }
        if !blanks(begin(rest, b'}')?).is_empty() {
            return None;
        }
        let (length, before, behind) = found?;
        // An escape stands for a whole character, so the text is UTF-8 exactly when its string is.
        simdutf8::basic::from_utf8(before).ok()?;
        simdutf8::basic::from_utf8(behind).ok()?;
        return simdutf8::basic::from_utf8(out.get(..length)?).ok();
    }
}

/// Returns the text after `mark`, which may follow blanks.
fn begin(text: &[u8], mark: u8) -> Option<&[u8]> {
    blanks(text).strip_prefix(&[mark])
}

/// Removes leading blanks of JSON, which are fewer than those of ASCII.
fn blanks(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let end = text.iter().position(|byte| !is_blank(byte));
    text.get(end.unwrap_or(text.len())..).unwrap_or_default()
}

/// Returns a string without escapes, and the text after it.
fn plain_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (inside, rest) = text.split_at_checked(special(text)?)?;
    Some((inside, rest.strip_prefix(b"\"")?))
}

/// Writes a string to the beginning of `out`; returns its length, and the text after it.
fn string<'a>(mut text: &'a [u8], out: &mut Vec<u8>) -> Option<(usize, &'a [u8])> {
    // A string is never longer than it is written, and blocks are copied before their end is found.
    let room = text.len() + BLOCK;
    if out.len() < room {
        *out = vec![0; room.next_multiple_of(ROOM_STEP)];
    }
    let mut end = 0;
    loop {
        let here = out.get_mut(end..)?;
        if let Some((block, rest)) = text.split_first_chunk::<BLOCK>() {
            *here.first_chunk_mut()? = *block;
            let plain = plain_bytes(block);
            end += plain;
            if plain == BLOCK {
                text = rest;
                continue;
            }
            text = text.get(plain..)?;
        } else {
            let (plain, rest) = text.split_at_checked(special(text)?)?;
            here.get_mut(..plain.len())?.copy_from_slice(plain);
            end += plain.len();
            text = rest;
        }
        match text {
            [b'\\', escape, rest @ ..] => {
                let one = ESCAPES[usize::from(*escape)];
                if one == 0 {
                    (end, text) = code_point(text, out, end)?;
                } else {
                    *out.get_mut(end)? = one;
                    (end, text) = (end + 1, rest);
                }
            }
            [b'"', rest @ ..] => return Some((end, rest)),
            _ => return None,
        }
    }
}

/// The bytes that escapes of one letter stand for; 0 for all others. A table has no branch to predict wrongly.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let pairs = *b"n\nt\tr\rb\x08f\x0c\"\"\\\\//";
    let mut at = 0;
    while at < pairs.len() {
        table[pairs[at] as usize] = pairs[at + 1];
        at += 2;
    }
    table
};

/// Writes the character that a `\u` at the beginning of `text` stands for to `out` at `end`; returns the new end, and the
/// text after it.
fn code_point<'a>(text: &'a [u8], out: &mut [u8], end: usize) -> Option<(usize, &'a [u8])> {
    let (digits, rest) = text.strip_prefix(b"\\u")?.split_first_chunk::<4>()?;
    let add = |code: u32, digit: &u8| Some((code << 4) | char::from(*digit).to_digit(16)?);
    let code = digits.iter().try_fold(0, add)?;
    // Halves of surrogate pairs are left to the parser, which joins them.
    let character = char::from_u32(code)?;
    let room = out.get_mut(end..end + character.len_utf8())?;
    Some((end + character.encode_utf8(room).len(), rest))
}

/// Returns the offset of the first `"`, `\` or control character, which strings must escape.
fn special(text: &[u8]) -> Option<usize> {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    text.iter().position(is_special)
}

/// Returns the number of bytes before the first special one.
fn plain_bytes(block: &[u8; BLOCK]) -> usize {
    let ([low, high], []) = block.as_chunks() else {
        return 0;
    };
    let word = |half: &[u8; 8]| u128::from(marks(u64::from_le_bytes(*half)));
    (word(low) | (word(high) << 64)).trailing_zeros() as usize / 8
}

/// Returns a word whose lowest bit that is set is the highest one of the first special byte of `word`.
fn marks(word: u64) -> u64 {
    // Flipping one bit moves `"` next to the control characters and nothing else among them.
    let low_below = word ^ (ONES * 0x02);
    let zero_where_equal = word ^ (ONES * 0x5c);
    let below = low_below.wrapping_sub(ONES * 0x21) & !low_below;
    let equal = zero_where_equal.wrapping_sub(ONES) & !zero_where_equal;
    (below | equal) & (ONES << 7)
}
