//! Normalizing as `Normalizer::Normalize` of the library does: rules of the model, spaces, and the space before
//! (or after) the text.

use super::charsmap::Charsmap;
use super::model::{Model, Use};
use super::trie::Trie;

/// U+2581, which stands for a space.
pub(super) const SPACE: &str = "\u{2581}";
const REPLACEMENT: &str = "\u{fffd}";

#[derive(Debug)]
pub(super) struct Normalizer {
    rules: Option<Charsmap>,
    /// Pieces that are one piece wherever a text has them, so no rule applies to them.
    user_defined: Option<Trie>,
    space: &'static [u8],
    dummy_prefix: bool,
    remove_extra: bool,
    as_suffix: bool,
}

impl Normalizer {
    pub(super) fn new(model: &Model) -> Result<Self, String> {
        let symbols = || model.pieces.iter().filter(|p| p.usage == Use::UserDefined);
        let keys = symbols().map(|piece| (piece.text.as_bytes(), 0));
        Ok(Self {
            rules: Charsmap::new(&model.charsmap)?,
            user_defined: symbols().next().is_some().then(|| Trie::new(keys)),
            space: if model.escape_spaces { SPACE } else { " " }.as_bytes(),
            dummy_prefix: model.dummy_prefix,
            remove_extra: model.remove_extra_spaces,
            as_suffix: model.space_as_suffix,
        })
    }

    /// Returns the length of the user-defined piece that `text` begins with.
    pub(super) fn user_defined(&self, text: &[u8]) -> Option<usize> {
        self.user_defined.as_ref()?.longest_prefix(text)
    }

    /// Returns what the beginning of `rest` becomes, and its length there. `rest` is not empty.
    fn prefix<'a>(&'a self, rest: &'a [u8]) -> (&'a [u8], usize) {
        if let Some(length) = self.user_defined(rest) {
            return (&rest[..length], length);
        }
        let rule = self
            .rules
            .as_ref()
            .and_then(|rules| rules.longest_rule(rest));
        if let Some((length, replacement)) = rule {
            return (replacement, length);
        }
        match first_character(rest) {
            Some(length) => (&rest[..length], length),
            None => (REPLACEMENT.as_bytes(), 1),
        }
    }

    /// Returns the text behind its first spaces, where the model removes them.
    fn without_first_spaces<'a>(&self, mut rest: &'a [u8]) -> &'a [u8] {
        while self.remove_extra && !rest.is_empty() {
            let (made, length) = self.prefix(rest);
            if made != b" " {
                break;
            }
            rest = &rest[length..];
        }
        rest
    }

    /// Adds what a part of the text becomes, with the model's spaces.
    fn put(&self, made: &[u8], normalized: &mut Vec<u8>) {
        for byte in made {
            match byte {
                b' ' => normalized.extend_from_slice(self.space),
                other => normalized.push(*other),
            }
        }
    }

    /// Returns the normalized text, which is UTF-8.
    pub(super) fn normalize(&self, text: &str) -> Vec<u8> {
        let mut rest = self.without_first_spaces(text.as_bytes());
        let mut normalized = Vec::new();
        if rest.is_empty() {
            return normalized;
        }
        // Room for a space in every sixth character, which is usual.
        normalized.reserve(rest.len() + rest.len() / 3 + 2 * SPACE.len());
        if self.dummy_prefix && !self.as_suffix {
            normalized.extend_from_slice(self.space);
        }
        let mut after_space = self.remove_extra;
        while !rest.is_empty() {
            let (mut made, length) = self.prefix(rest);
            while after_space && let Some(shorter) = made.strip_prefix(b" ") {
                made = shorter;
            }
            if let Some(last) = made.last() {
                self.put(made, &mut normalized);
                after_space = *last == b' ';
            }
            rest = &rest[length..];
            after_space &= self.remove_extra;
        }
        if self.remove_extra {
            while normalized.ends_with(self.space) {
                normalized.truncate(normalized.len() - self.space.len());
            }
        }
        if self.dummy_prefix && self.as_suffix {
            normalized.extend_from_slice(self.space);
        }
        normalized
    }
}

/// Returns the length of the first character; `None` if the bytes begin within one, as after a rule that ends there.
fn first_character(text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    let length = character_length(first);
    let is_whole = first & 0xc0 != 0x80 && text.len() >= length;
    is_whole.then_some(length)
}

/// Returns the length of a character by its first byte.
pub(super) fn character_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}
