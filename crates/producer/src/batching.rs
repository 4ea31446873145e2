//! The third stage: documents in order become batches, batches become slices, and neighbouring
//! batches are grouped until they fill an object.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, Seq};
use batchweave_core::tgb::{Dtype, Layout, LayoutError, TgbData, frame_bytes};
use serde_json::{Map, Value};

use crate::config::OnBadDocument;
use crate::cursor::State;
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::{Batch, Packer, Point, Shape};
use crate::sources::SourceError;
use crate::tokenizing::Tokenized;

/// Batches that go up and become visible together.
#[derive(Debug)]
pub struct Group {
    /// Numbered on by one; never empty.
    pub tgbs: Vec<TgbData>,
    /// Where the producer stands after the last.
    pub cursor: Cursor,
    /// Bytes of all frames.
    pub bytes: u64,
}

/// What the stage is made of.
#[derive(Debug)]
pub struct BatchingOptions {
    /// Shape of a batch.
    pub shape: Shape,
    /// The token after each document.
    pub end_token: u32,
    /// All tokens are below this.
    pub id_bound: u32,
    /// Number of the next batch.
    pub next_seq: Seq,
    /// Where the documents begin.
    pub from: Point,
    /// Hash of the input list, for the cursor.
    pub inputs: Hash,
    /// What decides the bytes, for the cursor.
    pub settings: Map<String, Value>,
    /// Whether passes go on without end.
    pub endless: bool,
    /// What to do with a bad document.
    pub on_bad_document: OnBadDocument,
    /// A group is full at this size.
    pub object_bytes: u64,
    /// And at this many batches.
    pub group_batches: usize,
}

/// The stage.
#[derive(Debug)]
pub struct Batching {
    options: BatchingOptions,
    packer: Packer,
    layout: Layout,
    group: Option<Group>,
    next_seq: Seq,
    /// Whether this pass has given a document.
    fruitful: bool,
}

impl Batching {
    /// Begins at `options.from`.
    pub fn new(options: BatchingOptions) -> Result<Self, LayoutError> {
        let shape = options.shape;
        // Two bytes a token wherever the vocabulary allows.
        let dtype = if options.id_bound <= 1 << 16 {
            Dtype::U16
        } else {
            Dtype::U32
        };
        Ok(Self {
            packer: Packer::new(shape, options.end_token, options.from),
            layout: Layout::tokens(
                dtype,
                shape.rows_per_slice.into(),
                u64::from(shape.seq_len) + 1,
            )?,
            group: None,
            next_seq: options.next_seq,
            fruitful: false,
            options,
        })
    }

    /// Takes the next unit; groups that became full are pushed to `full`.
    pub fn push(
        &mut self,
        item: Tokenized,
        metrics: &Metrics,
        full: &mut Vec<Group>,
    ) -> Result<(), RunError> {
        match item {
            Tokenized::Bad { error, .. } if self.options.on_bad_document == OnBadDocument::Fail => {
                Err(RunError::Document(error))
            }
            Tokenized::Bad { pass, error } => {
                metrics.bad_documents.inc();
                tracing::warn!(%error, pass, "bad document left out");
                Ok(())
            }
            Tokenized::Document { tokens, bytes } => {
                metrics.documents.inc();
                metrics.text_bytes.inc_by(bytes);
                metrics.tokens.inc_by(tokens.tokens.len() as u64 + 1);
                self.fruitful = true;
                self.packer.push(tokens)?;
                while let Some(batch) = self.packer.pop() {
                    self.add(&batch, full)?;
                }
                Ok(())
            }
        }
    }

    /// A pass is over; one without end must give something.
    pub fn pass_end(&mut self, whole: bool) -> Result<(), RunError> {
        let barren = whole && self.options.endless && !self.fruitful;
        self.fruitful = false;
        if barren {
            Err(SourceError::Barren.into())
        } else {
            Ok(())
        }
    }

    /// The input is over at `end`: fills the last batch with `pad`, if there is such a token.
    pub fn finish(mut self, pad: Option<u32>, end: Point) -> Result<Vec<Group>, RunError> {
        let mut groups = Vec::new();
        if let Some(pad) = pad {
            let empty = Packer::new(self.options.shape, self.options.end_token, end);
            if let Some(batch) = std::mem::replace(&mut self.packer, empty).finish(pad, end) {
                self.add(&batch, &mut groups)?;
            }
        } else if self.packer.waiting() > 1 {
            tracing::info!(
                tokens = self.packer.waiting() - 1,
                "the last, partial batch is dropped (packing.last_batch)"
            );
        }
        groups.extend(self.take());
        Ok(groups)
    }

    /// The group so far, full or not.
    pub fn take(&mut self) -> Option<Group> {
        self.group.take()
    }

    /// Whether batches wait in a group.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    fn add(&mut self, batch: &Batch, full: &mut Vec<Group>) -> Result<(), RunError> {
        let tgb = self.slices(batch)?;
        let frame = frame_bytes(self.layout.payload_len()).unwrap_or(u64::MAX);
        let bytes = frame.saturating_mul(self.options.shape.slices.into());
        let is_full = |g: &mut Group| {
            g.bytes + bytes > self.options.object_bytes
                || g.tgbs.len() >= self.options.group_batches
        };
        full.extend(self.group.take_if(is_full));
        let state = State::new(
            batch.next,
            self.options.inputs,
            self.options.settings.clone(),
        );
        let group = self.group.get_or_insert_with(|| Group {
            tgbs: Vec::new(),
            cursor: Cursor::default(),
            bytes: 0,
        });
        group.tgbs.push(tgb);
        group.cursor = state.to_cursor();
        group.bytes += bytes;
        Ok(())
    }

    fn slices(&mut self, batch: &Batch) -> Result<TgbData, LayoutError> {
        let Shape {
            slices,
            rows_per_slice,
            seq_len,
        } = self.options.shape;
        let (rows, seq_len) = (rows_per_slice as usize, seq_len as usize);
        let payload = |slice: usize| {
            let rows = (0..rows).map(|row| {
                let from = (slice * rows + row) * seq_len;
                &batch.tokens[from..=from + seq_len]
            });
            let tokens: Vec<u32> = rows.flatten().copied().collect();
            self.layout.encode_tokens(&tokens).map(bytes::Bytes::from)
        };
        let payloads: Result<Vec<_>, LayoutError> = (0..slices as usize).map(payload).collect();
        let seq = self.next_seq;
        self.next_seq += 1;
        Ok(TgbData {
            seq,
            rows: u64::from(slices) * u64::from(rows_per_slice),
            tokens: batch.own,
            provenance: None,
            slices: payloads?,
        })
    }
}
