//! Slices of bins: `tokens` without padding, `documents` and `bins` with the borders, `costs`, the batch's `loss_tokens`, and
//! arrays beside them. docs/format.md describes the form.

use batchweave_core::balance::COST_OF_TOKEN;
use batchweave_core::tgb::{Array, Dtype, Layout, LayoutError};
use bytes::Bytes;

use super::bins::{BinRange, Bins};
use super::encode_tokens::put_tokens;
use super::extras::{self, Beside, Extra};
use super::{Shape, arrays};

/// The arrays of every slice of bins, beside `tokens`.
pub const BIN_ARRAYS: [&str; 4] = ["documents", "bins", "costs", "loss_tokens"];

/// The form of slices of bins.
#[derive(Debug)]
pub(super) struct BinForm {
    tokens: Dtype,
    bins: usize,
    beside: Beside,
}

impl BinForm {
    pub(super) fn new(shape: Shape, tokens: Dtype, beside: &Beside) -> Self {
        let mut beside = beside.clone();
        // The borders of documents are always there.
        beside.extras.retain(|extra| *extra != Extra::CuSeqlens);
        Self {
            tokens,
            bins: shape.rows_per_slice as usize,
            beside,
        }
    }

    /// Returns the bins of slice `slice`.
    pub(super) fn of_slice<'a>(&self, bins: &'a Bins, slice: usize) -> BinRange<'a> {
        bins.range(slice * self.bins, self.bins)
    }

    /// Returns the layout of a slice with these bins.
    pub(super) fn layout(&self, bins: &BinRange<'_>) -> Result<Layout, LayoutError> {
        let tokens = bins.tokens.len() as u64;
        let borders = |count: usize| vec![count as u64 + 1];
        let own = [
            ("tokens", self.tokens, vec![tokens]),
            ("documents", Dtype::I32, borders(bins.segments.len())),
            ("bins", Dtype::I32, borders(self.bins)),
            ("costs", Dtype::F32, vec![self.bins as u64]),
            ("loss_tokens", Dtype::I64, vec![1]),
        ];
        let own = own.map(|(name, dtype, shape)| (name.to_owned(), dtype, shape));
        let per_token = self.per_token();
        let per_token = per_token.map(|(name, dtype)| (name.to_owned(), dtype, vec![tokens]));
        let of_documents = arrays::shapes(&self.beside.arrays, documents(bins));
        Layout::new(own.into_iter().chain(per_token).chain(of_documents))
    }

    /// Returns the arrays with an item per token, beside `tokens`.
    fn per_token(&self) -> impl Iterator<Item = (&str, Dtype)> {
        let extras = self.beside.extras.iter();
        let extras = extras.filter_map(|extra| match extra {
            Extra::SegmentIds => Some(("segment_ids", Dtype::I32)),
            Extra::Positions => Some(("positions", Dtype::I32)),
            Extra::LossMask => Some(("loss_mask", Dtype::U8)),
            Extra::DocumentIds => Some(("document_ids", Dtype::I64)),
            Extra::SourceIds => Some(("source_ids", Dtype::U16)),
            Extra::CuSeqlens => None,
        });
        let columns = self.beside.columns.iter();
        extras.chain(columns.map(|spec| (spec.name.as_str(), spec.dtype)))
    }

    /// Returns the bytes of a token and of the arrays with an item per token.
    pub(super) fn bytes_per_token(&self) -> u64 {
        let beside: u64 = self.per_token().map(|(_, dtype)| dtype.bytes()).sum();
        self.tokens.bytes() + beside
    }

    /// Returns more bytes than the frames of these slices need.
    pub(super) fn frame_bytes(&self, bins: &Bins, slices: u32) -> u64 {
        let slices = u64::from(slices);
        let arrays = 16 + self.beside.extras.len() + self.beside.columns.len();
        let headers = 256 * (arrays + 2 * self.beside.arrays.len()) as u64;
        let tokens = self.bytes_per_token() * bins.tokens.len() as u64;
        let documents = 4 * (bins.segments.len() as u64 + slices);
        let of_bins = 8 * (self.bins as u64 + 2) * slices;
        let all = bins
            .segments
            .iter()
            .map(|segment| segment.arrays.as_slice());
        let of_documents =
            arrays::bytes(&self.beside.arrays, all) + 8 * self.beside.arrays.len() as u64 * slices;
        headers * slices + tokens + documents + of_bins + of_documents
    }

    /// Writes an array of the slice with these bins.
    pub(super) fn put(
        &self,
        bins: &BinRange<'_>,
        loss_tokens: u64,
        array: &Array,
        data: &mut [u8],
    ) -> Result<(), LayoutError> {
        match array.name.as_str() {
            "tokens" => put_tokens(array.dtype, bins.tokens, data)?,
            "documents" => {
                let mut end = 0;
                let ends = bins.segments.iter().map(|segment| {
                    end += segment.tokens;
                    end
                });
                put_borders(ends, data);
            }
            "bins" => put_borders(bins.segment_ends(), data),
            "costs" => put_costs(bins.costs(), data),
            "loss_tokens" => data.copy_from_slice(&loss_tokens.to_le_bytes()),
            "loss_mask" => {
                let marks = data.iter_mut().zip(bins.learned);
                marks.for_each(|(byte, learned)| *byte = u8::from(*learned));
            }
            _ if arrays::put(&self.beside.arrays, documents(bins), array, data) => {}
            _ => self.put_per_token(bins, array, data),
        }
        Ok(())
    }

    /// Writes an array with an item per token, bin by bin.
    fn put_per_token(&self, bins: &BinRange<'_>, array: &Array, data: &mut [u8]) {
        data.fill(0);
        let item = array.dtype.bytes() as usize;
        let columns = &self.beside.columns;
        let column = columns.iter().position(|spec| spec.name == array.name);
        let (mut token, mut segment) = (0, 0);
        for (token_end, segment_end) in bins.token_ends().zip(bins.segment_ends()) {
            let data = &mut data[token * item..token_end * item];
            let segments = &bins.segments[segment..segment_end];
            match column {
                Some(n) => extras::fill_column(n, item, data, segments),
                None => extras::fill_row(&array.name, data, segments, token_end - token),
            }
            (token, segment) = (token_end, segment_end);
        }
    }
}

fn documents<'a>(
    bins: &BinRange<'a>,
) -> impl ExactSizeIterator<Item = &'a [Bytes]> + Clone + use<'a> {
    bins.segments
        .iter()
        .map(|segment| segment.arrays.as_slice())
}

/// Writes 0 and these ends. A slice has fewer than 2^31 tokens.
fn put_borders(ends: impl Iterator<Item = usize>, data: &mut [u8]) {
    let (borders, _) = data.as_chunks_mut::<4>();
    let ends = std::iter::once(0).chain(ends);
    for (border, end) in borders.iter_mut().zip(ends) {
        *border = i32::try_from(end).unwrap_or(i32::MAX).to_le_bytes();
    }
}

/// Writes costs in tokens.
fn put_costs(costs: impl Iterator<Item = u64>, data: &mut [u8]) {
    let (items, _) = data.as_chunks_mut::<4>();
    for (item, cost) in items.iter_mut().zip(costs) {
        let cost = cost as f64 / COST_OF_TOKEN as f64;
        *item = (cost as f32).to_le_bytes();
    }
}
