//! Samples: sets of named arrays of any length, kept as they are. A slice holds `rows_per_slice` samples.
//!
//! Each array becomes two: the items of all samples, and `<name>.offsets` with the index of each sample's first
//! item (one offset more than samples). The state after a batch points at its last sample, which is then left out.

use std::collections::VecDeque;
use std::fmt::Write as _;

use batchweave_core::provenance::{Form, Sources};
use batchweave_core::tgb::Dtype;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    BatchContent, Content, Document, Mismatch, PackedBatch, Packer, Picture, Point, Shape, Start,
    piece,
};

/// One array of each sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySpec {
    /// Name in the slices.
    pub name: String,
    /// Name of the JSON field, of the Parquet column, or of the field in a tar, with alternatives as `jpg;png`; empty: that
    /// of the array.
    #[serde(default)]
    pub from: String,
    pub dtype: Dtype,
    /// Shape of one item; empty for a number.
    #[serde(default)]
    pub shape: Vec<u64>,
    /// JSON strings hold the bytes in base64.
    #[serde(default)]
    pub base64: bool,
    /// The field or column holds the path of a file, whose bytes are the value.
    #[serde(default)]
    pub path: bool,
    /// The array is made of an encoded image.
    #[serde(default)]
    pub image: Option<Picture>,
    /// The shorter side of the image in pixels; its own size without.
    #[serde(default)]
    pub shortest: Option<u32>,
}

impl ArraySpec {
    /// Returns the size of one item in bytes.
    pub fn item_bytes(&self) -> u64 {
        let items = self.shape.iter().fold(1, |n: u64, &d| n.saturating_mul(d));
        items.saturating_mul(self.dtype.bytes())
    }

    /// Returns the name of the field or column.
    pub fn source(&self) -> &str {
        if self.from.is_empty() {
            &self.name
        } else {
            &self.from
        }
    }

    /// Returns the name of the array of offsets.
    pub fn offsets(&self) -> String {
        format!("{}.offsets", self.name)
    }

    /// Returns name, type and shape as text, for example `action F32[7]`: for messages, and for the identity of the
    /// stream.
    pub fn text(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let shape = if shape.is_empty() {
            String::new()
        } else {
            format!("[{}]", shape.join(","))
        };
        let mut text = format!("{} {}{shape}", self.name, self.dtype.name());
        if let Some(picture) = self.image {
            let _ = write!(text, " {}", picture.name());
        }
        if let Some(shortest) = self.shortest {
            let _ = write!(text, " shortest {shortest}");
        }
        text
    }
}

/// The packer of samples; see the header of this file.
#[derive(Debug)]
pub struct Samples {
    shape: Shape,
    start: Start,
    waiting: VecDeque<(Point, Vec<Bytes>)>,
    ended: Option<Point>,
}

impl Samples {
    /// Returns a packer that starts at `from`.
    pub fn new(shape: Shape, from: Point) -> Self {
        Self {
            shape,
            start: Start::new(from),
            waiting: VecDeque::new(),
            ended: None,
        }
    }

    fn take(&mut self, count: usize) -> Option<PackedBatch> {
        let last = count.checked_sub(1)?;
        let mut at = self.waiting.get(last)?.0;
        at.skip += 1;
        let waiting = self.waiting.iter().take(count);
        let pieces = waiting.map(|(at, _)| piece(*at, 1, true)).collect();
        let samples: Vec<_> = self.waiting.drain(..count).map(|(_, s)| s).collect();
        Some(PackedBatch {
            content: BatchContent::Samples(samples),
            own: count as u64,
            next: at.into(),
            sources: Sources {
                form: Form::Rows,
                pieces,
            },
        })
    }
}

impl Packer for Samples {
    fn push(&mut self, document: Document) -> Result<(), Mismatch> {
        let Content::Sample(_) = &document.content else {
            return Ok(());
        };
        // A skip must be less than the number of items, so a sample counts as two: itself and its end.
        let skip = self.start.skip(&document, 2)?;
        let at = document.point();
        if let (Content::Sample(arrays), 0) = (document.content, skip) {
            self.waiting.push_back((at, arrays));
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        self.take(self.shape.rows())
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
        PackedBatch::empty(BatchContent::Samples(Vec::new()), Form::Rows, self.ended)
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
