//! The third stage: packs documents in order into batches, and groups neighbouring batches until they fill an
//! object. A batch larger than an object is passed on in parts (`split`).

mod options;
mod stages;

use std::collections::{BTreeMap, VecDeque};

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::Seq;
use batchweave_core::inputs::LinkId;
use batchweave_core::order::SamplerState;
use batchweave_core::provenance::Form;

pub use self::options::BatchBuilderOptions;
pub(crate) use self::stages::keep_stage;
pub use super::group::BatchGroup;
use super::noted::NotedDocuments;
pub use super::split::BatchPart;
use super::split::{BatchSplitter, Split};
use crate::config::OnBadDocument;
use crate::cursor::{AS_PYTHON, State};
use crate::error::RunError;
use crate::metrics::Metrics;
use crate::packing::{BatchContent, Document, Mismatch, PackedBatch, Packer, Point};
use crate::pipeline::tokenize::Tokenized;
use crate::transform::json::Beyond;

/// Returns the splitter of batches of this form.
fn splitter(options: &BatchBuilderOptions) -> BatchSplitter {
    let slices = options.slices.0;
    BatchSplitter::new(slices, options.object_bytes, options.encoder.batch_bytes())
}

/// Makes batches of documents, and groups of batches.
#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchBuilderOptions,
    splitter: BatchSplitter,
    group: Option<BatchGroup>,
    /// Full groups that `next_group` has not returned yet.
    full: VecDeque<BatchGroup>,
    next_seq: Seq,
    noted: NotedDocuments,
    /// Tokens of the current batch that are in no other.
    own: u64,
    /// Of sources with names: where each document begins that no batch has moved past, and the sampler's state there.
    places: VecDeque<(Point, SamplerState)>,
    /// Of sources with names: the sampler's state after the last document.
    order: Option<SamplerState>,
    /// Mixtures that begin with the next document.
    begun: Vec<u64>,
    /// The point where the input ends, once no document follows.
    ended: Option<Point>,
    /// The reason why the packer of a stage could not take what was handed over.
    failed: Option<Mismatch>,
}

impl BatchBuilder {
    /// Returns a builder that starts where `options.packer` does.
    pub fn new(options: BatchBuilderOptions) -> Self {
        Self {
            splitter: splitter(&options),
            group: None,
            full: VecDeque::new(),
            next_seq: options.next_seq,
            noted: NotedDocuments::default(),
            own: 0,
            places: VecDeque::new(),
            order: None,
            begun: Vec::new(),
            ended: None,
            failed: None,
            options,
        }
    }

    /// Adds the changes of the mixture that the log has.
    pub fn learn(&mut self, from: &BTreeMap<Seq, u64>) {
        if let Some(changes) = &mut self.options.changes {
            changes.learn(from, self.next_seq);
        }
    }

