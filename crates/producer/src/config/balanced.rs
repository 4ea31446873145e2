//! The table `packing.balanced`: bins of equal cost.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use batchweave_core::balance::{BalanceSettings, CostModel, CostSpec};
use batchweave_daemon::config::{Period, Problem};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{PackingMode, ProducerConfig, StageConfig};

/// Most tokens of a window: two windows of 4 bytes and a mark each then take 2.5 GiB.
const WINDOW_TOKENS_MAX: u64 = 1 << 28;
/// With fewer bins per slice, the batches of a window are unlike each other.
const FEW_MICRO_BATCHES: u32 = 4;

/// Bins, their cost, and the batches that are arranged together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BalancedConfig {
    /// Most tokens of a bin, which is one micro-batch of one slice.
    pub tokens: u32,
    /// Bins per slice and batch.
    pub micro_batches: u32,
    /// Most batches that are arranged together.
    pub window: u32,
    pub cost: CostSetting,
    /// Number of tokens of a document whose attention costs as much as all else.
    pub crossover: u32,
    pub long: LongDocuments,
    /// A window of followed input ends when nothing has come for this time.
    pub linger: Period,
}

/// The cost of a document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CostSetting {
    Named(NamedCost),
    Own(OwnCost),
}

impl<'de> Deserialize<'de> for CostSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CostVisitor)
    }
}

/// Reads a name or a table, so that an error names the key of the table.
struct CostVisitor;

impl<'de> Visitor<'de> for CostVisitor {
    type Value = CostSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "\"attention\", \"tokens\", or a table as { linear = 1.0, quadratic = 6.1e-5, arrays = { image = 300.0 } }",
        )
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<CostSetting, E> {
        NamedCost::deserialize(name.into_deserializer())
            .map(CostSetting::Named)
            .map_err(|_: E| E::invalid_value(Unexpected::Str(name), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<CostSetting, A::Error> {
        OwnCost::deserialize(MapAccessDeserializer::new(table)).map(CostSetting::Own)
    }
}

/// A cost by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedCost {
    /// Of a transformer: linear in the tokens, and quadratic in the length of a document.
    Attention,
    /// The number of tokens.
    Tokens,
}

/// A cost by its coefficients, in tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnCost {
    /// The cost of a token.
    pub linear: f64,
    /// The cost of the square of a token.
    pub quadratic: f64,
    /// The cost of an item of each array.
    pub arrays: BTreeMap<String, f64>,
}

impl Default for OwnCost {
    fn default() -> Self {
        Self {
            linear: 1.0,
            quadratic: 0.0,
            arrays: BTreeMap::new(),
        }
    }
}

/// The treatment of a document above the tokens of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LongDocuments {
    /// It becomes pieces that share one token.
    #[default]
    Split,
    /// Its first tokens are kept.
    Truncate,
    /// It is a bad document.
    Bad,
}

impl Default for BalancedConfig {
    fn default() -> Self {
        Self {
            tokens: 16_384,
            micro_batches: 4,
            window: 8,
            cost: CostSetting::Named(NamedCost::Attention),
            crossover: 16_384,
            long: LongDocuments::Split,
            linger: Period(Duration::from_secs(30)),
        }
    }
}

impl BalancedConfig {
    /// Returns the keys whose values are not the defaults.
    fn changed(&self) -> impl Iterator<Item = String> {
        let values = |table: &Self| match serde_json::to_value(table) {
            Ok(serde_json::Value::Object(values)) => values,
            _ => serde_json::Map::new(),
        };
        let default = values(&Self::default());
        let own = values(self).into_iter();
        own.filter_map(move |(key, value)| (default.get(&key) != Some(&value)).then_some(key))
    }

    /// Returns whether the crossover decides the cost.
    pub(super) fn costs_attention(&self) -> bool {
        self.cost == CostSetting::Named(NamedCost::Attention)
    }

    fn cost_spec(&self) -> CostSpec {
        match &self.cost {
            CostSetting::Named(NamedCost::Tokens) => CostSpec::tokens(),
            CostSetting::Named(NamedCost::Attention) => CostSpec::attention(self.crossover.into()),
            CostSetting::Own(own) => CostSpec {
                linear: own.linear,
                quadratic: own.quadratic,
                arrays: own.arrays.clone(),
            },
        }
    }
}

impl ProducerConfig {
    /// Returns whether slices are bins of equal cost.
    pub(crate) fn is_balanced(&self) -> bool {
        self.packing.mode == PackingMode::Balanced
    }

    /// Returns the cost of documents; valid after the check of the configuration.
    pub(crate) fn cost_model(&self) -> Result<CostModel, batchweave_core::balance::CostError> {
        let arrays = self.packing.arrays_beside().iter();
        let names: Vec<&str> = arrays.map(|array| array.name.as_str()).collect();
        CostModel::new(&self.packing.balanced.cost_spec(), &names)
    }

