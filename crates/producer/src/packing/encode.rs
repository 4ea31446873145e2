//! From a batch to the payloads of its slices, written directly into the object. Several batches are encoded at
//! the same time, while the next ones are packed.

use std::borrow::Cow;
use std::ops::Range;

use batchweave_core::tgb::{Array, Dtype, Layout, LayoutError, frame_bytes};
use bytes::Bytes;

use super::bins::BinRange;
use super::encode_bins::BinForm;
use super::encode_tokens::put_tokens;
use super::extras::{self, Beside};
use super::{ArraySpec, BatchContent, PackedBatch, Rows, Segment, Shape, arrays};

/// Makes slices of batches. All slices of a stream have the same form.
#[derive(Debug)]
pub struct Encoder {
    shape: Shape,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Rows(RowForm),
    Bins(BinForm),
    Samples(Vec<ArraySpec>),
}

/// Rows of tokens, and what is beside them.
#[derive(Debug)]
struct RowForm {
    /// The arrays whose shapes are those of the rows.
    fixed: Layout,
    /// The columns of the input among them.
    columns: Vec<ArraySpec>,
    /// The arrays of documents, of any length.
    arrays: Vec<ArraySpec>,
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
    Rows((&'a Encoder, &'a RowForm), &'a Rows, u64, usize),
    /// Bins, and the number of learned tokens of the whole batch.
    Bins(&'a BinForm, BinRange<'a>, u64),
    Samples(&'a [ArraySpec], &'a [Vec<Bytes>]),
}

impl Encoder {
    /// Returns an encoder for rows of tokens below `id_bound`, with arrays beside them.
    pub fn rows(shape: Shape, id_bound: u32, beside: &Beside) -> Result<Self, LayoutError> {
        let dtype = token_dtype(id_bound);
        let tokens = vec![u64::from(shape.rows_per_slice), shape.width() as u64];
        let mut arrays = vec![("tokens", dtype, tokens)];
        arrays.extend(beside.arrays(shape));
        let form = RowForm {
            fixed: Layout::new(arrays)?,
            columns: beside.columns.clone(),
            arrays: beside.arrays.clone(),
        };
        Self::row_layout(&form, &[])?;
        let form = Form::Rows(form);
        Ok(Self { shape, form })
    }

    /// Returns an encoder for bins of tokens below `id_bound`, with arrays beside them.
    pub fn bins(shape: Shape, id_bound: u32, beside: &Beside) -> Result<Self, LayoutError> {
        let form = BinForm::new(shape, token_dtype(id_bound), beside);
        form.layout(&BinRange::default())?;
        let form = Form::Bins(form);
        Ok(Self { shape, form })
    }

    /// Returns an encoder for samples of these arrays.
    pub fn samples(shape: Shape, arrays: Vec<ArraySpec>) -> Result<Self, LayoutError> {
        let form = Form::Samples(arrays);
        let encoder = Self { shape, form };
        encoder.sample_layout(&[])?;
        Ok(encoder)
    }

    /// Returns the shape of a batch.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of slices of a batch.
    pub fn slices(&self) -> u32 {
        self.shape.slices
    }

    /// Returns the size of the frames of a whole batch in bytes, if it is the same for all batches.
    pub fn batch_bytes(&self) -> Option<u64> {
        match &self.form {
            Form::Rows(form) if form.arrays.is_empty() => Some(form.fixed_bytes(self.shape.slices)),
            Form::Rows(_) | Form::Bins(_) | Form::Samples(_) => None,
        }
    }

    /// Returns the size of what is stored per token of bins, in bytes; `None` for other forms.
    pub(crate) fn bytes_per_token(&self) -> Option<u64> {
        match &self.form {
            Form::Bins(form) => Some(form.bytes_per_token()),
            Form::Rows(_) | Form::Samples(_) => None,
        }
    }

    /// Returns the size of the frames of `slices` slices with this content in bytes.
    pub fn frame_bytes(&self, batch: &PackedBatch, slices: u32) -> u64 {
        match (&self.form, &batch.content) {
            (Form::Samples(specs), BatchContent::Samples(samples)) => {
                let all = samples.iter().map(Vec::as_slice);
                header_bytes(specs, slices) + arrays::bytes(specs, all)
            }
            (Form::Rows(form), BatchContent::Rows(rows)) if !form.arrays.is_empty() => {
                let all = of_documents(&rows.segments);
                let fixed = form.fixed_bytes(slices);
                let own = header_bytes(&form.arrays, slices) + arrays::bytes(&form.arrays, all);
                fixed.saturating_add(own)
            }
            (Form::Bins(form), BatchContent::Bins(bins)) => form.frame_bytes(bins, slices),
            (Form::Rows(form), BatchContent::Rows(_)) => form.fixed_bytes(slices),
            // An encoder and a packer of one form come together.
            _ => 0,
        }
    }