    /// Returns the mixtures that begin with the next document, in order, and forgets them.
    pub fn begun(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.begun)
    }

    /// Adds the next unit, with the states of the sampler before and after it where cursors keep them. Call `next_group`
    /// until it returns none before the next `push`, or memory is not bounded.
    pub fn push(
        &mut self,
        item: Tokenized,
        states: Option<(SamplerState, &SamplerState)>,
        metrics: &Metrics,
    ) -> Result<(), RunError> {
        if let Some((before, after)) = states {
            if let Tokenized::Document { document, .. } = &item {
                self.places.push_back((document.point(), before));
            }
            self.order = Some(after.clone());
        }
        match item {
            Tokenized::Bad { error, .. } if self.options.on_bad_document == OnBadDocument::Fail => {
                Err(RunError::from_bad_document(error))
            }
            Tokenized::Bad { pass, error, .. } => {
                self.noted.bad(&error.to_string(), pass, metrics);
                Ok(())
            }
            Tokenized::Document {
                document,
                more,
                bytes,
                beyond,
                truncated,
                ..
            } => {
                if let Some(beyond) = beyond
                    && !self.keeps_beyond(&beyond, document.pass, metrics)
                {
                    return Ok(());
                }
                if let Some(truncated) = truncated {
                    self.noted.truncated(&truncated, metrics);
                }
                metrics.text_bytes.inc_by(bytes);
                self.pack(std::iter::once(document).chain(more), metrics)
            }
        }
    }

    /// Notes a document with JSON beyond the standard. Returns whether it is kept: where the cursor's pieces are of
    /// standard JSON alone, it is bad among their documents.
    fn keeps_beyond(&mut self, beyond: &(Beyond, String), pass: u64, metrics: &Metrics) -> bool {
        if self.options.strict_replay && self.options.packer.replays() {
            self.noted.bad_before(&beyond.1, pass, metrics);
            return false;
        }
        self.noted.beyond(beyond, metrics);
        (self.options.settings).insert(AS_PYTHON.to_owned(), true.into());
        true
    }

    /// Counts documents and passes them on to the packer.
    fn pack(
        &mut self,
        documents: impl Iterator<Item = Document>,
        metrics: &Metrics,
    ) -> Result<(), RunError> {
        for document in documents {
            metrics.documents.inc();
            metrics.tokens.inc_by(document.content.items());
            self.options.packer.push(document)?;
        }
        Ok(())
    }

    /// Returns the next full group.
    pub fn next_group(&mut self, metrics: &Metrics) -> Result<Option<BatchGroup>, RunError> {
        while self.full.is_empty() && self.failed.is_none() && !self.is_over() && !self.waits() {
            let Some(unit) = self.options.packer.pop() else {
                return Ok(None);
            };
            self.add(unit, metrics);
        }
        match self.failed.take_if(|_| self.full.is_empty()) {
            Some(why) => Err(why.into()),
            None => Ok(self.full.pop_front()),
        }
    }

    /// Returns whether no batch may be made yet: its stage is missing, or documents that were taken before a restart come
    /// first, since the next mixture begins behind them.
    fn waits(&self) -> bool {
        let early = self.taken() < self.options.take_first && self.ended.is_none();
        early || self.options.missing.is_some()
    }

    /// Sets the name of the input list, which has grown. Lists of one opening only grow, and sources may tell of theirs in
    /// any order, so a shorter one is not taken.
    pub fn grown(&mut self, inputs: LinkId) {
        if inputs.files > self.options.inputs.files {
            self.options.inputs = inputs;
        }
    }

    /// Declares the input over at `end`. Call `next_group` until it returns none, then `finish`.
    pub fn end(&mut self, end: Point) -> Result<(), RunError> {
        self.ended = Some(end);
        if self.is_over() {
            // Documents in the packer stay out of the stream, and those that a hand-over needs were not read.
            return Ok(());
        }
        Ok(self.options.packer.end(end)?)
    }

    pub(super) fn packer(&mut self) -> &mut dyn Packer {
        self.options.packer.as_mut()
    }

    /// Returns the last groups, after the full ones.
    pub fn finish(mut self, metrics: &Metrics) -> impl Iterator<Item = BatchGroup> {
        if self.options.missing.is_some() {
            tracing::debug!("what waits belongs to a stage that is missing");
        } else if self.is_over() {
            tracing::info!(batches = self.next_seq, "producer.limit is reached");
        } else if self.options.fill_last {
            let rest = self.options.packer.rest(self.splitter.is_open());
            if let Some(unit) = rest {
                // The last token of a sequence is in no batch after this one.
                self.own += u64::from(unit.sources.form == Form::Sequence);
                self.add(unit, metrics);
            }
            while self.splitter.is_open() {
                let unit = self.options.packer.blank();
                self.add(unit, metrics);
            }
        } else if self.options.packer.waiting() > 0 || self.splitter.is_open() {
            let tokens = self.options.packer.waiting() as u64 + self.own;
            metrics.batch_dropped(tokens);
            tracing::info!(
                tokens,
                "the last, partial batch is dropped (packing.last_batch)"
            );
        }
        let last = self.take();
        self.full.into_iter().chain(last)
    }

    /// Returns whether the limit of batches is reached: what waits is dropped, and so is what `finish` would add.
    pub fn is_over(&self) -> bool {
        let most = self.options.batches;
        most.is_some_and(|most| self.next_seq >= most)
    }

    /// Returns the current group, full or not.
    pub fn take(&mut self) -> Option<BatchGroup> {
        self.group.take()
    }

    /// Returns whether batches wait in a group.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Adds a batch of the packer, or a slice of one.
    fn add(&mut self, unit: PackedBatch, metrics: &Metrics) {
        metrics.padding.inc_by(unit.padding());
        if let BatchContent::Bins(bins) = &unit.content {
            metrics.balance.made(bins, self.options.encoder.shape());
        } else {
            metrics.balance.no_bins();
        }
        self.own += unit.own;
        let (all, of_unit) = self.options.slices;
        if of_unit == all {
            self.add_batch(unit, metrics);
            return;
        }
        let bytes = self.options.encoder.frame_bytes(&unit, of_unit);
        let mut splits = Vec::new();
        self.splitter.push(unit, bytes, &mut splits);
        for split in splits {
            match split {
                Split::Whole(batch) => self.add_batch(*batch, metrics),
                Split::Part(units, part) => self.add_part(units, part, metrics),
            }
        }
    }

    /// Adds a whole batch to the group.
    fn add_batch(&mut self, batch: PackedBatch, metrics: &Metrics) {
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
            None => self.empty_group(),
        };
        let border = self.complete(metrics);
        group.cursor = self.cursor(&batch);
        let begins = self.stage_begins();
        let behind = begins.map(|stage| (stage, batch.next.clone()));
        group.inputs = self.options.inputs;
        group.bytes = group.bytes.saturating_add(bytes);
        group.memory = group.memory.saturating_add(batch.memory());
        group.batches.push(batch);
        // An object holds batches of one mixture and one stage only, and no batch of a fork's parent.
        let (group, full) = if border || behind.is_some() {
            (None, Some(group))
        } else {
            (Some(group), None)
        };
        self.full.extend(full);
        self.group = group;
        if let Some((stage, behind)) = behind {
            self.change_stage(stage, behind);
        }
    }

    /// Goes on to the next sequence number; true when a mixture or a fork begins there.
    fn complete(&mut self, metrics: &Metrics) -> bool {
        metrics.batch_made(self.next_seq, std::mem::take(&mut self.own));
        self.show_stage(metrics);
        self.next_seq += 1;
        let taken = self.taken();
        let changes = self.options.changes.as_mut();
        let begins = changes.and_then(|changes| changes.complete(self.next_seq, taken));
        self.begun.extend(begins);
        begins.is_some() || self.next_seq == self.options.first_new
    }

    /// Returns the number of documents that several sources have given.
    fn taken(&self) -> u64 {
        self.order.as_ref().map_or(0, |order| order.total[0])
    }

    fn add_part(&mut self, units: Vec<PackedBatch>, part: BatchPart, metrics: &Metrics) {
        let before = self.group.take();
        self.full.extend(before);
        let mut group = self.empty_group();
        if part.last.is_some() {
            self.complete(metrics);
        }
        let mut behind = None;
        if let Some(unit) = units.last() {
            group.cursor = self.cursor(unit);
            let begins = self.stage_begins().filter(|_| part.last.is_some());
            behind = begins.map(|stage| (stage, unit.next.clone()));
        }
        let encoder = &self.options.encoder;
        group.bytes = units.iter().map(|unit| encoder.frame_bytes(unit, 1)).sum();
        group.memory = units.iter().map(PackedBatch::memory).sum();
        group.batches = units;
        group.part = Some(part);
        self.full.push_back(group);
        if let Some((stage, behind)) = behind {
            self.change_stage(stage, behind);
        }
    }

    fn empty_group(&self) -> BatchGroup {
        BatchGroup {
            first_seq: self.next_seq,
            batches: Vec::new(),
            part: None,
            cursor: Cursor::default(),
            inputs: self.options.inputs,
            mixture: self
                .options
                .changes
                .as_ref()
                .map(|changes| changes.at(self.next_seq)),
            stage: self.options.stage,
            encoder: self.options.encoder.clone(),
            bytes: 0,
            memory: 0,
        }
    }

    fn cursor(&mut self, after: &PackedBatch) -> Cursor {
        let settings = self.options.settings.clone();
        let taken = self.taken();
        let whole_order = self.order_at(after.next.at);
        let changes = self.options.changes.as_mut();
        let next = &after.next;
        let placed = !next.placed.is_empty()
            || !next.carried.is_empty()
            || next.window.is_some()
            || next.left.is_some();
        let order = whole_order.map(|order| match changes {
            Some(changes) => changes.store(order, taken, placed),
            None => order,
        });
        let state = State::new(after.next.clone(), self.options.inputs, settings);
        state.with_order(order).to_cursor()
    }

    /// Returns the state of the sampler before the document at `at`. Batches move forward, so earlier places are not
    /// needed any more.
    fn order_at(&mut self, at: Point) -> Option<SamplerState> {
        while let Some((place, before)) = self.places.front() {
            if place.is_document(at) {
                return Some(before.clone());
            }
            self.places.pop_front();
        }
        self.order.clone()
    }
}
