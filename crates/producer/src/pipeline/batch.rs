//! The third stage: documents in order become batches, and neighbouring batches are grouped until they
//! fill an object; a batch that is larger than an object goes on in parts, slice by slice (`cut`). What
//! becomes of a batch's tokens is the next stage's work.

use std::collections::VecDeque;
use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::Seq;
use batchweave_core::inputs::LinkId;
use serde_json::{Map, Value};

pub use super::split::BatchPart;
use super::split::{BatchSplitter, Split};
use crate::config::OnBadDocument;
use crate::cursor::State;
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::{BatchContent, Encoder, PackedBatch, Packer, Point};
use crate::pipeline::tokenize::Tokenized;
use crate::sources::SourceError;

/// Bad documents of which each is told.
const LEFT_OUT_TOLD: u64 = 64;
/// Characters of what is wrong with one.
const ERROR_CHARS: usize = 600;

/// What one object holds: batches that become visible together, or a part of one batch.
#[derive(Debug)]
pub struct BatchGroup {
    /// The first one's number; never empty.
    pub first_seq: Seq,
    /// Numbered on by one; with `part` the slices of one batch.
    pub batches: Vec<PackedBatch>,
    /// Set when this is not all of its batch.
    pub part: Option<BatchPart>,
    /// Where the producer stands after the last.
    pub cursor: Cursor,
    /// The input list that it counts in.
    pub inputs: LinkId,
    /// Bytes of all frames, as far as known before they are made.
    pub bytes: u64,
    /// Bytes of the batches in memory, about.
    pub memory: u64,
}

/// What the stage is made of.
#[derive(Debug)]
pub struct BatchBuilderOptions {
    /// Makes batches.
    pub packer: Box<dyn Packer>,
    /// Slices in a batch, and in what the packer gives.
    pub slices: (u32, u32),
    /// Knows their sizes.
    pub encoder: Arc<Encoder>,
    /// Number of the next batch.
    pub next_seq: Seq,
    /// The input list, for the cursor.
    pub inputs: LinkId,
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

/// Whether the log tells of the `n`-th bad document: of the first ones, then each time when there are twice as
/// many. A file can hold a million of them; the metric counts all.
fn is_told(n: u64) -> bool {
    n <= LEFT_OUT_TOLD || n.is_power_of_two()
}

/// What is wrong with a document may quote it.
fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(ERROR_CHARS) {
        text.truncate(at);
        text.push_str(" ...");
    }
    text
}

/// The stage.
#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchBuilderOptions,
    cutter: BatchSplitter,
    group: Option<BatchGroup>,
    /// Groups that nobody has taken yet.
    full: VecDeque<BatchGroup>,
    next_seq: Seq,
    /// Whether this pass has given a document.
    fruitful: bool,
    /// Bad documents left out so far.
    left_out: u64,
}

impl BatchBuilder {
    /// Begins where `options.packer` does.
    pub fn new(options: BatchBuilderOptions) -> Self {
        let (slices, object_bytes) = (options.slices.0, options.object_bytes);
        Self {
            cutter: BatchSplitter::new(slices, object_bytes, options.encoder.batch_bytes()),
            group: None,
            full: VecDeque::new(),
            next_seq: options.next_seq,
            fruitful: false,
            left_out: 0,
            options,
        }
    }

    /// Takes the next unit; `next_group` gives what became of it.
    pub fn push(&mut self, item: Tokenized, metrics: &Metrics) -> Result<(), RunError> {
        match item {
            Tokenized::Bad { error, .. } if self.options.on_bad_document == OnBadDocument::Fail => {
                Err(RunError::Document(error))
            }
            Tokenized::Bad { pass, error } => {
                metrics.bad_documents.inc();
                self.left_out += 1;
                if is_told(self.left_out) {
                    let error = shortened(error.to_string());
                    tracing::warn!(
                        error,
                        pass,
                        left_out = self.left_out,
                        "bad document left out"
                    );
                }
                Ok(())
            }
            Tokenized::Document { document, bytes } => {
                metrics.documents.inc();
                metrics.text_bytes.inc_by(bytes);
                metrics.tokens.inc_by(document.content.items());
                self.fruitful = true;
                self.options.packer.push(document)?;
                Ok(())
            }
        }
    }

