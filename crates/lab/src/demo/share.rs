//! The rows that one producer makes of its documents, in the order of docs/order.md, computed by the checker itself.

use super::order::{self, DemoShuffle, Document};
use super::shape::Shape;

/// One producer's share of the documents as tokens.
pub(crate) struct Share {
    tokens: Vec<u32>,
    /// The ends of documents in `tokens`.
    ends: Vec<usize>,
    shape: Shape,
    shuffle: DemoShuffle,
    /// Number of the next batch.
    next: usize,
    /// The rows of the next batch, as numbers in the order of their making.
    rows: Vec<usize>,
    /// Whether each row was given.
    given: Vec<bool>,
}

impl Share {
    pub(crate) fn new(documents: &[Document], shape: Shape, shuffle: DemoShuffle) -> Self {
        let mut end = 0;
        let ends = documents.iter().map(|document| {
            end += document.len();
            end
        });
        let mut share = Self {
            ends: ends.collect(),
            tokens: documents.concat(),
            shape,
            shuffle,
            next: 0,
            rows: Vec::new(),
            given: Vec::new(),
        };
        share.given = vec![false; share.batches() * shape.rows()];
        share.rows = share.rows_of_next();
        share
    }

    fn batches(&self) -> usize {
        self.tokens.len().saturating_sub(1) / self.shape.advance()
    }

    /// Returns the number of batches that did not come yet.
    pub(crate) fn left(&self) -> usize {
        self.batches() - self.next.min(self.batches())
    }

    /// Returns whether `slices` hold exactly the next batch.
    pub(crate) fn is_next(&self, slices: &[&[u32]]) -> bool {
        if self.left() == 0 || slices.len() != self.shape.slices {
            return false;
        }
        let length = self.shape.seq_len + 1;
        let mut rows = self.rows.iter();
        slices.iter().all(|slice| {
            slice.len() == self.shape.rows_per_slice * length
                && slice.chunks_exact(length).all(|tokens| {
                    let at = rows.next().map_or(0, |row| row * self.shape.seq_len);
                    tokens == &self.tokens[at..at + length]
                })
        })
    }

    /// Counts the next batch as given.
    pub(crate) fn give(&mut self) {
        for row in &self.rows {
            self.given[*row] = true;
        }
        self.next += 1;
        self.rows = self.rows_of_next();
    }

    /// Returns the number of documents of which all rows were given.
    pub(crate) fn whole_documents(&self) -> u64 {
        let begins = std::iter::once(&0).chain(&self.ends);
        let whole = begins.zip(&self.ends).filter(|(begin, end)| {
            // The last token of a row is the first one of the next too.
            let last = end.saturating_sub(2).max(**begin) / self.shape.seq_len;
            let rows = begin.div_euclid(self.shape.seq_len)..=last;
            rows.into_iter()
                .all(|row| self.given.get(row) == Some(&true))
        });
        whole.count() as u64
    }

    /// Returns the rows of the next batch: a window's rows are permuted together.
    fn rows_of_next(&self) -> Vec<usize> {
        if self.left() == 0 {
            return Vec::new();
        }
        let window = self.shuffle.rows;
        let first = self.next / window * window;
        let batches = window.min(self.batches() - first);
        let rows = self.shape.rows();
        let order = order::row_order(self.shuffle.seed, first, batches * rows);
        let begin = (self.next - first) * rows;
        order[begin..begin + rows]
            .iter()
            .map(|row| first * rows + row)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        slices: 2,
        rows_per_slice: 1,
        seq_len: 2,
        producers: 1,
    };

    /// Returns a share of 13 tokens, three batches, with windows of two.
    fn share() -> Share {
        let shuffle = DemoShuffle {
            seed: 1,
            window: 1,
            rows: 2,
        };
        let documents: [Vec<u32>; 2] = [(0..7).collect(), (7..13).collect()];
        Share::new(&documents, SHAPE, shuffle)
    }

    /// Returns a batch of rows that begin with these tokens.
    fn batch(begins: &[u32]) -> Vec<Vec<u32>> {
        begins.iter().map(|b| (*b..*b + 3).collect()).collect()
    }

    fn is_next(share: &Share, rows: &[Vec<u32>]) -> bool {
        share.is_next(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn a_window_gives_each_row_once_in_the_order_of_its_key() {
        let mut share = share();
        let order = order::row_order(1, 0, 4);
        assert_ne!(order, [0, 1, 2, 3]);
        let begins: Vec<u32> = order.iter().map(|row| *row as u32 * 2).collect();
        assert!(!is_next(&share, &batch(&[0, 2])), "as packed");
        for begins in begins.chunks(2) {
            assert!(is_next(&share, &batch(begins)));
            share.give();
        }
        assert_eq!((share.left(), share.whole_documents()), (1, 1));
        let last = order::row_order(1, 2, 2);
        let begins: Vec<u32> = last.iter().map(|row| 8 + *row as u32 * 2).collect();
        assert!(is_next(&share, &batch(&begins)), "a window of one batch");
        share.give();
        assert_eq!((share.left(), share.whole_documents()), (0, 2));
        assert!(!is_next(&share, &batch(&begins)));
    }
}
