//! Numbers of a document that the JSON parser would change: Python has whole numbers of any size.

use super::wrong::wrong;
use crate::sources::Reason;

/// Fails where a document has a whole number that would become a fraction, as a template would print it.
pub(super) fn check(raw: &[u8]) -> Result<(), Reason> {
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        match byte {
            b'"' => at = after_text(raw, at + 1),
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
                let length = raw[at..].iter().take_while(|b| is_part(b)).count();
                let number = &raw[at..at + length];
                if changes(number) {
                    let number = String::from_utf8_lossy(&number[..length.min(40)]).into_owned();
                    return Err(wrong(format!(
                        "has the number {number}, which no integer of 64 bits is; write it as a text"
                    )));
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

fn after_text(raw: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', raw.get(at..).unwrap_or_default()) {
        at += found + 1;
        if raw[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    raw.len()
}

fn changes(number: &[u8]) -> bool {
    if number == b"-0" {
        return true;
    }
    let plain = number.iter().all(|b| b.is_ascii_digit() || *b == b'-');
    if number.len() < 19 || !plain {
        return false;
    }
    let text = std::str::from_utf8(number).unwrap_or_default();
    text.parse::<i64>().is_err() && text.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_any_size_are_not_rounded_in_silence() {
        for (raw, holds) in [
            (
                r#"{"a":[1,-5,1.5,1e30,18446744073709551615,-9223372036854775808,0,"-0"]}"#,
                true,
            ),
            (
                r#"{"a":"18446744073709551616 \" 18446744073709551616"}"#,
                true,
            ),
            (r#"{"a":18446744073709551616}"#, false),
            (r#"{"a":-9223372036854775809}"#, false),
            (r#"{"a":-0}"#, false),
            (r#"{"a":-0.0, "b":"x"#, true),
        ] {
            assert_eq!(check(raw.as_bytes()).is_ok(), holds, "{raw}");
        }
    }
}
