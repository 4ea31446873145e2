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
use crate::transform::DocumentTransform;

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(10);
/// Most tokens that are decoded.
const TOKENS_MAX: usize = 256;
/// Most characters that are shown.
const CHARS_MAX: usize = 400;

/// Takes samples of batches and shows them once they are committed.
pub(crate) struct SampleTaker {
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

impl SampleTaker {
    /// Returns the sampler of the status page; `None` when there is no page on localhost.
    pub(crate) fn for_page(
        config: &ProducerConfig,
        transform: &Arc<DocumentTransform>,
        inputs: &Arc<Inputs>,
        health: &Health,
    ) -> Option<Arc<Self>> {
        let address = config.admin.listen.0?;
        address.ip().is_loopback().then(|| {
            Arc::new(Self {
                transform: transform.clone(),
                inputs: inputs.clone(),
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
        let (tokens, row) = match &batch.content {
            BatchContent::Rows(rows) => (&rows.tokens, rows.stride.saturating_add(1)),
            BatchContent::Bins(bins) => (&bins.tokens, bins.ends.first()?.token),
            BatchContent::Samples(_) => return None,
        };
        let piece = batch.sources.pieces.first()?;
        let row = tokens.len().min(row);
        let text = self.transform.decode(&tokens[..row.min(TOKENS_MAX)])?;
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

impl std::fmt::Debug for SampleTaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampleTaker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::cursor::Cursor;
    use batchweave_core::ids::{Hash, Nonce};
    use batchweave_core::inputs::LinkId;
    use batchweave_core::provenance::{Form, Piece, Sources};

    use super::*;
    use crate::config::TokenizerKind;
    use crate::packing::{Beside, Encoder, Rows, Shape};
    use crate::pipeline::batch::BatchPart;
    use crate::sources::InputList;

    fn sampler() -> SampleTaker {
        let mut config = ProducerConfig::default();
        config.tokenizer.kind = TokenizerKind::Bytes;
        SampleTaker {
            transform: Arc::new(DocumentTransform::new(&config).unwrap()),
            inputs: Arc::new(Inputs::new(InputList::default())),
            health: Health::default(),
            state: Mutex::default(),
        }
    }

    fn batch(text: &str) -> PackedBatch {
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let piece = Piece {
            pass: 0,
            file: 0,
            unit: 6,
            skip: 0,
            items: tokens.len() as u64,
            new_row: true,
        };
        PackedBatch {
            content: BatchContent::Rows(Rows {
                stride: tokens.len() / 2,
                tokens,
                ..Rows::default()
            }),
            sources: Sources {
                form: Form::Sequence,
                pieces: vec![piece],
            },
            ..PackedBatch::default()
        }
    }

    fn group(first_seq: Seq, texts: &[&str], part: Option<BatchPart>) -> BatchGroup {
        let inputs = LinkId {
            epoch: 1,
            nonce: Nonce([0; 8]),
            files: 0,
            hash: Hash([0; 32]),
        };
        let shape = Shape {
            slices: 1,
            rows_per_slice: 1,
            seq_len: 1,
        };
        let encoder = Encoder::rows(shape, 256, &Beside::default()).unwrap();
        BatchGroup {
            first_seq,
            batches: texts.iter().map(|text| batch(text)).collect(),
            part,
            cursor: Cursor::default(),
            inputs,
            mixture: None,
            stage: 0,
            encoder: Arc::new(encoder),
            bytes: 0,
            memory: 0,
        }
    }

    fn part(first_slice: u32) -> BatchPart {
        BatchPart {
            number: 0,
            first_slice,
            random: 0,
            last: None,
        }
    }

    #[test]
    fn the_last_batch_of_a_group_is_shown_once_it_is_committed() {
        let sampler = sampler();
        sampler.take(&group(4, &["one, two", "abc, def"], None));
        sampler.committed(5);
        assert_eq!(sampler.health.sample(), None, "batch 5 is not committed");
        sampler.committed(6);
        let shown = sampler.health.sample().unwrap();
        assert_eq!((shown.batch, shown.text.as_str()), (5, "abc, "));
        assert!(shown.source.ends_with(":7"), "{}", shown.source);
        // The next one is due in ten seconds.
        sampler.take(&group(6, &["three"], None));
        sampler.committed(7);
        assert_eq!(sampler.health.sample(), Some(shown));
    }

    #[test]
    fn of_a_batch_in_parts_the_first_one_is_shown() {
        let sampler = sampler();
        sampler.take(&group(3, &["later"], Some(part(1))));
        sampler.committed(9);
        assert_eq!(sampler.health.sample(), None);
        sampler.take(&group(3, &["first", "later"], Some(part(0))));
        sampler.committed(4);
        assert_eq!(sampler.health.sample().unwrap().text, "fir");
    }

    #[test]
    fn a_sample_of_any_row_is_short() {
        let sampler = sampler();
        sampler.take(&group(0, &["\u{2603}".repeat(4000).as_str()], None));
        sampler.committed(1);
        let text = sampler.health.sample().unwrap().text;
        assert!(
            text.ends_with(" ...") && text.chars().count() < 100,
            "{text}"
        );
        assert_eq!(shortened("x".repeat(1000), false).len(), CHARS_MAX + 4);
    }
}
