//! The sources: a thread reads each one (`read_source`), and the batch stage takes the next document from the source that
//! the sampler names. Each source has a read-ahead of its own, since one that has to wait must not hold up others.

use std::collections::VecDeque;
use std::sync::Arc;

use batchweave_core::inputs::LinkId;
use batchweave_core::order::{Position, Sampler, SamplerState};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::mixtures::{MixedSources, WeightsByMixture};
use super::named_files::NamedFiles;
use super::new_files::NewFilePoller;
use super::read::{ChunkSize, ReadEnd};
use super::read_source::SourceReader;
use super::read_stage::{Ordered, PendingChunk, ReadStage};
use super::tokenize::{Tokenized, TokenizerPool};
use crate::config::Selection;
use crate::error::RunError;
use crate::metrics::SourceMetrics;
use crate::progress::{InputPosition, Reached};
use crate::sources::{Inputs, SourceError, SourcePlan};
use crate::worker::Worker;

/// The sources and the state at which they begin.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) sources: MixedSources,
    /// The log sets the weights of the sources, and cursors keep the state of the sampler: they have names.
    pub(crate) named: bool,
    /// The pollers of sources that are followed.
    pub(crate) new_files: Vec<Option<NewFilePoller>>,
    pub(crate) sampler: Sampler,
    pub(crate) selection: Option<Selection>,
    /// The size at which a chunk is full.
    pub(crate) full: ChunkSize,
}

/// The documents of one source that are tokenized.
struct Feed {
    chunks: mpsc::Receiver<Ordered>,
    waiting: Option<PendingChunk>,
    ready: VecDeque<Tokenized>,
    /// The share of `ready` in the read-ahead.
    permit: Option<OwnedSemaphorePermit>,
    /// The first whole pass behind the last document, and the pass that is read.
    passes: (u64, u64),
    /// The list that has grown by files of this source.
    grown: Option<LinkId>,
    /// The place behind the chunk that was given, in the order of the files.
    reached: Option<Reached>,
    /// The place behind the chunk that is given.
    reaches: Option<Reached>,
}

/// The next unit of the mixture.
pub(super) struct MixedItem {
    pub(super) item: Tokenized,
    /// The state before it, where cursors keep it.
    pub(super) before: Option<SamplerState>,
    pub(super) source: usize,
}

/// The documents of all sources in the order of the mixture.
pub(super) struct MixedFeed {
    inputs: Arc<Inputs>,
    plans: Vec<Arc<SourcePlan>>,
    named: bool,
    feeds: Vec<Feed>,
    sampler: Sampler,
}

impl MixedFeed {
    /// Returns the feed of sources whose chunks come through `chunks`.
    fn new(reading: Reading, chunks: Vec<mpsc::Receiver<Ordered>>) -> Self {
        let sampler = reading.sampler;
        let sources = chunks.into_iter().zip(&sampler.state().at);
        let feeds = sources.map(|(chunks, state)| Feed {
            chunks,
            waiting: None,
            ready: VecDeque::new(),
            permit: None,
            passes: {
                let at = state.position;
                let begins = at == Position::pass(at.pass);
                (at.pass + u64::from(!begins), at.pass)
            },
            grown: None,
            reached: None,
            reaches: None,
        });
        let feed = Self {
            inputs: reading.inputs,
            plans: reading.sources.plans,
            named: reading.named,
            feeds: feeds.collect(),
            sampler,
        };
        feed.report_endless();
        feed
    }

    /// Logs that only sources that repeat without end are left, and whether the run ends with that.
    fn report_endless(&self) {
        let follows = self.plans.iter().any(|plan| plan.follows);
        if follows || !self.sampler.only_endless_left() {
            return;
        }
        let endless = self.plans.iter().filter(|plan| plan.passes == 0);
        let left = endless
            .map(|plan| plan.name())
            .collect::<Vec<_>>()
            .join(", ");
        if left.is_empty() {
            return;
        }
        if self.sampler.next().is_none() {
            tracing::info!(
                left,
                "all sources with an end have given their passes, so the run ends"
            );
        } else {
            tracing::warn!(
                left,
                "only sources of epochs = 0 are left, and they repeat: up to producer.limit, and without it for ever"
            );
        }
    }

    /// Returns the state after the last item, where cursors keep it.
    pub(super) fn state(&self) -> Option<&SamplerState> {
        self.named.then(|| self.sampler.state())
    }

    /// Returns the place that a single source has reached since the last call, in the order of its files.
    pub(super) fn reached(&mut self) -> Option<Reached> {
        match &mut self.feeds[..] {
            [feed] if !self.named => feed.reached.take(),
            _ => None,
        }
    }

    /// Returns the longest of the lists that have grown since the last call.
    pub(super) fn grown(&mut self) -> Option<LinkId> {
        let new = self.feeds.iter_mut().filter_map(|feed| feed.grown.take());
        new.max_by_key(|list| list.files)
    }

    /// Adds the weights of mixtures that are still to begin.
    pub(super) fn learn(&mut self, mixtures: WeightsByMixture) {
        for (id, weights) in mixtures {
            self.sampler.learn(id, weights);
        }
    }

    /// Puts a mixture in force with the next item.
    pub(super) fn change(&mut self, mixture: u64) {
        self.sampler.change(mixture);
    }

    /// Returns the next item, if its chunk is there.
    pub(super) fn ready(&mut self) -> Option<MixedItem> {
        let source = self.sampler.next()?;
        let item = self.feeds[source].ready.front()?;
        if self.sampler.holds(source, item.pass()) {
            return None;
        }
        let item = self.feeds[source].ready.pop_front()?;
        Some(self.give(source, item))
    }