    /// The next group that is full. To be called until there is none, before the next `push`: what
    /// waits here is not bounded otherwise.
    pub fn next_group(&mut self, metrics: &Metrics) -> Option<BatchGroup> {
        while self.full.is_empty() {
            let unit = self.options.packer.pop()?;
            self.add(unit, metrics);
        }
        self.full.pop_front()
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

    /// The input list has grown; this is its name.
    pub fn grown(&mut self, inputs: LinkId) {
        self.options.inputs = inputs;
    }

    /// The input is over at `end`; after it `next_group`, then `finish`.
    pub fn end(&mut self, end: Point) {
        self.options.packer.end(end);
    }

    /// The last groups, when `next_group` gives none any more.
    pub fn finish(mut self, metrics: &Metrics) -> impl Iterator<Item = BatchGroup> {
        if self.options.fill_last {
            let rest = self.options.packer.rest(self.cutter.is_open());
            if let Some(unit) = rest {
                self.add(unit, metrics);
            }
            while self.cutter.is_open() {
                let unit = self.options.packer.blank();
                self.add(unit, metrics);
            }
        } else if self.options.packer.waiting() > 1 || self.cutter.is_open() {
            let waiting = (self.options.packer.waiting() as u64).saturating_sub(1);
            tracing::info!(
                tokens = waiting + self.cutter.waiting(),
                "the last, partial batch is dropped (packing.last_batch)"
            );
        }
        let last = self.take();
        self.full.into_iter().chain(last)
    }

    /// The group so far, full or not.
    pub fn take(&mut self) -> Option<BatchGroup> {
        self.group.take()
    }

    /// Whether batches wait in a group.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Takes what the packer made: a batch, or a slice of one.
    fn add(&mut self, unit: PackedBatch, metrics: &Metrics) {
        if let BatchContent::Rows(rows) = &unit.content {
            let padding = (rows.tokens.len() as u64).saturating_sub(unit.own + 1);
            metrics.padding.inc_by(padding);
        }
        let (all, of_unit) = self.options.slices;
        if of_unit == all {
            self.join(unit);
            return;
        }
        let bytes = self.options.encoder.frame_bytes(&unit, of_unit);
        let mut cuts = Vec::new();
        self.cutter.push(unit, bytes, &mut cuts);
        for cut in cuts {
            match cut {
                Split::Whole(batch) => self.join(batch),
                Split::Part(units, part) => self.part(units, part),
            }
        }
    }

    /// Puts a batch beside others.
    fn join(&mut self, batch: PackedBatch) {
        let bytes = self
            .options
            .encoder
            .frame_bytes(&batch, self.options.slices.0);
        let is_full = |g: &mut BatchGroup| {
            g.bytes.saturating_add(bytes) > self.options.object_bytes
                || g.batches.len() >= self.options.group_batches
        };
        let full = self.group.take_if(is_full);
        self.full.extend(full);
        let mut group = match self.group.take() {
            Some(group) => group,
            None => self.group(),
        };
        self.next_seq += 1;
        group.cursor = self.cursor(&batch);
        group.inputs = self.options.inputs;
        group.bytes = group.bytes.saturating_add(bytes);
        group.memory = group.memory.saturating_add(batch.memory());
        group.batches.push(batch);
        self.group = Some(group);
    }

    fn part(&mut self, units: Vec<PackedBatch>, part: BatchPart) {
        let before = self.group.take();
        self.full.extend(before);
        let mut group = self.group();
        group.cursor = units
            .last()
            .map(|unit| self.cursor(unit))
            .unwrap_or_default();
        let encoder = &self.options.encoder;
        group.bytes = units.iter().map(|unit| encoder.frame_bytes(unit, 1)).sum();
        group.memory = units.iter().map(PackedBatch::memory).sum();
        group.batches = units;
        self.next_seq += u64::from(part.last.is_some());
        group.part = Some(part);
        self.full.push_back(group);
    }

    fn group(&self) -> BatchGroup {
        BatchGroup {
            first_seq: self.next_seq,
            batches: Vec::new(),
            part: None,
            cursor: Cursor::default(),
            inputs: self.options.inputs,
            bytes: 0,
            memory: 0,
        }
    }

    fn cursor(&self, after: &PackedBatch) -> Cursor {
        let settings = self.options.settings.clone();
        State::new(after.next.clone(), self.options.inputs, settings).to_cursor()
    }
}
