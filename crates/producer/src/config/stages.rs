//! `[[stages]]`: other shapes of the batches, which begin where the log says so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, StageName};
use batchweave_core::limits::{CURSOR_BYTES_MAX, SOURCE_STATE_BYTES_MAX};
use batchweave_core::order::named_weights;
use batchweave_daemon::config::Problem;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    DocumentKind, LongDocuments, PackingConfig, PackingMode, ProducerConfig, StreamParameters,
};
use crate::packing::Carried;

/// Most stages of a configuration.
const STAGES_MAX: usize = 64;
/// Bytes of a cursor that are kept free for its place, the input list and the settings of the stream.
const OTHER_BYTES: usize = 2 << 10;

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
        let of_stream = match self.mode(config) {
            PackingMode::Balanced => PackingConfig::default().look_ahead,
            _ => config.packing.look_ahead,
        };
        self.packing.look_ahead.unwrap_or(of_stream)
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
        let balanced = &config.packing.balanced;
        if mode == PackingMode::Balanced {
            settings["packing.balanced.window"] = json!(balanced.window);
            settings["packing.balanced.cost"] = json!(balanced.cost);
            if balanced.costs_attention() {
                settings["packing.balanced.crossover"] = json!(balanced.crossover);
            }
        } else if config.is_balanced() {
            // The settings of a stream of bins leave it out.
            settings["packing.pad_token"] = json!(config.packing.pad_token);
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

/// Returns the modes that take these documents and hand over their tokens.
fn modes(documents: DocumentKind) -> &'static [PackingMode] {
    use PackingMode::{Balanced, BestFit, Chat, Concat};
    match documents {
        DocumentKind::Text | DocumentKind::Ids => &[Concat, BestFit, Balanced],
        DocumentKind::Conversation => &[Chat, Balanced],
        DocumentKind::Pair | DocumentKind::Sample => &[],
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
        if config.is_balanced() {
            let table = &mut config.packing.balanced;
            (table.tokens, table.micro_batches) = (stage.seq_len, stage.rows_per_slice);
        }
        config
    }

    /// Returns whether batches of the stream or of a stage are bins.
    pub(crate) fn has_bins(&self) -> bool {
        let stages = self.stages.iter();
        self.is_balanced()
            || stages
                .into_iter()
                .any(|stage| stage.mode(self) == PackingMode::Balanced)
    }

    /// Returns the most batches of a window, of the stream and its stages.
    pub(crate) fn longest_window(&self) -> u64 {
        let stages = self.stages.iter();
        let windows = stages.map(|stage| self.in_stage(stage).window_batches());
        windows.fold(self.window_batches(), u64::max)
    }

    /// Returns the time without input that ends a window of followed input, where the stream or a stage has windows.
    pub(crate) fn shortest_linger(&self) -> Option<Duration> {
        let stages = self.stages.iter();
        let lingers = stages.filter_map(|stage| self.in_stage(stage).window_linger());
        self.window_linger().into_iter().chain(lingers).min()
    }

    pub(super) fn check_stages(&self, problems: &mut Vec<Problem>) {
        if self.stages.is_empty() {
            return;
        }
        let mut wrong = |message: String| problems.push(Problem::new("stages", message));
        if modes(self.documents()).is_empty() {
            let why = "are for packing.mode = \"concat\", \"best_fit\", \"chat\" and \"balanced\" of texts, ids or conversations only: \
                       packers of pairs and samples cannot hand over what waits; go on in another stream";
            return wrong(why.to_owned());
        }
        if self.packing.shuffle_rows.is_some() {
            wrong("cannot be combined with packing.shuffle_rows yet: a window of rows cannot be divided between two shapes".to_owned());
        }
        if self.has_bins() && self.packing.balanced.long != LongDocuments::Split {
            wrong(
                "need packing.balanced.long = \"split\" where one of them has bins: otherwise it would depend on the stage \
                 whether a document is too long; set it, or go on in another stream"
                    .to_owned(),
            );
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
        if let Some(why) = self.cursor_fault() {
            wrong(why);
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

    /// Returns why cursors may be too large: all that waits may be of stages that begin close to each other.
    fn cursor_fault(&self) -> Option<String> {
        let stages = || self.stages.iter().map(|stage| self.in_stage(stage));
        let waiting = |config: &Self| match config.packing.mode {
            // A bit per piece, in hexadecimal digits.
            mode if looks_ahead(mode) => config.packing.look_ahead.div_ceil(8).saturating_mul(2),
            PackingMode::Balanced => Carried::bytes_max(&config.balance_settings(false)),
            _ => 0,
        };
        let of_stages = stages().map(|config| waiting(&config));
        let bytes = of_stages.fold(waiting(self), usize::saturating_add);
        let settings =
            |stage: &StageConfig| stage.name.len() + stage.settings(self).to_string().len();
        let kept = self.stages.iter().map(settings).sum::<usize>();
        let sources = self.sources.len().max(1) * SOURCE_STATE_BYTES_MAX;
        let room = CURSOR_BYTES_MAX.saturating_sub(OTHER_BYTES + kept + sources);
        (bytes > room).then(|| {
            format!(
                "look ahead so far that what waits where they begin may take {bytes} bytes of a cursor, and {room} are left: lower \
                 look_ahead, of [packing] and of the stages, of which 8 pieces take 2 bytes, or packing.balanced.window, of which a \
                 bin takes up to 7, to 1,024 bins; or list fewer stages"
            )
        })
    }

    /// Returns what is wrong with one stage.
    fn stage_faults(&self, stage: &StageConfig) -> Vec<String> {
        let mut faults = Vec::new();
        if let Err(why) = stage.name.parse::<StageName>() {
            faults.push(format!("name: {why}"));
        }
        if modes(self.documents()).contains(&stage.mode(self)) {
            let of_stage = |problem: &Problem| {
                let key = problem.key.as_str();
                key.starts_with("stream.") || key.starts_with("packing.") || key == "source.mask"
            };
            let mut found = self.in_stage(stage).check_table();
            self.in_stage(stage).check_columns(&mut found);
            self.in_stage(stage).check_balanced(&mut found);
            let mut before = self.check_table();
            self.check_columns(&mut before);
            self.check_balanced(&mut before);
            let known = |p: &Problem| {
                before
                    .iter()
                    .any(|b| b.key == p.key && b.message == p.message)
            };
            let new = found.into_iter().filter(|p| of_stage(p) && !known(p));
            faults.extend(new.map(|p| {
                let key = match p.key.as_str() {
                    "packing.balanced.tokens" => "seq_len",
                    "packing.balanced.micro_batches" => "rows_per_slice",
                    key => key.strip_prefix("stream.").unwrap_or(key),
                };
                format!("{key} {}", p.message)
            }));
        } else {
            faults.push(
                "packing.mode must be one that takes the same documents: \"concat\", \"best_fit\" and \"balanced\" follow each other, \
                 and of conversations \"chat\" and \"balanced\""
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
