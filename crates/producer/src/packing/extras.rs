//! What trainers want to know beside the tokens: arrays of fixed shape, each optional.

use batchweave_core::tgb::{Array, Dtype};
use serde::{Deserialize, Serialize};

use super::{Rows, Segment, Shape};

/// One optional array of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extra {
    /// For each token the number of its document in the row, from 1; 0 is padding.
    SegmentIds,
    /// For each token its place in its segment, from 0.
    Positions,
    /// For each token 1 if it is to be learned as a label.
    LossMask,
    /// For each row where the segments of its inputs begin, and their end over and over; with it
    /// `num_segments`.
    CuSeqlens,
    /// For each token its document: file * 2^40 + line or row; -1 is padding.
    DocumentIds,
}

impl Extra {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::SegmentIds,
        Self::Positions,
        Self::LossMask,
        Self::CuSeqlens,
        Self::DocumentIds,
    ];

    /// Whether it is made from segments.
    pub fn needs_segments(self) -> bool {
        self != Self::LossMask
    }

    /// Its arrays.
    pub fn arrays(self, shape: Shape) -> Vec<(&'static str, Dtype, Vec<u64>)> {
        let rows = u64::from(shape.rows_per_slice);
        let tokens = vec![rows, shape.width() as u64];
        match self {
            Self::SegmentIds => vec![("segment_ids", Dtype::I32, tokens)],
            Self::Positions => vec![("positions", Dtype::I32, tokens)],
            Self::LossMask => vec![("loss_mask", Dtype::U8, tokens)],
            // The inputs are one less than a row's tokens, and n segments have n + 1 borders.
            Self::CuSeqlens => vec![
                ("cu_seqlens", Dtype::I32, tokens),
                ("num_segments", Dtype::I32, vec![rows]),
            ],
            Self::DocumentIds => vec![("document_ids", Dtype::I64, tokens)],
        }
    }
}

/// Fills `data`, which is zero, with `array` of slice `slice`.
pub(super) fn fill(array: &Array, data: &mut [u8], rows: &Rows, shape: Shape, slice: usize) {
    let per_slice = shape.rows_per_slice as usize;
    let wanted = slice * per_slice..(slice + 1) * per_slice;
    let from = rows.segments.partition_point(|s| s.row < wanted.start);
    let to = rows.segments.partition_point(|s| s.row < wanted.end);
    let segments = &rows.segments[from..to];
    let of_row = |s: &Segment| s.row - wanted.start;
    let width = shape.width();
    match array.name.as_str() {
        "segment_ids" => {
            let (mut row, mut id) = (usize::MAX, 0_i32);
            for s in segments {
                id = if s.row == row { id + 1 } else { 1 };
                row = s.row;
                put(data, of_row(s) * width + s.start, s.tokens, |_| {
                    id.to_le_bytes()
                });
            }
        }
        "positions" => {
            for s in segments {
                put(data, of_row(s) * width + s.start, s.tokens, |n| {
                    int(n).to_le_bytes()
                });
            }
        }
        "document_ids" => {
            data.fill(0xff);
            for s in segments {
                let id = (i64::from(s.document.0) << 40) | s.document.1.cast_signed();
                put(data, of_row(s) * width + s.start, s.tokens, |_| {
                    id.to_le_bytes()
                });
            }
        }
        "num_segments" => {
            for row in wanted.clone() {
                let inputs = int(inputs(segments, row, shape).count());
                put(data, row - wanted.start, 1, |_| inputs.to_le_bytes());
            }
        }
        "cu_seqlens" => {
            for row in wanted.clone() {
                let ends = inputs(segments, row, shape).map(|(_, end)| end);
                let ends: Vec<i32> = std::iter::once(0).chain(ends).collect();
                let last = ends.last().copied().unwrap_or_default();
                let at = |n: usize| ends.get(n).copied().unwrap_or(last).to_le_bytes();
                put(data, (row - wanted.start) * width, width, at);
            }
        }
        _ => {}
    }
}

/// Begin and end of the segments of a row's inputs: all its tokens but the last.
fn inputs(segments: &[Segment], row: usize, shape: Shape) -> impl Iterator<Item = (i32, i32)> {
    let inputs = shape.seq_len as usize;
    let of_row = segments
        .iter()
        .filter(move |s| s.row == row && s.start < inputs);
    of_row.map(move |s| (int(s.start), int((s.start + s.tokens).min(inputs))))
}

/// Rows are shorter than 2^30 tokens.
fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn put<const N: usize>(data: &mut [u8], at: usize, count: usize, value: impl Fn(usize) -> [u8; N]) {
    let (items, _) = data.as_chunks_mut::<N>();
    for (n, item) in items.iter_mut().skip(at).take(count).enumerate() {
        *item = value(n);
    }
}
