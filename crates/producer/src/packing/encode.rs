//! From a batch to the payloads of its slices, written directly into the object. Several batches are encoded at
//! the same time, while the next ones are packed.

use std::borrow::Cow;

use batchweave_core::tgb::{Array, Dtype, Layout, LayoutError, frame_bytes};

use super::extras::{self, Beside};
use super::{ArraySpec, BatchContent, PackedBatch, Rows, Shape};

/// Makes slices of batches. All slices of a stream have the same form.
#[derive(Debug)]
pub struct Encoder {
    shape: Shape,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Rows, and the columns of the input beside them.
    Rows(Layout, Vec<ArraySpec>),
    Samples(Vec<ArraySpec>),
}

/// One slice of a batch, ready to be written.
#[derive(Debug)]
pub struct Slice<'a> {
    layout: Cow<'a, Layout>,
    content: SliceContent<'a>,
}

#[derive(Debug)]
enum SliceContent<'a> {
    /// Rows of the batch, its number of own tokens, and the index of the slice.
    Rows(&'a Encoder, &'a Rows, u64, usize),
    Samples(&'a [ArraySpec], &'a [Vec<Vec<u8>>]),
}

impl Encoder {
    /// Returns an encoder for rows of tokens below `id_bound`, with arrays beside them.
    pub fn rows(shape: Shape, id_bound: u32, beside: &Beside) -> Result<Self, LayoutError> {
        // Two bytes per token where the vocabulary allows it.
        let dtype = if id_bound <= 1 << 16 {
            Dtype::U16
        } else {
            Dtype::U32
        };
        let tokens = vec![u64::from(shape.rows_per_slice), shape.width() as u64];
        let mut arrays = vec![("tokens", dtype, tokens)];
        arrays.extend(beside.arrays(shape));
        let form = Form::Rows(Layout::new(arrays)?, beside.columns.clone());
        Ok(Self { shape, form })
    }

    /// Returns an encoder for samples of these arrays.
    pub fn samples(shape: Shape, arrays: Vec<ArraySpec>) -> Result<Self, LayoutError> {
        let form = Form::Samples(arrays);
        let encoder = Self { shape, form };
        encoder.sample_layout(&[])?;
        Ok(encoder)
    }

    /// Returns the number of slices of a batch.
    pub fn slices(&self) -> u32 {
        self.shape.slices
    }

    /// Returns the size of the frames of a whole batch in bytes, if it is the same for all batches.
    pub fn batch_bytes(&self) -> Option<u64> {
        match &self.form {
            Form::Rows(layout, _) => {
                let frame = frame_bytes(layout.payload_len()).unwrap_or(u64::MAX);
                Some(frame.saturating_mul(self.shape.slices.into()))
            }
            Form::Samples(_) => None,
        }
    }

    /// Returns the size of the frames of `slices` slices with this content in bytes.
    pub fn frame_bytes(&self, batch: &PackedBatch, slices: u32) -> u64 {
        match (&self.form, &batch.content) {
            (Form::Samples(arrays), BatchContent::Samples(samples)) => {
                let data: usize = samples.iter().flatten().map(Vec::len).sum();
                let offsets = 8 * arrays.len() * (samples.len() + 1);
                // A header grows with its numbers; this is more than it can need.
                let header = 256 * (1 + arrays.len()) as u64 * u64::from(slices);
                header + (data + offsets) as u64
            }
            (Form::Rows(layout, _), _) => {
                let frame = frame_bytes(layout.payload_len()).unwrap_or(u64::MAX);
                frame.saturating_mul(slices.into())
            }
            (Form::Samples(_), BatchContent::Rows(_)) => 0,
        }
    }

    /// Returns the number of rows in `slices` slices of the batch.
    pub fn rows_of(&self, batch: &PackedBatch, slices: u32) -> u64 {
        match &batch.content {
            BatchContent::Rows(_) => u64::from(slices) * u64::from(self.shape.rows_per_slice),
            BatchContent::Samples(samples) => samples.len() as u64,
        }
    }

