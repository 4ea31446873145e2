//! Pairs for preference training: the preferred answer in one row, the rejected one in the next, each with its prompt.
//!
//! Both rows are in one slice, so that each rank has whole pairs: `rows_per_slice` is even. A row holds one conversation
//! from its first token on, and padding. The state after a batch points at its last document, which is then left out.

use std::collections::VecDeque;

use batchweave_core::provenance::{Form, Sources};

use super::{
    Answer, BatchContent, ColumnValues, Content, Document, Mismatch, PackedBatch, Packer, Point,
    Rows, Segment, Shape, Start, piece,
};

type WaitingPair = (Point, Box<[Answer; 2]>, Option<ColumnValues>);

/// The packer of pairs; see the header of this file.
#[derive(Debug)]
pub struct Pairs {
    shape: Shape,
    pad: u32,
    start: Start,
    waiting: VecDeque<WaitingPair>,
    ended: Option<Point>,
}

impl Pairs {
    /// Returns a packer that starts at `from` and fills rows up with `pad`.
    pub fn new(shape: Shape, pad: u32, from: Point) -> Self {
        Self {
            shape,
            pad,
            start: Start::new(from),
            waiting: VecDeque::new(),
            ended: None,
        }
    }

    /// Returns a batch of `count` waiting pairs, filled up with rows of padding.
    fn take(&mut self, count: usize) -> Option<PackedBatch> {
        let mut next = self.waiting.get(count.checked_sub(1)?)?.0;
        next.skip += 1;
        let width = self.shape.width();
        let mut rows = Rows {
            stride: width,
            ..Rows::default()
        };
        let mut pieces = Vec::new();
        let mut own = 0;
        let taken = self.waiting.drain(..count);
        let answers =
            taken.flat_map(|(at, pair, columns)| pair.map(|answer| (at, answer, columns.clone())));
        for (row, (at, answer, columns)) in answers.enumerate() {
            let tokens = answer.tokens.len();
            own += tokens as u64;
            pieces.push(piece(at, tokens as u64, true));
            rows.segments.push(Segment {
                row,
                start: 0,
                tokens,
                goes_on: false,
                document: (at.file, at.unit),
                columns,
                arrays: Vec::new(),
            });
            rows.tokens.extend(answer.tokens);
            rows.learned.extend(answer.learned);
            rows.tokens.resize((row + 1) * width, self.pad);
            rows.learned.resize((row + 1) * width, false);
        }
        rows.tokens.resize(self.shape.rows() * width, self.pad);
        rows.learned.resize(self.shape.rows() * width, false);
        let form = Form::Rows;
        Some(PackedBatch {
            content: BatchContent::Rows(rows),
            own,
            next: next.into(),
            sources: Sources { form, pieces },
        })
    }
}

impl Packer for Pairs {
    fn push(&mut self, document: Document) -> Result<(), Mismatch> {
        let Content::Pair(_) = &document.content else {
            return Ok(());
        };
        // A skip must be less than the number of items, so a pair counts as two: itself and its end.
        let skip = self.start.skip(&document, 2)?;
        let at = document.point();
        if let (Content::Pair(pair), 0) = (document.content, skip) {
            self.waiting.push_back((at, pair, document.columns));
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        self.take(self.shape.rows() / 2)
    }

    fn end(&mut self, end: Point) -> Result<(), Mismatch> {
        self.ended = Some(end);
        Ok(())
    }

    fn resume(&mut self) {
        self.ended = None;
    }

    fn rest(&mut self, _: bool) -> Option<PackedBatch> {
        let end = self.ended?;
        let batch = self.take(self.waiting.len())?;
        Some(PackedBatch {
            next: end.into(),
            ..batch
        })
    }

    fn blank(&mut self) -> PackedBatch {
        let width = self.shape.width();
        let rows = Rows::blank(self.shape.rows() * width, width, self.pad);
        PackedBatch::empty(rows, Form::Rows, self.ended)
    }

    fn waiting(&self) -> usize {
        let answers = self.waiting.iter().flat_map(|(_, pair, _)| pair.iter());
        answers.map(|answer| answer.tokens.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::Within;
    use crate::sources::Place;

    const SHAPE: Shape = Shape {
        slices: 2,
        rows_per_slice: 2,
        seq_len: 3,
    };

    fn answer(tokens: &[u32]) -> Answer {
        Answer {
            tokens: tokens.to_vec(),
            learned: (0..tokens.len()).map(|n| n > 0).collect(),
        }
    }

    fn document(unit: u64) -> Document {
        let first = 10 * (unit as u32 + 1);
        Document {
            pass: 0,
            place: Place {
                file: 0,
                unit,
                offset: 100 * unit,
            },
            within: Within::default(),
            content: Content::Pair(Box::new([answer(&[first, first + 1]), answer(&[first])])),
            columns: None,
            arrays: Vec::new(),
        }
    }

    fn tokens(batch: &PackedBatch) -> Vec<u32> {
        let BatchContent::Rows(rows) = &batch.content else {
            panic!("no rows")
        };
        assert_eq!((rows.tokens.len(), rows.stride), (16, 4));
        assert_eq!(rows.learned.len(), 16);
        let learned = (0..16).filter(|n| rows.learned[*n]);
        assert!(learned.into_iter().all(|n| rows.tokens[n] % 10 == 1));
        rows.tokens.clone()
    }

    /// Packs documents 0 to `end`, and from each batch's state again.
    #[test]
    fn a_pair_is_two_neighbouring_rows_and_packing_resumes_after_any_batch() {
        let pack = |from: Point, end: u64| {
            let mut packer = Pairs::new(SHAPE, 9, from);
            (from.unit..end).for_each(|unit| packer.push(document(unit)).unwrap());
            let mut batches: Vec<_> = std::iter::from_fn(|| packer.pop()).collect();
            packer.end(Point::pass(1)).unwrap();
            batches.extend(packer.rest(false));
            batches
        };
        let whole = pack(Point::default(), 5);
        let rows: Vec<_> = whole.iter().map(tokens).collect();
        let first = [10, 11, 9, 9, 10, 9, 9, 9, 20, 21, 9, 9, 20, 9, 9, 9];
        assert_eq!(rows[0], first);
        assert_eq!(rows[2][..8], [50, 51, 9, 9, 50, 9, 9, 9]);
        assert_eq!(rows[2][8..], [9; 8]);
        assert_eq!(whole.iter().map(|b| b.own).collect::<Vec<_>>(), [6, 6, 3]);
        assert_eq!(whole[2].next, Point::pass(1).into());
        for n in 0..2 {
            assert_eq!(pack(whole[n].next.at, 5), whole[n + 1..], "after batch {n}");
        }
        let pieces = &whole[0].sources.pieces;
        let units: Vec<_> = pieces
            .iter()
            .map(|p| (p.unit, p.items, p.new_row))
            .collect();
        let expected = [(0, 2, true), (0, 1, true), (1, 2, true), (1, 1, true)];
        assert_eq!(units, expected);
    }

    #[test]
    fn another_input_after_a_restart_is_refused() {
        let from = Point {
            skip: 1,
            ..document(1).point()
        };
        let mut packer = Pairs::new(SHAPE, 9, from);
        let why = packer.push(document(2)).unwrap_err().to_string();
        assert!(why.contains("line or row 2"), "{why}");
    }
}