    /// Returns the number of rows in `slices` slices of the batch.
    pub fn rows_of(&self, batch: &PackedBatch, slices: u32) -> u64 {
        match &batch.content {
            BatchContent::Rows(_) | BatchContent::Bins(_) => {
                u64::from(slices) * u64::from(self.shape.rows_per_slice)
            }
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
            (Form::Rows(form), BatchContent::Rows(rows)) => Ok(Slice {
                layout: if form.arrays.is_empty() {
                    Cow::Borrowed(&form.fixed)
                } else {
                    let segments = extras::segments(rows, self.shape, slice);
                    Cow::Owned(Self::row_layout(form, segments)?)
                },
                content: SliceContent::Rows((self, form), rows, batch.own, slice),
            }),
            (Form::Bins(form), BatchContent::Bins(bins)) => {
                let of_slice = form.of_slice(bins, slice);
                Ok(Slice {
                    layout: Cow::Owned(form.layout(&of_slice)?),
                    content: SliceContent::Bins(form, of_slice, bins.loss_tokens),
                })
            }
            (Form::Samples(specs), BatchContent::Samples(samples)) => {
                let size = self.shape.rows_per_slice as usize;
                let from = (slice * size).min(samples.len());
                let samples = &samples[from..(from + size).min(samples.len())];
                Ok(Slice {
                    layout: Cow::Owned(self.sample_layout(samples)?),
                    content: SliceContent::Samples(specs, samples),
                })
            }
            _ => Err(LayoutError::Empty),
        }
    }

    fn sample_layout(&self, samples: &[Vec<Bytes>]) -> Result<Layout, LayoutError> {
        let Form::Samples(specs) = &self.form else {
            return Err(LayoutError::Empty);
        };
        Layout::new(arrays::shapes(specs, samples.iter().map(Vec::as_slice)))
    }

    /// Returns the layout of rows with the arrays of these documents.
    fn row_layout(form: &RowForm, segments: &[Segment]) -> Result<Layout, LayoutError> {
        let fixed = form.fixed.arrays().iter();
        let shapes = fixed.map(|array| (array.name.clone(), array.dtype, array.shape.clone()));
        Layout::new(shapes.chain(arrays::shapes(&form.arrays, of_documents(segments))))
    }

    fn put_rows(
        &self,
        form: &RowForm,
        rows: &Rows,
        own: u64,
        slice: usize,
        array: &Array,
        data: &mut [u8],
    ) -> Result<(), LayoutError> {
        let per_slice = self.shape.rows_per_slice as usize;
        let width = self.shape.width();
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
                put_loss_mask(rows, own, of_slice, (data, width));
                Ok(())
            }
            _ => {
                let of_slice = of_documents(extras::segments(rows, self.shape, slice));
                if !arrays::put(&form.arrays, of_slice, array, data) {
                    data.fill(0);
                    let column = form.columns.iter().position(|c| c.name == array.name);
                    extras::fill(array, column, data, rows, self.shape, slice);
                }
                Ok(())
            }
        }
    }
}

impl RowForm {
    /// Returns the size of the frames of `slices` slices in bytes, without the arrays of documents.
    fn fixed_bytes(&self, slices: u32) -> u64 {
        let frame = frame_bytes(self.fixed.payload_len()).unwrap_or(u64::MAX);
        frame.saturating_mul(slices.into())
    }
}

fn of_documents(segments: &[Segment]) -> impl ExactSizeIterator<Item = &arrays::Arrays> + Clone {
    segments.iter().map(|segment| segment.arrays.as_slice())
}

/// Returns more bytes than the headers of slices with these arrays can need: they grow with their numbers.
fn header_bytes(specs: &[ArraySpec], slices: u32) -> u64 {
    256 * (1 + specs.len()) as u64 * u64::from(slices)
}

impl Slice<'_> {
    /// Returns the size of the payload in bytes.
    pub fn payload_len(&self) -> u64 {
        self.layout.payload_len()
    }

    /// Writes the payload into `out`, which must have exactly its size; earlier content is overwritten.
    pub fn write(&self, out: &mut [u8]) -> Result<(), LayoutError> {
        match &self.content {
            SliceContent::Rows((encoder, form), rows, own, slice) => {
                self.layout.write(out, |array, data| {
                    encoder.put_rows(form, rows, *own, *slice, array, data)
                })
            }
            SliceContent::Bins(form, bins, loss_tokens) => self
                .layout
                .write(out, |array, data| form.put(bins, *loss_tokens, array, data)),
            SliceContent::Samples(specs, samples) => self.layout.write(out, |array, data| {
                arrays::put(specs, samples.iter().map(Vec::as_slice), array, data);
                Ok(())
            }),
        }
    }
}

/// Returns the type of tokens below `id_bound`: two bytes where the vocabulary allows it.
fn token_dtype(id_bound: u32) -> Dtype {
    if id_bound <= 1 << 16 {
        Dtype::U16
    } else {
        Dtype::U32
    }
}

/// Writes the loss mask of `rows`, the places of rows of this width among the batch's tokens. `own` counts the tokens of
/// the batch that are in no other.
fn put_loss_mask(
    all: &Rows,
    own: u64,
    rows: impl Iterator<Item = Range<usize>>,
    (data, width): (&mut [u8], usize),
) {
    data.fill(0);
    for (data, row) in data.chunks_exact_mut(width).zip(rows) {
        if let Some(learned) = all.learned.get(row.clone()) {
            let bytes = data.iter_mut().zip(learned);
            bytes.for_each(|(byte, learned)| *byte = u8::from(*learned));
        } else {
            // Without marks all tokens of the input are learned, the shared first one included.
            let own = usize::try_from(own).unwrap_or(usize::MAX);
            let count = own.saturating_add(1).saturating_sub(row.start);
            data[..count.min(width)].fill(1);
        }
    }
}