    /// Returns slice `slice` of the batch, counted from the beginning of its content.
    pub fn slice<'a>(
        &'a self,
        batch: &'a PackedBatch,
        slice: usize,
    ) -> Result<Slice<'a>, LayoutError> {
        match (&self.form, &batch.content) {
            (Form::Rows(layout, _), BatchContent::Rows(rows)) => Ok(Slice {
                layout: Cow::Borrowed(layout),
                content: SliceContent::Rows(self, rows, batch.own, slice),
            }),
            (Form::Samples(arrays), BatchContent::Samples(samples)) => {
                let size = self.shape.rows_per_slice as usize;
                let from = (slice * size).min(samples.len());
                let samples = &samples[from..(from + size).min(samples.len())];
                Ok(Slice {
                    layout: Cow::Owned(self.sample_layout(samples)?),
                    content: SliceContent::Samples(arrays, samples),
                })
            }
            _ => Err(LayoutError::Empty),
        }
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

    /// Returns the index of the column of the input that `array` holds, if it is one.
    fn column(&self, array: &Array) -> Option<usize> {
        let Form::Rows(_, columns) = &self.form else {
            return None;
        };
        columns.iter().position(|spec| spec.name == array.name)
    }

    fn put_rows(
        &self,
        rows: &Rows,
        own: u64,
        slice: usize,
        (array, data): (&Array, &mut [u8]),
    ) -> Result<(), LayoutError> {
        let (per_slice, width) = (self.shape.rows_per_slice as usize, self.shape.width());
        // Begin and end of each row among the batch's tokens.
        let of_slice = (slice * per_slice..(slice + 1) * per_slice)
            .map(|row| row * rows.stride..row * rows.stride + width);
        match array.name.as_str() {
            "tokens" => {
                let parts = data.chunks_exact_mut(width * array.dtype.bytes() as usize);
                parts.zip(of_slice).try_for_each(|(data, row)| {
                    put_tokens(array.dtype, rows.tokens.get(row).unwrap_or_default(), data)
                })
            }
            "loss_mask" => {
                data.fill(0);
                for (data, row) in data.chunks_exact_mut(width).zip(of_slice) {
                    if let Some(learned) = rows.learned.get(row.clone()) {
                        let bytes = data.iter_mut().zip(learned);
                        bytes.for_each(|(byte, learned)| *byte = u8::from(*learned));
                    } else {
                        // Without marks all tokens of the input are learned, the shared first one included.
                        let own = usize::try_from(own).unwrap_or(usize::MAX);
                        let count = own.saturating_add(1).saturating_sub(row.start);
                        data[..count.min(width)].fill(1);
                    }
                }
                Ok(())
            }
            _ => {
                data.fill(0);
                extras::fill((array, self.column(array)), data, rows, (self.shape, slice));
                Ok(())
            }
        }
    }
}

impl Slice<'_> {
    /// Returns the size of the payload in bytes.
    pub fn payload_len(&self) -> u64 {
        self.layout.payload_len()
    }

    /// Writes the payload into `out`, which must have exactly its size; earlier content is overwritten.
    pub fn write(&self, out: &mut [u8]) -> Result<(), LayoutError> {
        match &self.content {
            SliceContent::Rows(encoder, rows, own, slice) => {
                self.layout.write(out, |array, data| {
                    encoder.put_rows(rows, *own, *slice, (array, data))
                })
            }
            SliceContent::Samples(arrays, samples) => self.layout.write(out, |array, data| {
                put_samples(arrays, samples, array, data);
                Ok(())
            }),
        }
    }
}

fn put_samples(arrays: &[ArraySpec], samples: &[Vec<Vec<u8>>], array: &Array, data: &mut [u8]) {
    if let Some(n) = arrays.iter().position(|spec| spec.name == array.name) {
        let mut at = 0;
        for sample in samples.iter().filter_map(|s| s.get(n)) {
            data[at..at + sample.len()].copy_from_slice(sample);
            at += sample.len();
        }
        data[at..].fill(0);
    } else if let Some(n) = arrays.iter().position(|s| s.offsets() == array.name) {
        let mut at = 0_i64;
        let item = arrays[n].item_bytes().max(1);
        let (offsets, _) = data.as_chunks_mut::<8>();
        offsets.fill([0; 8]);
        for (offset, sample) in offsets.iter_mut().skip(1).zip(samples) {
            at += (sample.get(n).map_or(0, Vec::len) as u64 / item).cast_signed();
            *offset = at.to_le_bytes();
        }
    } else {
        data.fill(0);
    }
}

/// Writes the tokens of a row into `data`; the rest of a short row becomes zero.
fn put_tokens(dtype: Dtype, tokens: &[u32], data: &mut [u8]) -> Result<(), LayoutError> {
    let bytes = (tokens.len() * dtype.bytes() as usize).min(data.len());
    data[bytes..].fill(0);
    if dtype == Dtype::U32 {
        for (token, bytes) in tokens.iter().zip(data.as_chunks_mut::<4>().0) {
            *bytes = token.to_le_bytes();
        }
        return Ok(());
    }
    // One OR over all tokens is fast; a search for the first too large one would double the time.
    if tokens.iter().fold(0, |all, token| all | token) > u32::from(u16::MAX) {
        let large = tokens.iter().find(|&&token| token > u32::from(u16::MAX));
        let token = large.copied().unwrap_or_default();
        return Err(LayoutError::Token { token, dtype });
    }
    for (token, bytes) in tokens.iter().zip(data.as_chunks_mut::<2>().0) {
        *bytes = (*token as u16).to_le_bytes();
    }
    Ok(())
}
