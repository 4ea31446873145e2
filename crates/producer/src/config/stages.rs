//! `[[stages]]`: other shapes of the batches, which begin where the log says so.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, StageName};
use batchweave_core::order::named_weights;
use batchweave_daemon::config::Problem;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{PackingMode, ProducerConfig, StreamParameters};

/// Most stages of a configuration.
const STAGES_MAX: usize = 64;
/// Most bytes of a cursor for the pieces that wait where stages begin: two digits per eight pieces of each look-ahead.
const HANDED_BYTES_MAX: usize = 8 << 10;

/// One stage, a table of `[[stages]]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StageConfig {
    pub name: String,
    /// Number of tokens from the start of one row to the start of the next.
    pub seq_len: u32,
    pub rows_per_slice: u32,
    pub packing: StagePackingConfig,
    /// The weights of `[[sources]]` that begin with it; empty to go on with those in force.
    pub weights: BTreeMap<String, f64>,
}

/// The table `[stages.packing]`: what differs from `[packing]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StagePackingConfig {
    /// Without it, that of `[packing]`.
    pub mode: Option<PackingMode>,
    /// Without it, that of `[packing]`.
    pub look_ahead: Option<usize>,
}

impl StageConfig {
    /// Returns the way in which documents are packed.
    pub(crate) fn mode(&self, config: &ProducerConfig) -> PackingMode {
        self.packing.mode.unwrap_or(config.packing.mode)
    }

    pub(crate) fn look_ahead(&self, config: &ProducerConfig) -> usize {
        self.packing.look_ahead.unwrap_or(config.packing.look_ahead)
    }

    /// Returns the settings that decide the bytes of its batches beside those of the producer.
    pub(crate) fn settings(&self, config: &ProducerConfig) -> Value {
        let mode = self.mode(config);
        let mut settings = json!({
            "rows_per_slice": self.rows_per_slice,
            "seq_len": self.seq_len,
            "packing.mode": mode,
        });
        if looks_ahead(mode) {
            settings["packing.look_ahead"] = json!(self.look_ahead(config));
        }
        settings
    }

    /// Returns the hash of these settings.
    pub(crate) fn fingerprint(&self, config: &ProducerConfig) -> Hash {
        Cursor(self.settings(config)).hash()
    }
}

fn looks_ahead(mode: PackingMode) -> bool {
    matches!(mode, PackingMode::BestFit | PackingMode::Chat)
}

/// Returns whether a stage of mode `to` takes the same documents as the mode `from`, and both hand over their tokens.
fn can_follow(from: PackingMode, to: PackingMode) -> bool {
    use PackingMode::{BestFit, Chat, Concat};
    match from {
        Concat | BestFit => matches!(to, Concat | BestFit),
        Chat => to == Chat,
        _ => false,
    }
}

impl ProducerConfig {
    /// Returns this configuration with the shape and the packing of `stage`.
    pub(crate) fn in_stage(&self, stage: &StageConfig) -> Self {
        let mut config = Self {
            stream: StreamParameters {
                rows_per_slice: stage.rows_per_slice,
                seq_len: stage.seq_len,
                ..self.stream.clone()
            },
            stages: Vec::new(),
            ..self.clone()
        };
        config.packing.mode = stage.mode(self);
        config.packing.look_ahead = stage.look_ahead(self);
        config
    }

    pub(super) fn check_stages(&self, problems: &mut Vec<Problem>) {
        if self.stages.is_empty() {
            return;
        }
        let mut wrong = |message: String| problems.push(Problem::new("stages", message));
        if !can_follow(self.packing.mode, self.packing.mode) {
            let why = "are for packing.mode = \"concat\", \"best_fit\" and \"chat\" only: packers of other modes cannot hand over \
                       what waits; go on in another stream";
            return wrong(why.to_owned());
        }
        if self.packing.shuffle_rows.is_some() {
            wrong("cannot be combined with packing.shuffle_rows yet: a window of rows cannot be divided between two shapes".to_owned());
        }
        if !self.packing.arrays_beside().is_empty() {
            wrong("cannot be combined with packing.arrays yet: whether a document fits in a row would depend on the stage".to_owned());
        }
        if self.stages.len() > STAGES_MAX {
            wrong(format!(
                "are {}; at most {STAGES_MAX} are allowed",
                self.stages.len()
            ));
        }
        let modes = self
            .stages
            .iter()
            .map(|stage| (stage.mode(self), stage.look_ahead(self)));
        let own = [(self.packing.mode, self.packing.look_ahead)];
        let all = modes.chain(own).filter(|(mode, _)| looks_ahead(*mode));
        let bytes: usize = all.map(|(_, look_ahead)| look_ahead.div_ceil(8) * 2).sum();
        if bytes > HANDED_BYTES_MAX {
            wrong(format!(
                "look ahead so far that what waits where they begin takes {bytes} bytes of a cursor, and {HANDED_BYTES_MAX} are \
                 allowed: lower look_ahead, of [packing] and of the stages together, to at most {}",
                HANDED_BYTES_MAX * 4
            ));
        }
        let mut names = BTreeSet::new();
        for stage in &self.stages {
            if !names.insert(&stage.name) {
                wrong(format!("has the name {:?} twice", stage.name));
            }
            for fault in self.stage_faults(stage) {
                wrong(format!("{:?}: {fault}", stage.name));
            }
        }
    }

    /// Returns what is wrong with one stage.
    fn stage_faults(&self, stage: &StageConfig) -> Vec<String> {
        let mut faults = Vec::new();
        if let Err(why) = stage.name.parse::<StageName>() {
            faults.push(format!("name: {why}"));
        }
        let mode = stage.mode(self);
        if can_follow(self.packing.mode, mode) {
            let of_stage = |problem: &Problem| {
                let key = problem.key.as_str();
                key.starts_with("stream.") || key.starts_with("packing.") || key == "source.mask"
            };
            let mut found = self.in_stage(stage).check_table();
            self.in_stage(stage).check_columns(&mut found);
            let mut before = self.check_table();
            self.check_columns(&mut before);
            let known = |p: &Problem| {
                before
                    .iter()
                    .any(|b| b.key == p.key && b.message == p.message)
            };
            let new = found.into_iter().filter(|p| of_stage(p) && !known(p));
            faults.extend(new.map(|p| {
                let key = p.key.strip_prefix("stream.").unwrap_or(&p.key).to_owned();
                format!("{key} {}", p.message)
            }));
        } else {
            faults.push(
                "packing.mode must be one that takes the same documents: \"concat\" and \"best_fit\" follow each other, and \
                 \"chat\" follows \"chat\""
                    .to_owned(),
            );
        }
        faults.extend(self.weight_fault(stage));
        faults
    }

    fn weight_fault(&self, stage: &StageConfig) -> Option<String> {
        if stage.weights.is_empty() {
            return None;
        }
        let named = self.clone().with_named_source();
        let known: BTreeSet<&String> = named.sources.iter().map(|source| &source.name).collect();
        if known.is_empty() {
            return Some("weights are for [[sources]] only".to_owned());
        }
        let given: BTreeSet<&String> = stage.weights.keys().collect();
        if let Some(name) = given.difference(&known).next() {
            return Some(format!(
                "weights name {name:?}, which is none of [[sources]]"
            ));
        }
        if let Some(name) = known.difference(&given).next() {
            return Some(format!(
                "weights leave out {name:?}: give each source one, 0 leaves it out"
            ));
        }
        named_weights(&stage.weights)
            .err()
            .map(|why| format!("weights: {why}"))
    }
}
