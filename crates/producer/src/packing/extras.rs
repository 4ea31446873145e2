//! Optional arrays beside the tokens, each of a fixed shape.

use batchweave_core::tgb::{Array, Dtype};
use serde::{Deserialize, Serialize};

use super::{ArraySpec, Rows, Segment, Shape, arrays};

/// The array that says which segments are in which row, where documents have arrays.
const SEGMENT_OFFSETS: &str = "segments.offsets";

/// One optional array of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extra {
    /// For each token the number of its document in the row, from 1; 0 for padding.
    SegmentIds,
    /// For each token its index in its segment, from 0.
    Positions,
    /// For each token 1 if it is learned as a label, else 0.
    LossMask,
    /// For each row the index where each segment of its inputs begins, then the end of the last one repeated; comes
    /// with `num_segments`.
    CuSeqlens,
    /// For each token its document: file * 2^40 + line or row; -1 for padding.
    DocumentIds,
    /// For each token the number of its document's source in the configuration, from 0; 0 for padding.
    SourceIds,
}

impl Extra {
    /// All optional arrays, in the order of slices.
    pub const ALL: [Self; 6] = [
        Self::SegmentIds,
        Self::Positions,
        Self::LossMask,
        Self::CuSeqlens,
        Self::DocumentIds,
        Self::SourceIds,
    ];

    /// Returns whether the array is made from segments.
    pub fn needs_segments(self) -> bool {
        self != Self::LossMask
    }

    /// Returns name, type and shape of the stored arrays.
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
            Self::SourceIds => vec![("source_ids", Dtype::U16, tokens)],
        }
    }
}

/// The arrays that slices hold beside the tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    pub extras: Vec<Extra>,
    /// Columns of the input: each of a document's tokens has the document's number, padding has 0.
    pub columns: Vec<ArraySpec>,
    /// Arrays of each document, with one entry of their offsets per segment.
    pub arrays: Vec<ArraySpec>,
}

impl Beside {
    /// Returns whether an array is made from segments.
    pub fn needs_segments(&self) -> bool {
        !self.columns.is_empty()
            || !self.arrays.is_empty()
            || self.extras.iter().any(|extra| extra.needs_segments())
    }

    /// Returns name, type and shape of the stored arrays whose shape is that of the rows.
    pub(super) fn arrays(&self, shape: Shape) -> Vec<(&str, Dtype, Vec<u64>)> {
        let extras = self.extras.iter().flat_map(|extra| extra.arrays(shape));
        let tokens = [u64::from(shape.rows_per_slice), shape.width() as u64];
        let columns =
            (self.columns.iter()).map(|spec| (spec.name.as_str(), spec.dtype, tokens.to_vec()));
        let rows = u64::from(shape.rows_per_slice);
        let offsets =
            (!self.arrays.is_empty()).then(|| (SEGMENT_OFFSETS, Dtype::I64, vec![rows + 1]));
        extras.chain(columns).chain(offsets).collect()
    }
}

/// Returns the segments of slice `slice`.
pub(super) fn segments(rows: &Rows, shape: Shape, slice: usize) -> &[Segment] {
    let per_slice = shape.rows_per_slice as usize;
    let before = |row: usize| rows.segments.partition_point(|s| s.row < row);
    let range = before(slice * per_slice)..before((slice + 1) * per_slice);
    rows.segments.get(range).unwrap_or_default()
}

/// Writes `array` of slice `slice` into `data`, which must be zero. `column` is its index among the columns, if it is one.
pub(super) fn fill(
    array: &Array,
    column: Option<usize>,
    data: &mut [u8],
    rows: &Rows,
    shape: Shape,
    slice: usize,
) {
    let per_slice = shape.rows_per_slice as usize;
    let wanted = slice * per_slice..(slice + 1) * per_slice;
    let mut rest = segments(rows, shape, slice);
    if array.name == SEGMENT_OFFSETS {
        let of_row = |row| rest.iter().filter(move |s| s.row == row).count() as u64;
        arrays::put_offsets(wanted.map(of_row), data);
        return;
    }
    let row_bytes = array.bytes as usize / per_slice.max(1);
    for (row, data) in wanted.zip(data.chunks_exact_mut(row_bytes.max(1))) {
        let count = rest.iter().take_while(|s| s.row == row).count();
        let (segments, after) = rest.split_at(count);
        rest = after;
        match column {
            Some(n) => fill_column(n, array.dtype.bytes() as usize, data, segments),
            None => fill_row(array.name.as_str(), data, segments, shape.seq_len as usize),
        }
    }
}

