//! The forms of batches: that of stream.json, and those of the configured stages. All are made of the same documents.

use std::sync::Arc;

use batchweave_core::ids::{Hash, Seq};
use batchweave_core::manifest::stages::StageState;
use serde_json::Value;

use super::error::TransformError;
use super::setup::balancing;
use super::{DocumentTransform, Kind};
use crate::config::{PackingMode, ProducerConfig, StageConfig};
use crate::packing::{
    AddedTokens, Balanced, Balancing, Batches, BestFit, Concat, Encoder, Packer, Pairs, Restart,
    Shape,
};

/// The parts that make batches of one shape.
#[derive(Debug, Clone)]
pub struct BatchForm {
    /// The name of the stage; empty for the shape of stream.json.
    pub name: String,
    pub(super) shape: Shape,
    pub(super) mode: PackingMode,
    pub(super) look_ahead: usize,
    /// Of bins: the settings that decide them.
    pub(super) balancing: Option<Balancing>,
    /// Makes slices of packed batches.
    pub encoder: Arc<Encoder>,
    /// The form of slices, as in the name of the stream's tokenizer.
    form: String,
    fingerprint: Option<Hash>,
    /// The settings that decide the bytes, which cursors keep.
    pub(crate) settings: Value,
}

impl BatchForm {
    /// Returns the form of the stream, which has no name.
    pub(super) fn of_stream(config: &ProducerConfig, shape: Shape, encoder: Arc<Encoder>) -> Self {
        Self {
            name: String::new(),
            shape,
            mode: config.packing.mode,
            look_ahead: config.packing.look_ahead,
            balancing: None,
            encoder,
            form: String::new(),
            fingerprint: None,
            settings: Value::Null,
        }
    }

    /// Returns the shape in words, for messages.
    pub(crate) fn words(&self) -> String {
        format!(
            "rows_per_slice = {}, seq_len = {}, form {:?}",
            self.shape.rows_per_slice, self.shape.seq_len, self.form
        )
    }

    /// Returns whether the log means this stage.
    pub(crate) fn is(&self, stage: &StageState) -> bool {
        self.fingerprint == Some(stage.fingerprint)
            && self.form == stage.form
            && self.shape.rows_per_slice == stage.rows_per_slice
            && self.shape.seq_len == stage.seq_len
    }
}

impl DocumentTransform {
    /// Adds the forms of the configured stages.
    pub(super) fn with_stages(mut self, config: &ProducerConfig) -> Result<Self, TransformError> {
        let forms = config.stages.iter().map(|stage| self.stage(config, stage));
        self.stages = forms.collect::<Result<_, _>>()?;
        Ok(self)
    }

    fn stage(
        &self,
        config: &ProducerConfig,
        stage: &StageConfig,
    ) -> Result<BatchForm, TransformError> {
        let own = config.in_stage(stage);
        let shape = own.shape();
        let mode = stage.mode(config);
        let bound = self
            .tokenizer()
            .map_or(0, |tokenizer| tokenizer.identity().id_bound);
        let encoder = if own.is_balanced() {
            Encoder::bins(shape, bound, &self.beside)?
        } else {
            Encoder::rows(shape, bound, &self.beside)?
        };
        Ok(BatchForm {
            name: stage.name.clone(),
            shape,
            mode,
            look_ahead: stage.look_ahead(config),
            balancing: balancing(&own, &self.kind)?.map(|(balancing, _)| balancing),
            encoder: Arc::new(encoder),
            form: self.form_parts(mode).join(", "),
            fingerprint: Some(stage.fingerprint(config)),
            settings: stage.settings(config),
        })
    }

    /// Returns the form of the stream.
    pub(crate) fn stream_form(&self) -> &BatchForm {
        &self.of_stream
    }

    /// Returns the form of the stage of this name, if it is configured.
    pub(crate) fn stage_form(&self, name: &str) -> Option<&BatchForm> {
        self.stages.iter().find(|form| form.name == name)
    }

    /// Returns the configured stages with the settings that decide their batches, for people.
    pub(crate) fn stages_in_words(&self) -> impl Iterator<Item = String> {
        self.stages.iter().map(|form| {
            let settings = form.settings.as_object().into_iter().flatten();
            let settings: Vec<_> = settings
                .map(|(key, value)| format!("{key} = {value}"))
                .collect();
            format!("{}: {}", form.name, settings.join(", "))
        })
    }

    /// Returns the configured stage of this name as the log has it.
    pub fn configured_stage(&self, name: &str) -> Option<StageState> {
        let form = self.stage_form(name)?;
        Some(StageState {
            name: form.name.parse().ok()?,
            rows_per_slice: form.shape.rows_per_slice,
            seq_len: form.shape.seq_len,
            form: form.form.clone(),
            fingerprint: form.fingerprint?,
            mixture: None,
        })
    }

    /// Returns the slices that a packer of this form makes at a time: all of a batch that surely fits in one object, else
    /// one.
    pub(crate) fn slices_at_once(&self, form: &BatchForm) -> u32 {
        let whole = form.encoder.batch_bytes();
        if whole.is_some_and(|bytes| bytes <= self.object_bytes) {
            form.shape.slices
        } else {
            1
        }
    }

    /// Returns the batches of this form from number `next` on; `limit` is that at which the producer ends.
    pub(crate) fn batches(&self, form: &BatchForm, next: Seq, limit: Option<Seq>) -> Batches {
        let shape = Shape {
            slices: self.slices_at_once(form),
            ..form.shape
        };
        Batches {
            next,
            limit,
            ..Batches::from_start(shape, form.shape.slices)
        }
    }

    /// Returns a packer of tokens of this form that starts at `from`; `None` of samples.
    pub(crate) fn token_packer(
        &self,
        form: &BatchForm,
        from: Restart,
        batches: Batches,
    ) -> Option<Box<dyn Packer>> {
        if let Some(balancing) = &form.balancing {
            return Some(Box::new(Balanced::new(balancing.clone(), batches, from)));
        }
        let shape = batches.shape;
        let (Kind::Text { tokenizer, pad, .. } | Kind::Chat { tokenizer, pad, .. }) = &self.kind
        else {
            return None;
        };
        let added = AddedTokens {
            end: tokenizer.identity().end_token,
            pad: *pad,
        };
        Some(match form.mode {
            PackingMode::BestFit | PackingMode::Chat => {
                Box::new(BestFit::new(shape, added, form.look_ahead, from))
            }
            PackingMode::Pairs => Box::new(Pairs::new(shape, *pad, from.at)),
            PackingMode::Concat | PackingMode::Balanced | PackingMode::Opaque => {
                let segments = self.beside.needs_segments();
                Box::new(Concat::new(shape, added, from, segments))
            }
        })
    }
}
