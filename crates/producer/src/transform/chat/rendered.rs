//! A rendered conversation, and the marks that a template's generation blocks leave in it.

use std::ops::Range;

use super::special_tokens::{GENERATION_BEGINS, GENERATION_ENDS};
use super::wrong::wrong;
use crate::sources::Reason;

/// A text with escaped special tokens, and the ranges of its bytes that are learned.
pub(super) type Rendered = (String, Vec<Range<usize>>);

/// Removes the marks of generation blocks from the text. Returns it with the ranges between the marks.
pub(super) fn unmark(text: &str) -> Result<Rendered, Reason> {
    let mut clean = String::with_capacity(text.len());
    let mut learned = Vec::new();
    let mut began = None;
    for c in text.chars() {
        match (c, began) {
            (GENERATION_BEGINS, None) => began = Some(clean.len()),
            (GENERATION_ENDS, Some(from)) => {
                learned.push(from..clean.len());
                began = None;
            }
            (GENERATION_BEGINS | GENERATION_ENDS, _) => {
                return Err(wrong("the template's generation blocks do not match"));
            }
            _ => clean.push(c),
        }
    }
    if began.is_some() {
        return Err(wrong("the template's last generation block does not end"));
    }
    Ok((clean, learned))
}
