//! Micro-batches of a balanced stream: the bins of its slices, in place. docs/format.md, "Bins", has the stored form.

use std::ops::Range;

use batchweave_arena::Element;

use crate::batch::{Batch, Slice};
use crate::error::ClientError;

/// Documents side by side, without padding: one bin of one slice.
#[derive(Debug, Clone)]
pub struct MicroBatch<'a> {
    slice: &'a Slice,
    index: usize,
    /// Its tokens among those of the slice.
    tokens: Range<usize>,
    /// Its documents among those of the slice.
    documents: Range<usize>,
    /// Borders of its documents among the tokens of the slice, one more than documents.
    borders: &'a [i32],
}

impl Batch {
    /// Returns the micro-batches of the rank: of several slices those of one index follow one another, so that every number
    /// of ranks trains the same micro-batches. An error for streams of fixed rows, whose rows are the caller's to divide.
    pub fn micro_batches(&self) -> Result<Vec<MicroBatch<'_>>, ClientError> {
        let mut by_slice = Vec::with_capacity(self.slices.len());
        for slice in &self.slices {
            by_slice.push(of_slice(slice)?);
        }
        let most = by_slice.iter().map(Vec::len).max().unwrap_or(0);
        let mut all = Vec::with_capacity(most * by_slice.len());
        let mut rest: Vec<_> = by_slice.into_iter().map(Vec::into_iter).collect();
        for _ in 0..most {
            all.extend(rest.iter_mut().filter_map(Iterator::next));
        }
        Ok(all)
    }

    /// Returns the number of learned tokens of the whole global batch, so that a rank scales its loss without a reduction over
    /// all. An error for streams of fixed rows.
    pub fn loss_tokens(&self) -> Result<i64, ClientError> {
        let slice = self.slices.first();
        let stored = slice
            .map(|slice| slice.array::<i64>("loss_tokens"))
            .transpose()?;
        Ok(stored
            .and_then(|tokens| tokens.first())
            .copied()
            .unwrap_or(0))
    }
}

fn of_slice(slice: &Slice) -> Result<Vec<MicroBatch<'_>>, ClientError> {
    let documents = slice.array::<i32>("documents")?;
    let bins = slice.array::<i32>("bins")?;
    let found = bins_of(documents, bins).ok_or_else(|| ClientError::BadBins {
        slice: slice.index(),
    })?;
    Ok((0..)
        .zip(found)
        .map(|(index, (documents_of, tokens))| MicroBatch {
            slice,
            index,
            tokens,
            borders: &documents[documents_of.start..=documents_of.end],
            documents: documents_of,
        })
        .collect())
}

/// Returns the documents and tokens of each bin; `None` when the borders do not ascend from 0.
fn bins_of(documents: &[i32], bins: &[i32]) -> Option<Vec<(Range<usize>, Range<usize>)>> {
    let ascend = |borders: &[i32]| borders.first() == Some(&0) && borders.is_sorted();
    let whole = usize::try_from(*bins.last()?).ok()? + 1 == documents.len();
    if !ascend(documents) || !ascend(bins) || !whole {
        return None;
    }
    let at = |border: &i32| usize::try_from(*border).ok();
    bins.windows(2)
        .map(|pair| {
            let own = at(&pair[0])?..at(&pair[1])?;
            let tokens = at(documents.get(own.start)?)?..at(documents.get(own.end)?)?;
            Some((own, tokens))
        })
        .collect()
}

impl<'a> MicroBatch<'a> {
    /// Returns the slice that holds it.
    pub fn slice(&self) -> &'a Slice {
        self.slice
    }

    /// Returns its index among the micro-batches of its slice; those of one index cost about the same.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns its elements of an array with one per token: `tokens`, `loss_mask`, a column. Inputs are all but the last, labels all
    /// but the first. `T` must be the array's type.
    pub fn array<T: Element>(&self, name: &str) -> Result<&'a [T], ClientError> {
        let whole = self.slice.array::<T>(name)?;
        whole
            .get(self.tokens.clone())
            .ok_or_else(|| ClientError::BadBins {
                slice: self.slice.index(),
            })
    }

    /// Returns its documents among those of the slice, for arrays with `NAME.offsets`.
    pub fn documents(&self) -> Range<usize> {
        self.documents.clone()
    }

    /// Returns the borders of its documents among its inputs, from 0, as variable-length attention takes them. A last document
    /// of which only the label is left has none.
    pub fn cu_seqlens(&self) -> Vec<i32> {
        let first = self.borders.first().copied().unwrap_or(0);
        let inputs = i32::try_from(self.tokens.len()).unwrap_or(i32::MAX) - 1;
        let starts = self.borders.iter().zip(self.borders.iter().skip(1));
        let of_inputs = starts.filter(|(start, _)| **start - first < inputs);
        let ends = of_inputs.map(|(_, end)| (*end - first).min(inputs));
        std::iter::once(0).chain(ends).collect()
    }

    /// Returns the length of its longest document among the inputs.
    pub fn max_seqlen(&self) -> i32 {
        let borders = self.cu_seqlens();
        let lengths = borders.windows(2).map(|pair| pair[1] - pair[0]);
        lengths.max().unwrap_or(0)
    }

    /// Returns its cost in tokens, by which the producer made the micro-batches of one index even.
    pub fn cost(&self) -> Result<f32, ClientError> {
        let costs = self.slice.array::<f32>("costs")?;
        Ok(costs.get(self.index).copied().unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_their_documents_and_tokens() {
        let bins = bins_of(&[0, 3, 3, 7, 9], &[0, 2, 2, 4]).unwrap();
        assert_eq!(bins, [(0..2, 0..3), (2..2, 3..3), (2..4, 3..9)]);
        for (documents, bins) in [
            (&[0, 3, 2][..], &[0, 2][..]),
            (&[1, 3], &[0, 1]),
            (&[0, 3], &[0, 2]),
            (&[0, 3], &[]),
            (&[], &[0]),
            (&[0, 3, 5], &[0, 2, 1, 2]),
        ] {
            assert_eq!(bins_of(documents, bins), None, "{documents:?} {bins:?}");
        }
    }
}