    /// Returns the shape of windows, where arrays may have a cost.
    pub(crate) fn balance_settings(&self, by_cost: bool) -> BalanceSettings {
        let table = &self.packing.balanced;
        BalanceSettings {
            slices: self.stream.slices,
            micro_batches: table.micro_batches,
            tokens: table.tokens,
            window: table.window,
            by_cost,
        }
    }

    pub(super) fn check_balanced(&self, problems: &mut Vec<Problem>) {
        if !self.is_balanced() {
            return;
        }
        let table = &self.packing.balanced;
        let mut wrong = |key: &str, message: String| {
            problems.push(Problem::new(format!("packing.balanced.{key}"), message));
        };
        // Tables out of their range are problems of their own.
        let rows = u64::from(self.stream.slices).saturating_mul(table.micro_batches.into());
        let batch = rows.saturating_mul(table.tokens.into());
        let most = WINDOW_TOKENS_MAX / batch.max(1);
        if u64::from(table.window) > most.max(1) {
            wrong(
                "window",
                format!(
                    "{} batches of {batch} tokens are more than two windows in memory may have; at most {most} fit",
                    table.window
                ),
            );
        }
        if batch > WINDOW_TOKENS_MAX {
            wrong(
                "tokens",
                format!(
                    "slices x micro_batches x tokens is {batch} tokens per batch: expected at most {WINDOW_TOKENS_MAX}, since whole batches wait in memory"
                ),
            );
        }
        if let Err(why) = self.balance_settings(false).check()
            && batch > 0
            && batch <= WINDOW_TOKENS_MAX
        {
            wrong("window", why.to_string());
        }
        if let Err(why) = self.cost_model() {
            let key = if matches!(table.cost, CostSetting::Named(_)) {
                "crossover"
            } else {
                "cost"
            };
            wrong(key, why.to_string());
        }
    }

    /// Adds the keys that the file has beside another mode, or beside this one.
    pub(super) fn check_given_balanced(
        &self,
        given: &dyn Fn(&str) -> bool,
        problems: &mut Vec<Problem>,
    ) {
        let table = &self.packing.balanced;
        if !self.is_balanced() {
            let (text, of_stages) = if self.has_bins() {
                (
                    "is that of the stream, whose batches are rows; a stage has seq_len and rows_per_slice, remove it",
                    true,
                )
            } else {
                (
                    "is for packing.mode = \"balanced\" only; set the mode, or remove it",
                    false,
                )
            };
            let is_shape = |key: &str| matches!(key, "tokens" | "micro_batches");
            for key in table.changed().filter(|key| !of_stages || is_shape(key)) {
                let key = format!("packing.balanced.{key}");
                problems.extend(given(&key).then(|| Problem::new(key, text)));
            }
        }
        self.check_crossover(problems);
        if !self.is_balanced() {
            return;
        }
        for (key, other) in [
            ("stream.rows_per_slice", "micro_batches"),
            ("stream.seq_len", "tokens"),
        ] {
            if given(key) {
                let text = format!(
                    "is packing.balanced.{other} with packing.mode = \"balanced\"; write it there"
                );
                problems.push(Problem::new(key, text));
            }
        }
    }

    fn check_crossover(&self, problems: &mut Vec<Problem>) {
        let table = &self.packing.balanced;
        let is_set = table.changed().any(|key| key == "crossover");
        if self.has_bins() && is_set && !table.costs_attention() {
            let text = "is for packing.balanced.cost = \"attention\" only; remove it";
            problems.push(Problem::new("packing.balanced.crossover", text));
        }
    }

    /// Returns a warning for each of the stream and its stages where the batches of a window are unlike each other.
    pub(crate) fn unlike_batches(&self) -> Vec<String> {
        let of_stage = |stage: &StageConfig| {
            let why = self.in_stage(stage).unlike_windows("rows_per_slice")?;
            Some(format!("stages: {:?}: {why}", stage.name))
        };
        let own = self.unlike_windows("micro_batches");
        let own = own.map(|why| format!("packing.balanced: {why}"));
        let stages = self.stages.iter().filter_map(of_stage);
        own.into_iter().chain(stages).collect()
    }

    fn unlike_windows(&self, key: &str) -> Option<String> {
        let table = &self.packing.balanced;
        let few = self.is_balanced() && table.window > 1 && table.micro_batches < FEW_MICRO_BATCHES;
        few.then(|| {
            format!(
                "with {} micro-batches a batch has {} classes of cost, so the batches of a window differ \
                 in the lengths and sources of their documents; set {key} = {FEW_MICRO_BATCHES} or more, or \
                 packing.balanced.window = 1",
                table.micro_batches, table.micro_batches
            )
        })
    }
}
