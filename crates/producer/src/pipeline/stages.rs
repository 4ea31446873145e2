//! The stages of a producer: the one that each batch is of, the packer that goes on where the cursor does, and what holds a
//! producer that lacks a stage.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::stages::{StageState, Stages, in_force};
use batchweave_log::ChangesInLog;

use crate::error::RunError;
use crate::packing::{HandingOver, Packer, Restart};
use crate::transform::{BatchForm, DocumentTransform};

/// A stage of the log that the configuration lacks, so that the producer holds before its first batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingStage {
    /// The stage that is missing, and the lines that add it.
    pub(crate) text: String,
    /// The newest stage of the log that was known.
    pub(crate) newest: u64,
}

/// The stages of a producer.
#[derive(Clone)]
pub(crate) struct ProducerStages {
    producer: String,
    transform: Arc<DocumentTransform>,
    /// Number of batches at which the producer ends.
    limit: Option<Seq>,
    /// The stages by the first batch of each.
    from: BTreeMap<Seq, u64>,
    all: Arc<Stages>,
}

/// The packer and the form with which a producer begins.
pub(crate) struct Begun {
    /// `None` where the packer of the stream goes on, without any hand-over.
    pub(crate) packer: Option<Box<dyn Packer>>,
    pub(crate) form: BatchForm,
    pub(crate) stage: u64,
    pub(crate) missing: Option<MissingStage>,
}

impl ProducerStages {
    pub(crate) fn new(
        producer: &str,
        transform: Arc<DocumentTransform>,
        log: &ChangesInLog,
        next_seq: Seq,
        limit: Option<Seq>,
    ) -> Self {
        let stages = Self {
            producer: producer.to_owned(),
            transform,
            limit,
            from: log.stages.clone(),
            all: log.all_stages.clone(),
        };
        stages.announce(next_seq);
        stages
    }

    /// Takes over the stages that the log has for batches after `next_seq`, the next one to be complete. An earlier one came
    /// too late: the producer goes back to its cursor.
    pub(crate) fn learn(&mut self, log: &ChangesInLog, next_seq: Seq) {
        if log.all_stages.newest() == self.all.newest() {
            return;
        }
        let later = log.stages.range(next_seq + 1..);
        self.from.split_off(&(next_seq + 1));
        self.from.extend(later.map(|(seq, id)| (*seq, *id)));
        self.all = log.all_stages.clone();
        self.announce(next_seq);
    }

    /// Logs the stages that are still to begin, and those among them that the configuration lacks, but for one at which the
    /// producer holds at once: `stage_hold` logs that.
    fn announce(&self, next_seq: Seq) {
        for (first, id) in self.from.range(next_seq..) {
            match self.form(*id, *first) {
                Ok(form) => tracing::info!(stage = form.name, first, "a stage begins"),
                Err(_) if *first == next_seq => {}
                Err(missing) => tracing::warn!("{}", missing.text),
            }
        }
    }

    /// Returns the stage that begins with batch `seq`.
    pub(crate) fn begins(&self, seq: Seq) -> Option<u64> {
        self.from.get(&seq).copied()
    }

    fn at(&self, seq: Seq) -> u64 {
        in_force(&self.from, seq)
    }

    /// Returns the form of stage `id`, which begins with batch `first`.
    pub(crate) fn form(&self, id: u64, first: Seq) -> Result<BatchForm, MissingStage> {
        let Some(stage) = self.all.all.get(&id) else {
            return Ok(self.transform.stream_form().clone());
        };
        form_of(&self.transform, stage)
            .cloned()
            .map_err(|lacks| MissingStage {
                text: missing(&self.producer, stage, first, &lacks),
                newest: self.all.newest(),
            })
    }

    /// Returns the packer of `form` that starts at `from` with batch `next`.
    pub(crate) fn packer(
        &self,
        form: &BatchForm,
        from: Restart,
        next: Seq,
    ) -> Option<Box<dyn Packer>> {
        let batches = self.transform.batches(form, next, self.limit);
        self.transform.token_packer(form, from, batches)
    }

