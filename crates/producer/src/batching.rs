//! The third stage: documents in order become batches, and neighbouring batches are grouped until they
//! fill an object. What becomes of a batch's tokens is the next stage's work.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, Seq};
use serde_json::{Map, Value};

use crate::config::OnBadDocument;
use crate::cursor::State;
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::{Batch, BatchContent, Encoder, Packer, Point};
use crate::sources::SourceError;
use crate::tokenizing::Tokenized;

/// Batches that go up and become visible together.
#[derive(Debug)]
pub struct Group {
    /// The first one's number; never empty.
    pub first_seq: Seq,
    /// Numbered on by one.
    pub batches: Vec<Batch>,
    /// Where the producer stands after the last.
    pub cursor: Cursor,
    /// Hash of the input list that it counts in.
    pub inputs: Hash,
    /// Bytes of all frames, as far as known before they are made.
    pub bytes: u64,
}

/// What the stage is made of.
#[derive(Debug)]
pub struct BatchingOptions {
    /// Makes batches.
    pub packer: Box<dyn Packer>,
    /// Knows their sizes.
    pub encoder: Arc<Encoder>,
    /// Number of the next batch.
    pub next_seq: Seq,
    /// Hash of the input list, for the cursor.
    pub inputs: Hash,
    /// What decides the bytes, for the cursor.
    pub settings: Map<String, Value>,
    /// Whether passes go on without end.
    pub endless: bool,
    /// Whether the last, partial batch is filled up.
    pub fill_last: bool,
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
    group: Option<Group>,
    next_seq: Seq,
    /// Whether this pass has given a document.
    fruitful: bool,
}

impl Batching {
    /// Begins where `options.packer` does.
    pub fn new(options: BatchingOptions) -> Self {
        Self {
            group: None,
            next_seq: options.next_seq,
            fruitful: false,
            options,
        }
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
            Tokenized::Document { document, bytes } => {
                metrics.documents.inc();
                metrics.text_bytes.inc_by(bytes);
                metrics.tokens.inc_by(document.content.items());
                self.fruitful = true;
                self.options.packer.push(document)?;
                self.pop(metrics, full);
                Ok(())
            }
        }
    }

    fn pop(&mut self, metrics: &Metrics, full: &mut Vec<Group>) {
        while let Some(batch) = self.options.packer.pop() {
            self.add(batch, metrics, full);
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

    /// The input list has grown; this is its hash.
    pub fn grown(&mut self, inputs: Hash) {
        self.options.inputs = inputs;
    }

    /// The input is over at `end`.
    pub fn finish(mut self, metrics: &Metrics, end: Point) -> Vec<Group> {
        let mut groups = Vec::new();
        self.options.packer.end(end);
        self.pop(metrics, &mut groups);
        if self.options.fill_last {
            if let Some(batch) = self.options.packer.rest() {
                self.add(batch, metrics, &mut groups);
            }
        } else if self.options.packer.waiting() > 1 {
            tracing::info!(
                tokens = self.options.packer.waiting() - 1,
                "the last, partial batch is dropped (packing.last_batch)"
            );
        }
        groups.extend(self.take());
        groups
    }

    /// The group so far, full or not.
    pub fn take(&mut self) -> Option<Group> {
        self.group.take()
    }

    /// Whether batches wait in a group.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    fn add(&mut self, batch: Batch, metrics: &Metrics, full: &mut Vec<Group>) {
        let bytes = self.options.encoder.frame_bytes(&batch);
        let is_full = |g: &mut Group| {
            g.bytes.saturating_add(bytes) > self.options.object_bytes
                || g.batches.len() >= self.options.group_batches
        };
        full.extend(self.group.take_if(is_full));
        let seq = self.next_seq;
        self.next_seq += 1;
        if let BatchContent::Rows(rows) = &batch.content {
            let padding = (rows.tokens.len() as u64).saturating_sub(batch.own + 1);
            metrics.padding.inc_by(padding);
        }
        let state = State::new(
            batch.next.clone(),
            self.options.inputs,
            self.options.settings.clone(),
        );
        let group = self.group.get_or_insert_with(|| Group {
            first_seq: seq,
            batches: Vec::new(),
            cursor: Cursor::default(),
            inputs: self.options.inputs,
            bytes: 0,
        });
        group.batches.push(batch);
        group.cursor = state.to_cursor();
        group.inputs = self.options.inputs;
        group.bytes = group.bytes.saturating_add(bytes);
    }
}
