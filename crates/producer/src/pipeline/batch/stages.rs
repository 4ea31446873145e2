//! The change from one stage to the next, between two batches.

use batchweave_log::ChangesInLog;
use serde_json::{Map, Value};

use super::{BatchBuilder, splitter};
use crate::cursor::STAGES;
use crate::metrics::Metrics;
use crate::packing::{Mismatch, Restart};
use crate::pipeline::stages::MissingStage;
use crate::transform::BatchForm;

/// Adds the settings of a stage that begins to those that cursors keep.
pub(crate) fn keep_stage(settings: &mut Map<String, Value>, form: &BatchForm) {
    if form.name.is_empty() {
        return;
    }
    let stages = settings
        .entry(STAGES)
        .or_insert_with(|| Value::Object(Map::new()));
    stages[&form.name] = form.settings.clone();
}

impl BatchBuilder {
    /// Takes over the stages that the log has.
    pub(crate) fn learn_stages(&mut self, log: &ChangesInLog) {
        if let Some(stages) = &mut self.options.stages {
            stages.learn(log, self.next_seq);
        }
    }

    /// Returns the stage of the next batch, where the producer lacks it: no batch is made.
    pub(crate) fn missing_stage(&self) -> Option<&MissingStage> {
        self.options.missing.as_ref()
    }

    /// Shows the stage of the batch that is complete.
    pub(super) fn show_stage(&self, metrics: &Metrics) {
        let shown = &metrics.sources.stage;
        if self.options.stage > 0 {
            shown.reset();
            let gauge = shown.with_label_values(&[self.options.stage_name.as_str()]);
            gauge.set(self.options.stage.cast_signed());
        }
    }

    /// Returns the stage that begins with the next batch.
    pub(super) fn stage_begins(&self) -> Option<u64> {
        self.options.stages.as_ref()?.begins(self.next_seq)
    }

    /// Goes on in stage `id`; `behind` is the state after the batch before.
    pub(super) fn change_stage(&mut self, id: u64, behind: Restart) {
        if let Err(why) = self.hand_over(id, behind) {
            self.failed = Some(why);
        }
    }

    /// Hands the tokens that wait over to the packer of stage `id`.
    fn hand_over(&mut self, id: u64, behind: Restart) -> Result<(), Mismatch> {
        let options = &mut self.options;
        let Some(stages) = &options.stages else {
            return Ok(());
        };
        let form = match stages.form(id, self.next_seq) {
            Ok(form) => form,
            Err(missing) => {
                options.missing = Some(missing);
                return Ok(());
            }
        };
        let from = behind.handed_over(self.next_seq);
        let Some(mut packer) = stages.packer(&form, from, self.next_seq) else {
            return Ok(());
        };
        for range in options.packer.hand_over() {
            packer.push_range(range)?;
        }
        if let Some(end) = self.ended {
            packer.end(end)?;
        }
        options.packer = packer;
        options.slices = stages.slices(&form);
        options.stage = id;
        options.stage_name.clone_from(&form.name);
        options.encoder = form.encoder.clone();
        self.splitter = splitter(options);
        keep_stage(&mut options.settings, &form);
        Ok(())
    }
}
