//! The bins of a slice of a balanced stream (docs/format.md, "Bins").

use std::ops::Range;

use super::layout::{Array, Dtype, Layout};

/// Returns the tokens of each bin of a slice with this layout; `None` for slices of rows, and where the borders do not divide
/// the tokens.
pub fn bin_ranges(layout: &Layout, payload: &[u8]) -> Option<Vec<Range<usize>>> {
    let tokens = layout.array("tokens")?;
    let [count] = tokens.shape[..] else {
        return None;
    };
    let documents = borders(layout.array("documents")?, payload)?;
    let bins = borders(layout.array("bins")?, payload)?;
    let divides = |borders: &[usize], end: usize| {
        borders.first() == Some(&0) && borders.is_sorted() && borders.last() == Some(&end)
    };
    let last = documents.len().checked_sub(1)?;
    if !divides(&documents, usize::try_from(count).ok()?) || !divides(&bins, last) {
        return None;
    }
    let ends = bins.iter().map(|bin| documents.get(*bin).copied());
    let ends: Vec<usize> = ends.collect::<Option<_>>()?;
    Some(ends.windows(2).map(|pair| pair[0]..pair[1]).collect())
}

fn borders(array: &Array, payload: &[u8]) -> Option<Vec<usize>> {
    if array.dtype != Dtype::I32 {
        return None;
    }
    let start = usize::try_from(array.offset).ok()?;
    let data = payload.get(start..start.checked_add(usize::try_from(array.bytes).ok()?)?)?;
    let (items, _) = data.as_chunks::<4>();
    let border = |item: &[u8; 4]| usize::try_from(i32::from_le_bytes(*item)).ok();
    items.iter().map(border).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_ranges_of_tokens() {
        let layout = Layout::new([
            ("tokens", Dtype::U16, vec![9]),
            ("documents", Dtype::I32, vec![4]),
            ("bins", Dtype::I32, vec![4]),
        ])
        .unwrap();
        let bytes = |numbers: [i32; 4]| numbers.map(i32::to_le_bytes).concat();
        let found = |documents, bins| {
            let (documents, bins) = (bytes(documents), bytes(bins));
            let data: [(&str, &[u8]); 3] = [
                ("tokens", &[0; 18]),
                ("documents", &documents),
                ("bins", &bins),
            ];
            bin_ranges(&layout, &layout.encode(&data).unwrap())
        };
        let expected = Some(vec![0..5, 5..5, 5..9]);
        assert_eq!(found([0, 3, 5, 9], [0, 2, 2, 3]), expected);
        for (documents, bins) in [
            ([0, 3, 5, 9], [0, 2, 2, 4]),
            ([0, 3, 5, 9], [0, 2, 1, 3]),
            ([0, 3, 5, 9], [1, 2, 2, 3]),
            ([0, 3, 5, 8], [0, 2, 2, 3]),
            ([0, 5, 3, 9], [0, 2, 2, 3]),
            ([-1, 3, 5, 9], [0, 2, 2, 3]),
        ] {
            assert_eq!(found(documents, bins), None, "{documents:?} {bins:?}");
        }
        let rows = Layout::tokens(Dtype::U16, 1, 4).unwrap();
        assert_eq!(
            bin_ranges(&rows, &rows.encode_tokens(&[0; 4]).unwrap()),
            None
        );
    }
}
