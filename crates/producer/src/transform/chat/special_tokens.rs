//! Special tokens in a template are tokens; in a message they are text. So before rendering, each one in a message
//! is escaped: a character that no text has is inserted after its first character. Afterwards the rendered text is
//! divided at the special tokens without an escape, and the escapes are removed.

use std::collections::BTreeMap;
use std::ops::Range;

use minijinja::Value;
use minijinja::value::ValueKind;

/// The escape and the marks are the last private-use characters of Unicode.
pub(super) const ESCAPE: char = '\u{10fffd}';
pub(super) const GENERATION_BEGINS: char = '\u{10fffc}';
pub(super) const GENERATION_ENDS: char = '\u{10fffb}';
/// Most nested levels of a message; the JSON parser refuses deeper ones already.
pub(super) const DEPTH_MAX: usize = 130;

/// Returns whether a text holds one of the characters that mark places in rendered text.
fn holds_marks(text: &str) -> bool {
    text.contains([ESCAPE, GENERATION_BEGINS, GENERATION_ENDS])
}

/// The special tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// Special tokens by their first byte, the longest first.
    by_first: BTreeMap<u8, Vec<(String, u32)>>,
}

/// A part of a rendered text: a special token, or the text between two of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextPart {
    /// A special token, and whether it is learned.
    Special(u32, bool),
    Text {
        text: String,
        /// Whether the beginning of the text is learned.
        learn: bool,
        /// The offsets where that changes, in order.
        changes: Vec<usize>,
    },
}

impl SpecialTokens {
    pub(super) fn new(specials: &[(String, u32)]) -> Self {
        let mut by_first: BTreeMap<u8, Vec<(String, u32)>> = BTreeMap::new();
        for (text, id) in specials {
            if let Some(&first) = text.as_bytes().first() {
                by_first.entry(first).or_default().push((text.clone(), *id));
            }
        }
        for same in by_first.values_mut() {
            same.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        }
        Self { by_first }
    }

    /// Returns the special token that `text` begins with.
    fn at_start(&self, text: &str) -> Option<&(String, u32)> {
        let same = self.by_first.get(text.as_bytes().first()?)?;
        same.iter().find(|(special, _)| text.starts_with(special))
    }

    /// Returns the value with every special token in its strings escaped.
    pub(super) fn escape_special_tokens(&self, value: &Value) -> Result<Value, String> {
        self.escape_below(value, DEPTH_MAX)
    }

    fn escape_below(&self, value: &Value, depth: usize) -> Result<Value, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err("is nested too deeply".to_owned());
        };
        let iterate = || value.try_iter().map_err(|e| e.to_string());
        match value.kind() {
            ValueKind::String => self.escape_text(value.as_str().unwrap_or_default()),
            ValueKind::Seq => {
                let items: Result<Vec<Value>, String> = iterate()?
                    .map(|item| self.escape_below(&item, depth))
                    .collect();
                Ok(Value::from(items?))
            }
            ValueKind::Map => {
                let pair = |key: Value| {
                    let item = value.get_item(&key).map_err(|e| e.to_string())?;
                    Ok((key, self.escape_below(&item, depth)?))
                };
                let pairs: Result<Vec<(Value, Value)>, String> = iterate()?.map(pair).collect();
                Ok(pairs?.into_iter().collect())
            }
            _ => Ok(value.clone()),
        }
    }

    fn escape_text(&self, text: &str) -> Result<Value, String> {
        if holds_marks(text) {
            return Err("holds one of the characters U+10FFFB to U+10FFFD".to_owned());
        }
        let mut escaped = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            escaped.push(c);
            if self.at_start(&text[at..]).is_some() {
                escaped.push(ESCAPE);
            }
        }
        Ok(Value::from(escaped))
    }

    /// Divides a rendered text at special tokens; `learned` are ranges of it, in order.
    pub(super) fn split(&self, text: &str, learned: &[Range<usize>]) -> Vec<TextPart> {
        let mut borders = learned.iter().flat_map(|l| [l.start, l.end]).peekable();
        let mut parts = Vec::new();
        let mut open = TextPart::new(false);
        let mut learn = false;
        let mut at = 0;
        while at < text.len() {
            while borders.next_if(|border| *border <= at).is_some() {
                learn = !learn;
                open.change(learn);
            }
            let rest = &text[at..];
            if let Some((special, id)) = self.at_start(rest) {
                let full = std::mem::replace(&mut open, TextPart::new(learn));
                parts.extend(full.into_part());
                parts.push(TextPart::Special(*id, learn));
                at += special.len();
                continue;
            }
            let Some(c) = rest.chars().next() else { break };
            if c != ESCAPE {
                open.text.push(c);
            }
            at += c.len_utf8();
        }
        parts.extend(open.into_part());
        parts
    }
}

/// A text that is being collected.
struct OpenText {
    text: String,
    learn: bool,
    changes: Vec<usize>,
}

impl TextPart {
    #[expect(
        clippy::new_ret_no_self,
        reason = "the collected text becomes a part later"
    )]
    fn new(learn: bool) -> OpenText {
        OpenText {
            text: String::new(),
            learn,
            changes: Vec::new(),
        }
    }
}

impl OpenText {
    fn change(&mut self, learn: bool) {
        if self.text.is_empty() {
            self.learn = learn;
        } else if self.changes.last() == Some(&self.text.len()) {
            self.changes.pop();
        } else {
            self.changes.push(self.text.len());
        }
    }

    fn into_part(mut self) -> Option<TextPart> {
        // A change at the end of the text belongs to the next part.
        let end = self.text.len();
        self.changes.pop_if(|at| *at == end);
        (!self.text.is_empty()).then_some(TextPart::Text {
            text: self.text,
            learn: self.learn,
            changes: self.changes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> SpecialTokens {
        let list = [("<a>", 1), ("<a>>", 2), ("[B]", 3)];
        SpecialTokens::new(&list.map(|(text, id)| (text.to_owned(), id)))
    }

    #[test]
    fn special_tokens_in_messages_stay_text() {
        let json = r#"{"x":["<a>>[B] [B","plain"],"n":3}"#;
        let value: Value = serde_json::from_str(json).unwrap();
        let escaped = specials().escape_special_tokens(&value).unwrap();
        let text = escaped.get_attr("x").unwrap().get_item_by_index(0).unwrap();
        let rendered = format!("<a>{text}[B]");
        let part = |text: &str| TextPart::Text {
            text: text.to_owned(),
            learn: false,
            changes: Vec::new(),
        };
        let parts = specials().split(&rendered, &[]);
        let expected = [
            TextPart::Special(1, false),
            part("<a>>[B] [B"),
            TextPart::Special(3, false),
        ];
        assert_eq!(parts, expected);
        assert_eq!(escaped.get_attr("n").unwrap(), Value::from(3));
        let odd = Value::from(ESCAPE.to_string());
        specials().escape_special_tokens(&odd).unwrap_err();
    }

    #[test]
    fn learned_text_may_begin_anywhere() {
        let parts = specials().split("xy<a>zw", &[1..2, 5..6]);
        let text = |text: &str, learn, changes: &[usize]| TextPart::Text {
            text: text.to_owned(),
            learn,
            changes: changes.to_vec(),
        };
        let expected = [
            text("xy", false, &[1]),
            TextPart::Special(1, false),
            text("zw", true, &[1]),
        ];
        assert_eq!(parts, expected);
    }
}
