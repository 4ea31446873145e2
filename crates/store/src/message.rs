//! The messages of stores and libraries as single printable lines without secrets.

use std::error::Error;
use std::fmt::Write;

use crate::secrets::{before_token, hides};

/// Words before a signature or token, in an answer that echoes its request; the rest is not shown.
const SECRETS: [&str; 7] = [
    "aws4-hmac-sha256 ",
    "signature=",
    "sig=",
    "x-amz-algorithm=",
    "x-amz-credential=",
    "x-amz-security-token",
    "authorization:",
];
/// Most characters shown of a store's message.
const MESSAGE_CHARS: usize = 400;
/// Most characters shown of a body that is not an error of the store.
const QUOTED_CHARS: usize = 80;
const QUOTED_BYTES: usize = 1 << 10;

/// Appends the first words of a body that is not the store's error: they identify a proxy or a TLS port.
pub(crate) fn quote(detail: &mut String, body: &[u8]) {
    let begin = String::from_utf8_lossy(&body[..body.len().min(QUOTED_BYTES)]);
    let words: String = one_line(&begin).chars().take(QUOTED_CHARS).collect();
    if !words.is_empty() {
        let _ = write!(detail, "; its body begins with \"{words}\"");
    }
}

/// Returns the first error of type `T` among an error and its sources.
pub(crate) fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // The inner error of an I/O error is not its source.
        let carried = error.downcast_ref::<std::io::Error>();
        if let Some(inner) = carried.and_then(std::io::Error::get_ref)
            && let Some(found) = find(inner)
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Returns the error and its sources in one line, without repetitions.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = one_line(&error.to_string());
    let mut next = error.source();
    while let Some(error) = next {
        let part = one_line(&error.to_string());
        if !text.contains(&part) {
            let _ = write!(text, ": {part}");
        }
        next = error.source();
    }
    text
}

/// Returns the innermost cause.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    one_line(&last.to_string())
}

/// Returns a store's message as one printable line: it may be hostile, and it goes into logs.
pub(crate) fn one_line(text: &str) -> String {
    // Before the text is cut, which could leave the beginning of a token.
    let shown: String = text.chars().filter(|c| !hides(*c)).collect();
    let (shown, has_token) = before_token(&shown);
    let shown: String = shown.chars().take(MESSAGE_CHARS).collect();
    let lower = shown.to_ascii_lowercase();
    let secret = SECRETS.iter().filter_map(|name| lower.find(name)).min();
    let open = &shown[..secret.unwrap_or(shown.len())];
    let mut line = open.split_whitespace().collect::<Vec<_>>().join(" ");
    if has_token || secret.is_some() || text.chars().nth(MESSAGE_CHARS).is_some() {
        line.push_str(" ...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_without_secrets() {
        crate::secrets::note("marked-token-31c5");
        for (said, shown) in [
            ("Reduce your\n rate", "Reduce your rate"),
            ("\u{1b}[31mred\u{202e} text\u{0}", "[31mred text"),
            (
                "no: AWS4-HMAC-SHA256 Credential=A, Signature=b tok",
                "no: ...",
            ),
            (
                "GET /k?x=1&X-Amz-Algorithm=AWS4&X-Amz-Signature=b tok",
                "GET /k?x=1& ...",
            ),
            ("The token marked-token-31c5 is bad", "The token ..."),
            ("Host: a\nX-Amz-Security-Token: tok", "Host: a ..."),
        ] {
            assert_eq!(one_line(said), shown);
        }
        let long = format!("{}marked-token-31c5", "x".repeat(MESSAGE_CHARS - 5));
        assert!(!one_line(&long).contains("marked"));
        assert_eq!(one_line(&"ab ".repeat(9000)).len(), MESSAGE_CHARS + 4);
    }
}