    /// Returns the number of slices in a batch, and in what the packer returns.
    pub(crate) fn slices(&self, form: &BatchForm) -> (u32, u32) {
        (form.encoder.slices(), self.transform.slices_at_once(form))
    }

    /// Returns the packer that goes on at `from` with batch `next`, behind the hand-overs that this needs.
    pub(crate) fn begin(&self, from: Restart, next: Seq) -> Result<Begun, RunError> {
        let mut states = from.packers();
        let begun = states.iter().find_map(|(first, _)| *first);
        // The cursor is that of the packer of the batch before.
        let earliest = self.at(begun.unwrap_or(next).saturating_sub(1));
        let earliest = if next == 0 { self.at(0) } else { earliest };
        let mut missing = None;
        if let Some(id) = self.begins(next).filter(|_| next > 0) {
            match self.form(id, next) {
                Ok(_) => {
                    let last = states.last().map(|(_, state)| state.clone());
                    states.extend(last.map(|last| (Some(next), last.handed_over(next))));
                }
                Err(why) => missing = Some(why),
            }
        }
        let mut packers = Vec::new();
        let (mut stage, mut form) = (0, self.transform.stream_form().clone());
        let alone = states.len() == 1;
        // A packer goes on with the batch with which the next one begins.
        let firsts = states.iter().skip(1).filter_map(|(first, _)| *first);
        let nexts: Vec<Seq> = firsts.chain([next]).collect();
        for ((first, state), next_of) in states.into_iter().zip(nexts) {
            stage = first.map_or(earliest, |first| self.at(first));
            form = match self.form(stage, first.unwrap_or(next)) {
                Ok(form) => form,
                Err(why) if next == 0 => {
                    missing = Some(why);
                    stage = 0;
                    form
                }
                Err(why) => return Err(RunError::Stage(why.text)),
            };
            packers.extend(self.packer(&form, state, next_of));
        }
        let mut packers = packers.into_iter();
        let first = packers.next().filter(|_| !(alone && stage == 0));
        let packer = first.map(|first| -> Box<dyn Packer> {
            match packers.len() {
                0 => first,
                _ => Box::new(HandingOver::new(first, packers.collect())),
            }
        });
        Ok(Begun {
            packer,
            form,
            stage,
            missing,
        })
    }
}

/// Returns the configured form of a stage of the log, or why it is missing.
fn form_of<'a>(
    transform: &'a DocumentTransform,
    stage: &StageState,
) -> Result<&'a BatchForm, String> {
    match transform.stage_form(stage.name.as_str()) {
        Some(form) if form.is(stage) => Ok(form),
        None => Err("this configuration has none of that name".to_owned()),
        Some(form) => {
            let words = form.words();
            Err(format!("the one of this configuration is another: {words}"))
        }
    }
}

fn missing(producer: &str, stage: &StageState, first: Seq, lacks: &str) -> String {
    let name = stage.name.as_str();
    format!(
        "producer {producer} holds before its batch {first}: there stage {name:?} begins, and {lacks}. Set [[stages]] with name = \
         {name:?}, rows_per_slice = {}, seq_len = {} and the [stages.packing] of the other producers (form {:?}, fingerprint \
         {:.16}), and start again; or set another stage at the same batch (`batchweave stage set NAME --config FILE`)",
        stage.rows_per_slice,
        stage.seq_len,
        stage.form,
        stage.fingerprint.to_string()
    )
}

/// Returns what a producer of `transform` will say where it holds, for each stage of `m` from its batch `next_seq` on.
pub(crate) fn lacking(
    transform: &DocumentTransform,
    m: &Manifest,
    producer: &ProducerName,
    next_seq: Seq,
) -> Vec<String> {
    let begin = m.stages_of(producer).into_iter();
    begin
        .filter(|(first, _)| *first >= next_seq)
        .filter_map(|(first, id)| {
            let stage = m.stages().all.get(&id)?;
            let lacks = form_of(transform, stage).err()?;
            Some(missing(producer.as_str(), stage, first, &lacks))
        })
        .collect()
}

impl std::fmt::Debug for ProducerStages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("ProducerStages");
        f.field("from", &self.from).finish_non_exhaustive()
    }
}
