//! Parts of a row for context parallelism: all ranks read the same rows, and each uses its own columns in
//! place. Daemon and store are not involved.

use std::ops::Range;

use crate::ClientError;

/// The way in which rows are divided among context-parallel ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContextCut {
    #[default]
    Full,
    /// One part per rank.
    Contiguous,
    /// Two parts per rank, from both ends, so that causal attention costs all ranks the same.
    Zigzag,
}

impl ContextCut {
    /// Returns the number of equal parts of a row for `ranks` ranks.
    fn parts(self, ranks: usize) -> Option<usize> {
        match self {
            Self::Full => Some(1),
            Self::Contiguous => Some(ranks),
            Self::Zigzag => ranks.checked_mul(2),
        }
    }
}

/// Returns the columns of rank `rank` of `ranks` in rows of `columns`: one range, or two in ascending order.
///
/// Count the columns of *inputs*, which are the stream's `seq_len`, one less than a row of `tokens`.
/// Apply the same ranges to inputs (`&row[..seq_len]`) and labels (`&row[1..]`): labels are
/// shifted before the row is divided:
///
/// ```
/// use batchweave_client::{ContextCut, context_columns};
///
/// # fn main() -> Result<(), batchweave_client::ClientError> {
/// let tokens = [10, 11, 12, 13, 14, 15, 16, 17, 18];
/// let (inputs, labels) = (&tokens[..8], &tokens[1..]);
/// let columns = context_columns(ContextCut::Zigzag, 0, 2, inputs.len())?;
/// let of = |row: &[i32]| columns.iter().flat_map(|part| row[part.clone()].to_vec()).collect();
/// let (inputs, labels): (Vec<i32>, Vec<i32>) = (of(inputs), of(labels));
/// assert_eq!(inputs, [10, 11, 16, 17]);
/// assert_eq!(labels, [11, 12, 17, 18]);
/// # Ok(())
/// # }
/// ```
///
/// `cu_seqlens` is not divided: its borders are positions in the whole row, the same for all ranks.
pub fn context_columns(
    cut: ContextCut,
    rank: usize,
    ranks: usize,
    columns: usize,
) -> Result<Vec<Range<usize>>, ClientError> {
    if rank >= ranks {
        return Err(ClientError::BadMesh(format!(
            "context-parallel rank {rank} of {ranks}; ranks are counted from 0"
        )));
    }
    let parts = cut
        .parts(ranks)
        .filter(|n| columns.is_multiple_of(*n))
        .ok_or_else(|| does_not_fit(cut, ranks, columns))?;
    let width = columns / parts;
    let part = |n: usize| n * width..(n + 1) * width;
    Ok(match cut {
        ContextCut::Full => vec![part(0)],
        ContextCut::Contiguous => vec![part(rank)],
        ContextCut::Zigzag => vec![part(rank), part(parts - 1 - rank)],
    })
}

fn does_not_fit(cut: ContextCut, ranks: usize, columns: usize) -> ClientError {
    let fits = |n: &usize| {
        cut.parts(*n)
            .is_some_and(|parts| columns.is_multiple_of(parts))
    };
    // Rows have at most millions of columns, and this runs only before an error.
    let fit: Vec<String> = (1..=columns).filter(fits).map(|n| n.to_string()).collect();
    let fit = if fit.is_empty() {
        "none".to_owned()
    } else {
        fit.join(", ")
    };
    ClientError::BadMesh(format!(
        "cannot divide rows of {columns} columns into equal parts ({cut:?} for {ranks} ranks); numbers of \
         ranks that fit: {fit}"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_ranks_are_the_row_and_cost_the_same() {
        for ranks in 1..=6 {
            for width in 1..=3 {
                let columns = 2 * ranks * width;
                let of = |cut, rank| context_columns(cut, rank, ranks, columns).unwrap();
                for cut in [ContextCut::Contiguous, ContextCut::Zigzag] {
                    let parts = (0..ranks).flat_map(|rank| of(cut, rank));
                    let mut all: Vec<usize> = parts.flatten().collect();
                    all.sort_unstable();
                    assert_eq!(
                        all,
                        (0..columns).collect::<Vec<_>>(),
                        "{cut:?} {ranks} {width}"
                    );
                }
                // The cost of causal attention: each column attends to those up to it.
                let cost = |rank| {
                    of(ContextCut::Zigzag, rank)
                        .into_iter()
                        .flatten()
                        .sum::<usize>()
                };
                assert!((0..ranks).all(|rank| cost(rank) == cost(0)));
                let whole = 0..columns;
                assert_eq!(of(ContextCut::Full, ranks - 1), [whole]);
            }
        }
        let third = context_columns(ContextCut::Zigzag, 1, 3, 24).unwrap();
        assert_eq!(third, [4..8, 16..20]);
    }

    #[test]
    fn rows_that_cannot_be_divided_are_refused_with_the_numbers_that_fit() {
        let refusal = |cut, rank, ranks, columns| {
            let error = context_columns(cut, rank, ranks, columns).unwrap_err();
            assert_eq!(error.name(), "bad_mesh");
            error.to_string()
        };
        let text = refusal(ContextCut::Zigzag, 0, 5, 24);
        assert!(
            text.contains("ranks that fit: 1, 2, 3, 4, 6, 12;"),
            "{text}"
        );
        let text = refusal(ContextCut::Contiguous, 0, 5, 24);
        assert!(text.contains("fit: 1, 2, 3, 4, 6, 8, 12, 24;"), "{text}");
        let text = refusal(ContextCut::Zigzag, 0, 1, 25);
        assert!(text.contains("fit: none;"), "{text}");
        refusal(ContextCut::Zigzag, 0, usize::MAX, 24);
        for (rank, ranks) in [(2, 2), (0, 0)] {
            let text = refusal(ContextCut::Full, rank, ranks, 24);
            assert!(text.contains("counted from 0"), "{text}");
        }
    }
}