/// Writes the values of column `n`, of `bytes` bytes each, into one row.
pub(super) fn fill_column(n: usize, bytes: usize, data: &mut [u8], segments: &[Segment]) {
    for segment in segments {
        let values = segment.columns.as_deref();
        let value = values.and_then(|values| values.get(n)?.get(..bytes));
        let from = (segment.start * bytes).min(data.len());
        let to = (from + segment.tokens * bytes).min(data.len());
        if let Some(value) = value {
            let items = data[from..to].chunks_exact_mut(bytes.max(1));
            items.for_each(|item| item.copy_from_slice(value));
        }
    }
}

/// Writes one row. `segments` are those of the row, in order; padding follows them.
pub(super) fn fill_row(name: &str, data: &mut [u8], segments: &[Segment], inputs: usize) {
    match name {
        "segment_ids" => {
            let (items, _) = data.as_chunks_mut::<4>();
            for (id, s) in (1_i32..).zip(segments) {
                items_of(items, s).fill(id.to_le_bytes());
            }
        }
        "positions" => {
            let (items, _) = data.as_chunks_mut::<4>();
            for s in segments {
                let places = (0_i32..).zip(items_of(items, s));
                places.for_each(|(n, item)| *item = n.to_le_bytes());
            }
        }
        "document_ids" => {
            let (items, _) = data.as_chunks_mut::<8>();
            for s in segments {
                let id = (i64::from(s.document.0) << 40) | s.document.1.cast_signed();
                items_of(items, s).fill(id.to_le_bytes());
            }
            let end = segments.last().map_or(0, |s| s.start + s.tokens);
            items
                .iter_mut()
                .skip(end)
                .for_each(|item| *item = [0xff; 8]);
        }
        "source_ids" => {
            let (items, _) = data.as_chunks_mut::<2>();
            for s in segments {
                items_of(items, s).fill(source_of(s));
            }
        }
        "num_segments" => {
            let count = segments.iter().filter(|s| s.start < inputs).count();
            data.copy_from_slice(&int(count).to_le_bytes());
        }
        "cu_seqlens" => fill_ends(data, segments, inputs),
        _ => {}
    }
}

/// Writes 0 and the ends of the segments among the inputs; the last end fills up the rest.
fn fill_ends(data: &mut [u8], segments: &[Segment], inputs: usize) {
    let (items, _) = data.as_chunks_mut::<4>();
    let of_inputs = segments.iter().filter(|s| s.start < inputs);
    let ends = of_inputs.map(|s| int((s.start + s.tokens).min(inputs)).to_le_bytes());
    let mut last = [0; 4];
    let mut count = 1;
    for (item, end) in items.iter_mut().skip(1).zip(ends) {
        (*item, last, count) = (end, end, count + 1);
    }
    let rest = items.get_mut(count..).unwrap_or_default();
    rest.fill(last);
}

/// Returns the number of a segment's source, which follows the values of its columns.
fn source_of(segment: &Segment) -> [u8; 2] {
    let last = segment.columns.as_deref().and_then(<[_]>::last);
    last.map_or([0; 2], |value| [value[0], value[1]])
}

/// Returns the items of a segment.
fn items_of<'a, T>(items: &'a mut [T], segment: &Segment) -> &'a mut [T] {
    let end = (segment.start + segment.tokens).min(items.len());
    &mut items[segment.start.min(end)..end]
}

/// Converts a number of tokens; rows are shorter than 2^30.
fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
