//! Python's functions of texts.

use super::text::is_space;
use super::value::{Made, fail};

/// Divides a text at blanks, at most `most` times.
pub(super) fn split_blanks(text: &str, most: Option<usize>, from_end: bool) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = if from_end {
        text.trim_end_matches(is_space)
    } else {
        text.trim_start_matches(is_space)
    };
    while !rest.is_empty() {
        let place = if from_end {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        let last = most.is_some_and(|most| parts.len() >= most);
        match place {
            Some(at) if !last => {
                let blank = rest[at..].chars().next().map_or(1, char::len_utf8);
                let (part, more) = if from_end {
                    (&rest[at + blank..], rest[..at].trim_end_matches(is_space))
                } else {
                    (&rest[..at], rest[at + blank..].trim_start_matches(is_space))
                };
                parts.push(part.to_owned());
                rest = more;
            }
            _ => {
                parts.push(rest.to_owned());
                break;
            }
        }
    }
    if from_end {
        // The part at the end of the division keeps its blanks only at the other end.
        parts.reverse();
    }
    parts
}

/// Divides a text at a separator, at most `most` times.
pub(super) fn split(
    text: &str,
    separator: &str,
    most: Option<usize>,
    from_end: bool,
) -> Vec<String> {
    let own = |part: &str| part.to_owned();
    match (most, from_end) {
        (None, _) => text.split(separator).map(own).collect(),
        (Some(most), false) => text
            .splitn(most.saturating_add(1), separator)
            .map(own)
            .collect(),
        (Some(most), true) => {
            let mut parts: Vec<String> = text
                .rsplitn(most.saturating_add(1), separator)
                .map(own)
                .collect();
            parts.reverse();
            parts
        }
    }
}

/// Divides a text at the ends of its lines.
pub(super) fn lines(text: &str, keep_ends: bool) -> Vec<String> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let end = if rest[at..].starts_with("\r\n") {
            at + 2
        } else {
            at + rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        all.push(rest[..if keep_ends { end } else { at }].to_owned());
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        all.push(rest.to_owned());
    }
    all
}

/// Returns the text without blanks, or without `chars`, at its ends.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, name: &str) -> &'t str {
    let goes = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    match name {
        "lstrip" => text.trim_start_matches(goes),
        "rstrip" => text.trim_end_matches(goes),
        _ => text.trim_matches(goes),
    }
}

/// Returns the text at its place in a width.
pub(super) fn padded(text: &str, width: i128, fill: char, name: &str) -> Made<String> {
    let length = text.chars().count();
    let width = usize::try_from(width).unwrap_or(0);
    if width > 1 << 20 {
        return fail(format!("{name}: a width beyond 1,048,576 is not supported"));
    }
    let missing = width.saturating_sub(length);
    let left = match name {
        "ljust" => 0,
        "rjust" => missing,
        // As Python divides an odd number.
        _ => missing / 2 + (missing & width & 1),
    };
    let fill = |count: usize| fill.to_string().repeat(count);
    Ok(format!("{}{text}{}", fill(left), fill(missing - left)))
}

/// Returns the title case of a character.
fn title_char(c: char) -> Made<String> {
    Ok(match c {
        '\u{1c4}'..='\u{1c6}' => "\u{1c5}".to_owned(),
        '\u{1c7}'..='\u{1c9}' => "\u{1c8}".to_owned(),
        '\u{1ca}'..='\u{1cc}' => "\u{1cb}".to_owned(),
        '\u{1f1}'..='\u{1f3}' => "\u{1f2}".to_owned(),
        '\u{10d0}'..='\u{10ff}' => c.to_string(),
        '\u{1f80}'..='\u{1fff}' => {
            return fail(format!("the title case of {c:?} is not supported"));
        }
        _ => {
            let mut upper = c.to_uppercase();
            let first = upper.next().unwrap_or(c);
            let rest: String = upper.flat_map(char::to_lowercase).collect();
            format!("{first}{rest}")
        }
    })
}

pub(super) fn capitalize(text: &str) -> Made<String> {
    let Some(first) = text.chars().next() else {
        return Ok(String::new());
    };
    let lower = text.to_lowercase();
    let skipped: usize = first.to_lowercase().map(char::len_utf8).sum();
    Ok(title_char(first)? + lower.get(skipped..).unwrap_or_default())
}

/// Returns the text in another case.
pub(super) fn cased(text: &str, name: &str) -> Made<String> {
    Ok(match name {
        "upper" => text.to_uppercase(),
        "lower" => text.to_lowercase(),
        "capitalize" => capitalize(text)?,
        "casefold" if text.is_ascii() => text.to_lowercase(),
        "swapcase" if text.is_ascii() => text
            .chars()
            .map(|c| {
                if c.is_ascii_lowercase() {
                    c.to_ascii_uppercase()
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect(),
        "title" => title(text)?,
        _ => return fail(format!("{name} of a text beyond ASCII is not supported")),
    })
}

/// Returns Python's `str.title`: a letter after one without a case is a capital.
fn title(text: &str) -> Made<String> {
    let mut out = String::new();
    let mut after_cased = false;
    for c in text.chars() {
        if after_cased {
            out.extend(c.to_lowercase());
        } else {
            out.push_str(&title_char(c)?);
        }
        after_cased = c.is_lowercase() || c.is_uppercase();
    }
    Ok(out)
}

/// Returns the answer of `isdigit` and the like.
pub(super) fn is(text: &str, name: &str) -> Made<bool> {
    let all = |holds: fn(char) -> bool| !text.is_empty() && text.chars().all(holds);
    Ok(match name {
        "isascii" => text.is_ascii(),
        "isspace" => all(is_space),
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        _ if !text.is_ascii() => {
            return fail(format!("{name} of a text beyond ASCII is not supported"));
        }
        "isalnum" => all(|c| c.is_ascii_alphanumeric()),
        "isalpha" => all(|c| c.is_ascii_alphabetic()),
        _ => all(|c| c.is_ascii_digit()),
    })
}
