//! The stages in the state of the log: which one a batch has, and how an entry changes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::Stage;
use super::stages::{StageState, Stages, in_force};
use super::state::Manifest;
use crate::ids::{ProducerName, Seq};

impl Manifest {
    /// Returns the stages of the stream.
    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Returns a shared copy of them.
    pub fn shared_stages(&self) -> Arc<Stages> {
        Arc::clone(&self.stages)
    }

    /// Returns the stages of `producer`, by the sequence numbers from which they are in force.
    pub fn stages_of(&self, producer: &ProducerName) -> BTreeMap<Seq, u64> {
        match self.producers.get(producer) {
            Some(state) => state.stages.clone(),
            None => self.stages.of_unopened(producer).stages,
        }
    }

    /// Returns the stage in force for `producer` at `seq`; 0 is the shape of stream.json.
    pub fn stage_at(&self, producer: &ProducerName, seq: Seq) -> u64 {
        match self.producers.get(producer) {
            Some(state) => in_force(&state.stages, seq),
            None => in_force(&self.stages.of_unopened(producer).stages, seq),
        }
    }

    /// Returns rows per slice and tokens per row of a batch of `producer`.
    pub fn shape_at(&self, producer: &ProducerName, seq: Seq) -> (u32, u32) {
        let stage = self.stages.all.get(&self.stage_at(producer, seq));
        stage.map_or((self.stream.rows_per_slice, self.stream.seq_len), |stage| {
            (stage.rows_per_slice, stage.seq_len)
        })
    }

    /// Returns the stage of a batch of `producer`; `None` for the shape of stream.json.
    pub fn stage_of(&self, producer: &ProducerName, seq: Seq) -> Option<&StageState> {
        self.stages.all.get(&self.stage_at(producer, seq))
    }

    /// Applies a valid `stage` entry.
    pub(super) fn apply_stage(&mut self, e: &Stage) {
        let stages = Arc::make_mut(&mut self.stages);
        let state = StageState {
            name: e.name.clone(),
            rows_per_slice: e.rows_per_slice,
            seq_len: e.seq_len,
            form: e.form.clone(),
            fingerprint: e.fingerprint,
            mixture: e.mixture.as_ref().map(|mixture| mixture.id),
        };
        stages.all.insert(e.id, state);
        let mixture = e.mixture.as_ref().map(|mixture| mixture.id);
        for (name, &seq) in &e.from {
            if let Some(producer) = self.producers.get_mut(name) {
                let producer = Arc::make_mut(producer);
                producer.stages.insert(seq, e.id);
                producer.mixtures.extend(mixture.map(|id| (seq, id)));
            } else {
                let own = stages.unopened.entry(name.clone()).or_default();
                own.stages.insert(seq, e.id);
                own.mixtures.extend(mixture.map(|id| (seq, id)));
            }
        }
    }
}
