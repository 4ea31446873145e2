//! Samples: sets of named arrays of any length, as they are. A slice holds `rows_per_slice` of them.
//!
//! Each array becomes two: its items one after another, and `<name>.offsets`, where each sample's
//! begin (one more offset than samples). The state after a batch is its last sample, left out.

use std::collections::VecDeque;

use batchweave_core::provenance::{Form, Sources};
use batchweave_core::tgb::Dtype;
use serde::{Deserialize, Serialize};

use super::{
    BatchContent, Content, Document, Mismatch, PackedBatch, Packer, Point, Shape, Start, piece,
};

/// One array of each sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySpec {
    /// Its name in the slices; also that of the JSON field or Parquet column.
    pub name: String,
    /// Type of its items.
    pub dtype: Dtype,
    /// Shape of one item; empty: a number.
    #[serde(default)]
    pub shape: Vec<u64>,
    /// JSON strings hold its bytes in base64.
    #[serde(default)]
    pub base64: bool,
}

impl ArraySpec {
    /// Bytes of one item.
    pub fn item_bytes(&self) -> u64 {
        let items = self.shape.iter().fold(1, |n: u64, &d| n.saturating_mul(d));
        items.saturating_mul(self.dtype.bytes())
    }

    /// The name of the array that says where samples begin.
    pub fn offsets(&self) -> String {
        format!("{}.offsets", self.name)
    }

    /// For people, and for what makes streams differ: `action F32[7]`.
    pub fn text(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let shape = if shape.is_empty() {
            String::new()
        } else {
            format!("[{}]", shape.join(","))
        };
        format!("{} {}{shape}", self.name, self.dtype.name())
    }
}

/// See the file's header.
#[derive(Debug)]
pub struct Samples {
    shape: Shape,
    start: Start,
    waiting: VecDeque<(Point, Vec<Vec<u8>>)>,
    ended: Option<Point>,
}

impl Samples {
    /// Begins at `from`.
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
        at.skip = 1;
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
        let at = document.point();
        let Content::Sample(arrays) = document.content else {
            return Ok(());
        };
        // `skip` leaves out less than there is: the sample counts as two, itself and its end.
        if self.start.skip(at, 2)? == 0 {
            self.waiting.push_back((at, arrays));
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<PackedBatch> {
        self.take(self.shape.rows())
    }

    fn end(&mut self, end: Point) {
        self.ended = Some(end);
    }

    fn rest(&mut self, _: bool) -> Option<PackedBatch> {
        let end = self.ended?;
        let batch = self.take(self.waiting.len())?;
        Some(PackedBatch {
            next: end.into(),
            ..batch
        })
    }

    fn blank(&self) -> PackedBatch {
        PackedBatch {
            content: BatchContent::Samples(Vec::new()),
            own: 0,
            next: self.ended.unwrap_or_default().into(),
            sources: Sources {
                form: Form::Rows,
                pieces: Vec::new(),
            },
        }
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