    /// Returns the next item, or the way in which reading ended. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<MixedItem, Result<ReadEnd, RunError>> {
        loop {
            if let Some(item) = self.ready() {
                return Ok(item);
            }
            let Some(source) = self.sampler.next() else {
                return Err(Ok(ReadEnd::Complete));
            };
            if !self.feeds[source].ready.is_empty() {
                // Its documents are of a pass that does not begin yet.
                self.sampler.end(source);
                continue;
            }
            if !self.feeds[source].fill().await? {
                self.sampler.end(source);
                self.report_endless();
            }
            let (behind, reads) = self.feeds[source].passes;
            if self.plans[source].passes == 0 && reads > behind {
                return Err(Err(SourceError::Barren.into()));
            }
        }
    }

    fn give(&mut self, source: usize, item: Tokenized) -> MixedItem {
        let before = self.state().cloned();
        let feed = &mut self.feeds[source];
        let (after, tokens) = match &item {
            Tokenized::Document {
                document, after, ..
            } => {
                feed.passes.0 = document.pass + 1;
                let tokens = item.documents().map(|one| one.content.items());
                (*after, Some(tokens.sum()))
            }
            Tokenized::Bad { after, .. } => (*after, None),
        };
        if feed.ready.is_empty() {
            feed.reached = feed.reaches;
        }
        self.sampler.give(source, after, tokens);
        MixedItem {
            item,
            before,
            source,
        }
    }

    /// Counts `item`, which is of `source`.
    pub(super) fn count(&self, item: &Tokenized, source: usize, metrics: &SourceMetrics) {
        let name = self.plans[source].name();
        if !self.named {
            return;
        }
        let state = self.sampler.state();
        for document in item.documents() {
            metrics.count(name, document.content.items());
        }
        let pass = state.at[source].position.pass;
        metrics
            .passes
            .with_label_values(&[name])
            .set(pass.cast_signed());
        metrics.mixture.set(state.mix.cast_signed());
    }

    /// Returns how far the sources are read, by whole groups; `source` gave the last document.
    pub(super) fn progress(&self, source: usize) -> InputPosition {
        let mut bytes = 0_u64;
        let mut total = Some(0_u64);
        let mut sources = Vec::new();
        let list = self.inputs.now();
        for (plan, state) in self.plans.iter().zip(&self.sampler.state().at) {
            let position = plan.progress(state.position, &list);
            bytes = bytes.saturating_add(position.bytes);
            total = total
                .zip(position.total)
                .map(|(all, own)| all.saturating_add(own));
            sources.push(position);
        }
        InputPosition {
            pass: (0, Some(1)),
            file: (1, 1),
            name: self.plans[source].name().to_owned(),
            bytes,
            total,
            sources,
            taken: self.sampler.state().total,
        }
    }
}

impl Feed {
    /// Waits for the results of the next chunk; false at the end of the source. Cancel-safe: a chunk that is waited
    /// for stays in `waiting`.
    async fn fill(&mut self) -> Result<bool, Result<ReadEnd, RunError>> {
        self.permit = None;
        if self.waiting.is_none() {
            match self.chunks.recv().await {
                Some(Ordered::Chunk(chunk)) => self.waiting = Some(chunk),
                Some(Ordered::End(Ok(ReadEnd::Complete))) => return Ok(false),
                Some(Ordered::End(end)) => return Err(end),
                Some(Ordered::Grown(list)) => {
                    self.grown = Some(list);
                    return Ok(true);
                }
                Some(Ordered::PassEnd { pass }) => {
                    self.passes.1 = pass + 1;
                    if self.reached.is_some() || self.reaches.is_some() {
                        self.reached = Some(Reached::pass(pass + 1));
                    }
                    return Ok(true);
                }
                None => return Err(Err(RunError::lost("read", "it sent no end"))),
            }
        }
        let Some(waiting) = &mut self.waiting else {
            return Ok(true);
        };
        let received = (&mut waiting.results).await;
        if let Some(chunk) = self.waiting.take() {
            self.passes.1 = chunk.reached.pass;
            self.permit = Some(chunk.permit);
            self.reaches = Some(chunk.reached);
        }
        let results = received.unwrap_or_else(|why| Err(RunError::lost("tokenize", why)));
        self.ready = results.map_err(Err)?.into();
        if self.ready.is_empty() {
            self.reached = self.reaches;
        }
        Ok(true)
    }
}

/// Starts a thread for each source, and returns their feed.
pub(super) fn start_sources(
    mut reading: Reading,
    pool: &Arc<TokenizerPool>,
    threads: usize,
    ahead: u64,
    files: Option<Arc<NamedFiles>>,
    stop: &CancellationToken,
) -> Result<(MixedFeed, Vec<Worker<()>>), RunError> {
    let mut feeds = Vec::new();
    let mut workers = Vec::new();
    let plans = &reading.sources.plans;
    let each = ahead / (plans.len() as u64).max(1);
    let new_files = std::mem::take(&mut reading.new_files);
    for (source, (plan, new_files)) in plans.iter().zip(new_files).enumerate() {
        // While a window is given, the next one is read.
        let ahead = each.max(plan.window());
        let (reader, chunks, feed) = ReadStage::start(pool.clone(), threads, ahead, files.clone())?;
        feeds.push(chunks);
        let source = SourceReader {
            inputs: reading.inputs.clone(),
            plan: plan.clone(),
            source,
            from: reading.sampler.state().at[source].position,
            selection: reading.selection.clone(),
            new_files,
            full: reading.full,
        };
        workers.push(feed);
        let stop = stop.clone();
        workers.push(Worker::start("read", move || {
            reader.read(|sink| source.run(&stop, sink));
        })?);
    }
    Ok((MixedFeed::new(reading, feeds), workers))
}
