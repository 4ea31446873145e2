//! A sample of the data for the status page: the beginning of the first row of a batch, decoded.
//!
//! At most one is made per interval, and none while the last one is not committed, so it costs one short decoding
//! per interval. Only an endpoint on localhost shows it: on a network address it has no access control.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use batchweave_core::ids::Seq;
use batchweave_daemon::health::{DataSample, Health};

use crate::config::ProducerConfig;
use crate::packing::{BatchContent, PackedBatch};
use crate::pipeline::batch::BatchGroup;
use crate::sources::Inputs;
use crate::startup::Parts;
use crate::transform::DocumentTransform;

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(10);
/// Most tokens that are decoded.
const TOKENS_MAX: usize = 256;
/// Most characters that are shown.
const CHARS_MAX: usize = 400;

/// Takes samples of batches and shows them once they are committed.
pub(crate) struct Sampler {
    transform: Arc<DocumentTransform>,
    inputs: Arc<Inputs>,
    health: Health,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: Option<Instant>,
    /// A sample of a batch that is not committed yet.
    pending: Option<DataSample>,
}

impl Sampler {
    /// Returns the sampler of the status page; `None` when there is no page on localhost.
    pub(crate) fn of_page(
        config: &ProducerConfig,
        parts: &Parts,
        health: &Health,
    ) -> Option<Arc<Self>> {
        let address = config.admin.listen.0?;
        address.ip().is_loopback().then(|| {
            Arc::new(Self {
                transform: parts.transform.clone(),
                inputs: parts.inputs.clone(),
                health: health.clone(),
                state: Mutex::default(),
            })
        })
    }

    /// Takes a sample of the last batch of `group`, when one is due.
    pub(crate) fn take(&self, group: &BatchGroup) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = state.taken.is_some_and(|at| at.elapsed() < EVERY);
        if waits || state.pending.is_some() {
            return;
        }
        let (batch, seq) = match &group.part {
            // The slices of one batch, of which the first has the first row.
            Some(part) if part.first_slice > 0 => return,
            Some(_) => (group.batches.first(), group.first_seq),
            None => {
                let others = (group.batches.len() as u64).saturating_sub(1);
                (group.batches.last(), group.first_seq + others)
            }
        };
        state.pending = batch.and_then(|batch| self.sample(batch, seq));
        state.taken = Some(Instant::now());
    }

    /// Shows the pending sample once its batch is below `next_seq`, the producer's next number.
    pub(crate) fn committed(&self, next_seq: Seq) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = state.pending.take_if(|sample| sample.batch < next_seq) {
            self.health.show_sample(sample);
        }
    }

    fn sample(&self, batch: &PackedBatch, seq: Seq) -> Option<DataSample> {
        let BatchContent::Rows(rows) = &batch.content else {
            return None;
        };
        let piece = batch.sources.pieces.first()?;
        let row = rows.tokens.len().min(rows.stride.saturating_add(1));
        let text = self.transform.decode(&rows.tokens[..row.min(TOKENS_MAX)])?;
        let list = self.inputs.now();
        let file = list.files.get(piece.file as usize);
        let name = file.map_or("an input file", |file| file.pin.name.as_str());
        Some(DataSample {
            batch: seq,
            source: format!("{name}:{}", piece.unit.saturating_add(1)),
            text: shortened(text, row > TOKENS_MAX),
        })
    }
}

/// Returns the first characters of `text`, with dots where something is left out.
fn shortened(mut text: String, more: bool) -> String {
    let cut = text.char_indices().nth(CHARS_MAX).map(|(at, _)| at);
    if let Some(at) = cut {
        text.truncate(at);
    }
    if cut.is_some() || more {
        text.push_str(" ...");
    }
    text
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}
