//! A document that `--check` can read, as it is trained.

use std::collections::BTreeMap;

use super::balance::Size;
use crate::config::{DocumentKind, ProducerConfig};
use crate::packing::Content;
use crate::sources::{Format, InputFile, Reason, Unit, UnitKind};
use crate::transform::json::Beyond;
use crate::transform::text::decode;
use crate::transform::{DocumentTransform, Transformed, shards};

/// Most characters of the document that is shown.
const EXCERPT_CHARS: usize = 200;

/// Returns how many files are read in which form.
pub(super) fn counted(format: Format, files: &[InputFile]) -> String {
    let mut forms: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        *forms
            .entry(format.for_file(&file.pin.name).words())
            .or_default() += 1;
    }
    let one = forms.len() == 1;
    let each = forms.into_iter().map(|(words, n)| {
        if one {
            words.to_owned()
        } else {
            format!("{n} {words}")
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the beginning of a text in one line.
pub(super) fn excerpt(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(EXCERPT_CHARS) {
        if c.is_control() || matches!(c, '"' | '\\' | '\u{2028}' | '\u{2029}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        out.push_str(" ...");
    }
    out
}

/// A document that can be read.
pub(super) struct Readable {
    /// Number of its tokens; `None` for arrays and where there is no tokenizer.
    pub(super) tokens: Option<usize>,
    /// Its text as it is trained; `None` where it has none, or there is no tokenizer.
    pub(super) text: Option<String>,
    /// Its unit's size in a stream, with the other documents of the unit.
    pub(super) stored: Stored,
    beyond: Beyond,
}

/// The size of the documents of a unit in a stream.
#[derive(Debug, Default, Clone)]
pub(super) struct Stored {
    /// Tokens with end tokens; 1 for a document without any, since it fills one place.
    pub(super) tokens: u64,
    /// Bytes of their arrays.
    pub(super) arrays: u64,
    pub(super) documents: Vec<Size>,
}

impl Stored {
    fn add(&mut self, made: &Transformed) {
        self.tokens += tokens(&made.content).map_or(1, |tokens| tokens as u64 + 1);
        self.arrays += array_bytes(made);
        self.documents.push(size(made));
    }
}

impl Readable {
    pub(super) fn beyond_words(&self) -> &'static str {
        match (self.beyond.numbers, self.beyond.surrogates) {
            (0, 0) => "",
            (_, 0) => ", and NaN or an infinite number, read as Python reads it",
            _ => ", and halves of surrogate pairs, each of which becomes U+FFFD",
        }
    }
}

/// Returns the size of a document of tokens.
fn size(made: &Transformed) -> Size {
    let count = |tokens: &[u32]| u32::try_from(tokens.len()).unwrap_or(u32::MAX);
    let (tokens, second) = match &made.content {
        Content::Tokens(tokens) => (count(tokens).saturating_add(1), 0),
        Content::Turns(tokens, _) => (count(tokens), 0),
        Content::Pair(pair) => (count(&pair[0].tokens), count(&pair[1].tokens)),
        Content::Sample(_) => (0, 0),
    };
    Size {
        tokens,
        second,
        arrays: made.arrays.iter().map(|array| array.len() as u64).collect(),
    }
}

fn array_bytes(made: &Transformed) -> u64 {
    let of_sample = match &made.content {
        Content::Sample(arrays) => &arrays[..],
        _ => &[],
    };
    let all = of_sample.iter().chain(&made.arrays);
    all.map(|array| array.len() as u64).sum()
}

/// Makes the document of a unit, as far as that is possible without the tokenizer.
pub(super) fn document(
    unit: Unit,
    config: &ProducerConfig,
    transform: Option<&DocumentTransform>,
) -> Result<Option<Readable>, Reason> {
    match transform {
        Some(transform) => transformed(unit, config, transform),
        None => untransformed(unit, config),
    }
}

/// Makes the documents of a unit, and returns the first one.
fn transformed(
    unit: Unit,
    config: &ProducerConfig,
    transform: &DocumentTransform,
) -> Result<Option<Readable>, Reason> {
    let field = &config.source.field;
    let mut prepared = transform.prepare(field, vec![unit]);
    let Some(Some(prepared)) = prepared.units.pop() else {
        return Ok(None);
    };
    let (mut first, mut stored) = (None, Stored::default());
    let of = 1 + prepared.more.len();
    let units = std::iter::once(prepared.unit).chain(prepared.more);
    for (number, unit) in (1..).zip(units) {
        let made = transform.transform(field, unit);
        if let Some(made) = made.map_err(|why| why.of_several(number, of))? {
            stored.add(&made);
            first.get_or_insert(made);
        }
    }
    Ok(first.map(|made| readable(&made, stored, transform)))
}

/// Returns the number of tokens, both answers of a pair together; `None` for arrays.
fn tokens(content: &Content) -> Option<usize> {
    match content {
        Content::Tokens(tokens) | Content::Turns(tokens, _) => Some(tokens.len()),
        Content::Pair(pair) => Some(pair.iter().map(|answer| answer.tokens.len()).sum()),
        Content::Sample(_) => None,
    }
}

/// Returns a document as it is trained.
fn readable(made: &Transformed, stored: Stored, transform: &DocumentTransform) -> Readable {
    let text = match &made.content {
        Content::Tokens(tokens) | Content::Turns(tokens, _) => tokens,
        Content::Pair(pair) => &pair[0].tokens,
        Content::Sample(_) => &Vec::new(),
    };
    let some = &text[..text.len().min(EXCERPT_CHARS)];
    let all = some.len() == text.len();
    let text = transform.decode(some).filter(|text| !text.is_empty());
    Readable {
        tokens: tokens(&made.content),
        stored,
        text: text.map(|text| if all { text } else { text + " ..." }),
        beyond: made.beyond,
    }
}

/// Reads the text of a unit, where it is one, without making tokens of it.
fn untransformed(unit: Unit, config: &ProducerConfig) -> Result<Option<Readable>, Reason> {
    let is_text = config.documents() == DocumentKind::Text;
    let field = &config.source.field;
    let (field, unit) = if is_text && unit.kind == UnitKind::Sample {
        shards::document(field, false, unit)
    } else {
        (field.as_str(), unit)
    };
    let (kind, first) = (unit.kind, unit.place.unit == 0);
    let raw = unit.raw?;
    let some = if is_text {
        decode(kind, field, first, &raw, |_| ())?.is_some()
    } else {
        true
    };
    Ok(some.then(|| Readable {
        tokens: None,
        text: None,
        stored: Stored::default(),
        beyond: Beyond::default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_shown_in_one_short_line() {
        assert_eq!(
            excerpt("a\n\"b\" \u{1b}[1mä\u{2028}"),
            r#"a\n\"b\" \u{1b}[1mä\u{2028}"#
        );
        assert_eq!(
            excerpt(&"x".repeat(201)),
            format!("{} ...", "x".repeat(200))
        );
    }
}
