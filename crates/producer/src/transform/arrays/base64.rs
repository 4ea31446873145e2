//! Base64 in JSON files: the standard alphabet, with or without padding.

/// Returns the decoded bytes; `None` when the text is not base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut data = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut bits = 0;
        for &digit in chunk {
            bits = bits << 6 | value(digit)?;
        }
        // The digits stand at the upper end of 24 bits.
        bits <<= 6 * (4 - chunk.len());
        data.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(data)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_come_back() {
        // RFC 4648, section 10.
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
            ("Zg", "f"),
        ] {
            assert_eq!(decode(text).unwrap(), bytes.as_bytes(), "{text}");
        }
        assert_eq!(decode("+/A=").unwrap(), [0xfb, 0xf0]);
        for wrong in ["Z", "Zg===", "Z g=", "Zm9-"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
