//! A document's text by its loss mask: runs of tokens that are learned, and of tokens that are not.

use batchweave_core::tgb::{Dtype, Layout};
use serde::Serialize;

/// Consecutive tokens of a document with one value of the loss mask.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Run {
    learned: bool,
    tokens: u64,
    text: String,
}

/// Returns the values of `loss_mask`, one per token of rows of `width`; `None` where the slice has no such array.
pub(super) fn mask<'p>(layout: &Layout, payload: &'p [u8], width: usize) -> Option<&'p [u8]> {
    let array = layout.array("loss_mask")?;
    let per_token = usize::try_from(*array.shape.last()?) == Ok(width);
    if array.dtype != Dtype::U8 || !per_token {
        return None;
    }
    let start = usize::try_from(array.offset).ok()?;
    payload.get(start..start + usize::try_from(array.bytes).ok()?)
}

/// Divides tokens where their mask changes.
pub(super) fn split(tokens: &[u32], mask: &[u8], text: impl Fn(&[u32]) -> String) -> Vec<Run> {
    let mut rest = tokens;
    let runs = mask.chunk_by(|a, b| (*a == 0) == (*b == 0));
    let run = |of_mask: &[u8]| {
        let own = rest.split_off(..of_mask.len().min(rest.len()))?;
        Some(Run {
            learned: *of_mask.first()? != 0,
            tokens: own.len() as u64,
            text: text(own),
        })
    };
    runs.map_while(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_at(tokens: &[u32], mask: &[u8]) -> Vec<(bool, u64, String)> {
        let runs = split(tokens, mask, |own| format!("{own:?}"));
        runs.into_iter()
            .map(|run| (run.learned, run.tokens, run.text))
            .collect()
    }

    #[test]
    fn runs_end_where_the_mask_changes() {
        let found = split_at(&[5, 6, 7, 8], &[0, 0, 1, 2]);
        let expected = [(false, 2, "[5, 6]".into()), (true, 2, "[7, 8]".into())];
        assert_eq!(found, expected);
        assert_eq!(split_at(&[5], &[1]), [(true, 1, "[5]".into())]);
        assert_eq!(split_at(&[], &[]), []);
    }

    #[test]
    fn a_mask_of_another_length_loses_no_token_that_it_covers() {
        assert_eq!(split_at(&[5, 6], &[0]), [(false, 1, "[5]".into())]);
        assert_eq!(split_at(&[5], &[0, 0]), [(false, 1, "[5]".into())]);
    }
}
