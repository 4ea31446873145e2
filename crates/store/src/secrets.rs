//! Hides in a store's answer, before it is logged, session tokens that this process sends and characters that hide text.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Tokens that are remembered: an old one may be echoed while a new one is in use.
const KEPT: usize = 8;
/// Shorter ones would hide ordinary words.
const SHORTEST: usize = 8;

static SENT: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Notes a token that is sent, as it is or as it is written in a URL.
pub(crate) fn note(token: &str) {
    if token.len() < SHORTEST {
        return;
    }
    let mut sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    if sent.iter().any(|known| known == token) {
        return;
    }
    if sent.len() == KEPT {
        sent.pop_front();
    }
    sent.push_back(token.to_owned());
}

/// Notes the token in the URL of a presigned request.
pub(crate) fn note_url(url: &str) {
    let token = url
        .split(['?', '&'])
        .find_map(|part| part.strip_prefix("X-Amz-Security-Token="));
    if let Some(token) = token {
        note(token);
    }
}

/// Returns `text` up to the first token in it, and whether there was one.
pub(crate) fn before_token(text: &str) -> (&str, bool) {
    let sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    let first = sent
        .iter()
        .filter_map(|token| text.find(token.as_str()))
        .min();
    first.map_or((text, false), |at| (&text[..at], true))
}

/// Returns whether `c` is a control character, or reverses or hides the text around it.
pub(crate) fn hides(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    turns || (c.is_control() && !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_were_sent_are_hidden_in_both_forms() {
        note("tok/of-the-test+1==");
        note_url("https://b/k?X-Amz-Date=1&X-Amz-Security-Token=tok%2Fof-the-test%2B1%3D%3D&x=y");
        note("short");
        for said in [
            "no: tok/of-the-test+1== x",
            "no: tok%2Fof-the-test%2B1%3D%3D",
        ] {
            assert_eq!(before_token(said), ("no: ", true));
        }
        assert_eq!(before_token("short"), ("short", false));
    }
}
