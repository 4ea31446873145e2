//! From a batch to the payloads of its slices. Runs beside the packing, several batches at a time.

use batchweave_core::ids::Seq;
use batchweave_core::tgb::{Array, Dtype, Layout, LayoutError, TgbData, frame_bytes};
use bytes::Bytes;

use super::extras::{self, Extra};
use super::{ArraySpec, Batch, BatchContent, Rows, Shape};

/// Makes slices; all of a stream's have this form.
#[derive(Debug)]
pub struct Encoder {
    shape: Shape,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Rows(Layout),
    Samples(Vec<ArraySpec>),
}

impl Encoder {
    /// Rows of tokens below `id_bound`, with `extras`.
    pub fn rows(shape: Shape, id_bound: u32, extras: &[Extra]) -> Result<Self, LayoutError> {
        // Two bytes a token wherever the vocabulary allows.
        let dtype = if id_bound <= 1 << 16 {
            Dtype::U16
        } else {
            Dtype::U32
        };
        let tokens = vec![u64::from(shape.rows_per_slice), shape.width() as u64];
        let mut arrays = vec![("tokens", dtype, tokens)];
        for extra in extras {
            arrays.extend(extra.arrays(shape));
        }
        let form = Form::Rows(Layout::new(arrays)?);
        Ok(Self { shape, form })
    }

    /// Samples of these arrays.
    pub fn samples(shape: Shape, arrays: Vec<ArraySpec>) -> Result<Self, LayoutError> {
        let form = Form::Samples(arrays);
        let encoder = Self { shape, form };
        encoder.sample_layout(&[])?;
        Ok(encoder)
    }

    /// Bytes of all frames of a batch.
    pub fn frame_bytes(&self, batch: &Batch) -> u64 {
        let frame = |payload| frame_bytes(payload).unwrap_or(u64::MAX);
        match (&self.form, &batch.content) {
            (Form::Samples(arrays), BatchContent::Samples(samples)) => {
                let data: usize = samples.iter().flatten().map(Vec::len).sum();
                let offsets = 8 * arrays.len() * (samples.len() + 1);
                // A header grows with its numbers; this is more than it ever needs.
                let header = 256 * (1 + arrays.len()) as u64 * u64::from(self.shape.slices);
                header + (data + offsets) as u64
            }
            (Form::Rows(layout), _) => {
                frame(layout.payload_len()).saturating_mul(self.shape.slices.into())
            }
            (Form::Samples(_), BatchContent::Rows(_)) => 0,
        }
    }

    /// The batch numbered `seq`, ready to be stored.
    pub fn encode(&self, seq: Seq, batch: &Batch) -> Result<TgbData, LayoutError> {
        let slices = 0..self.shape.slices as usize;
        let payload = |slice| match (&self.form, &batch.content) {
            (Form::Rows(layout), BatchContent::Rows(rows)) => {
                self.row_slice(layout, rows, batch.own, slice)
            }
            (Form::Samples(arrays), BatchContent::Samples(samples)) => {
                let size = self.shape.rows_per_slice as usize;
                let from = (slice * size).min(samples.len());
                let to = (from + size).min(samples.len());
                self.sample_slice(arrays, &samples[from..to])
            }
            _ => Err(LayoutError::Empty),
        };
        let payloads: Result<Vec<Bytes>, LayoutError> = slices.map(payload).collect();
        let rows = match &batch.content {
            BatchContent::Rows(_) => self.shape.rows() as u64,
            BatchContent::Samples(samples) => samples.len() as u64,
        };
        Ok(TgbData {
            seq,
            rows,
            tokens: batch.own,
            provenance: None,
            slices: payloads?,
        })
    }

    fn row_slice(
        &self,
        layout: &Layout,
        rows: &Rows,
        own: u64,
        slice: usize,
    ) -> Result<Bytes, LayoutError> {
        let (per_slice, width) = (self.shape.rows_per_slice as usize, self.shape.width());
        // Begin and end of each row among the batch's tokens.
        let of_slice = (slice * per_slice..(slice + 1) * per_slice)
            .map(|row| row * rows.stride..row * rows.stride + width);
        let fill = |array: &Array, data: &mut [u8]| match array.name.as_str() {
            "tokens" => {
                let parts = data.chunks_exact_mut(width * array.dtype.bytes() as usize);
                parts.zip(of_slice.clone()).try_for_each(|(data, row)| {
                    put_tokens(array.dtype, rows.tokens.get(row).unwrap_or_default(), data)
                })
            }
            "loss_mask" => {
                for (data, row) in data.chunks_exact_mut(width).zip(of_slice.clone()) {
                    for (byte, at) in data.iter_mut().zip(row) {
                        // Without marks: all of the input's own, the shared first token included.
                        let all = at as u64 <= own;
                        *byte = u8::from(rows.learned.get(at).copied().unwrap_or(all));
                    }
                }
                Ok(())
            }
            _ => {
                extras::fill(array, data, rows, self.shape, slice);
                Ok(())
            }
        };
        layout.encode_with(fill).map(Bytes::from)
    }

    fn sample_layout(&self, samples: &[Vec<Vec<u8>>]) -> Result<Layout, LayoutError> {
        let Form::Samples(arrays) = &self.form else {
            return Err(LayoutError::Empty);
        };
        let both = arrays.iter().enumerate().flat_map(|(n, spec)| {
            let bytes: usize = samples.iter().map(|s| s.get(n).map_or(0, Vec::len)).sum();
            let items = bytes as u64 / spec.item_bytes().max(1);
            let values = [&[items], &spec.shape[..]].concat();
            let offsets = vec![samples.len() as u64 + 1];
            [
                (spec.name.clone(), spec.dtype, values),
                (spec.offsets(), Dtype::I64, offsets),
            ]
        });
        Layout::new(both)
    }

    fn sample_slice(
        &self,
        arrays: &[ArraySpec],
        samples: &[Vec<Vec<u8>>],
    ) -> Result<Bytes, LayoutError> {
        let layout = self.sample_layout(samples)?;
        let fill = |array: &Array, data: &mut [u8]| {
            if let Some(n) = arrays.iter().position(|spec| spec.name == array.name) {
                let mut at = 0;
                for sample in samples.iter().filter_map(|s| s.get(n)) {
                    data[at..at + sample.len()].copy_from_slice(sample);
                    at += sample.len();
                }
            } else if let Some(n) = arrays.iter().position(|s| s.offsets() == array.name) {
                let mut at = 0_i64;
                let item = arrays[n].item_bytes().max(1);
                let (offsets, _) = data.as_chunks_mut::<8>();
                for (offset, sample) in offsets.iter_mut().skip(1).zip(samples) {
                    at += (sample.get(n).map_or(0, Vec::len) as u64 / item).cast_signed();
                    *offset = at.to_le_bytes();
                }
            }
            Ok(())
        };
        layout.encode_with(fill).map(Bytes::from)
    }
}

/// `data` has room for exactly these tokens.
fn put_tokens(dtype: Dtype, tokens: &[u32], data: &mut [u8]) -> Result<(), LayoutError> {
    if dtype == Dtype::U32 {
        for (token, bytes) in tokens.iter().zip(data.as_chunks_mut::<4>().0) {
            *bytes = token.to_le_bytes();
        }
        return Ok(());
    }
    if let Some(&token) = tokens.iter().find(|&&token| token > u32::from(u16::MAX)) {
        return Err(LayoutError::Token { token, dtype });
    }
    for (token, bytes) in tokens.iter().zip(data.as_chunks_mut::<2>().0) {
        *bytes = (*token as u16).to_le_bytes();
    }
    Ok(())
}
