//! `[[sources]]` and `[mixture]`: several sources in shares, in place of the one of `[source]`.

use batchweave_core::order::{ShareUnit, Shuffle, WhenSourceEnds};
use batchweave_daemon::config::ByteSize;
use serde::{Deserialize, Serialize};

use super::{ProducerConfig, SourceConfig};
use crate::sources::Format;

/// One source of several, a table of `[[sources]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedSource {
    pub name: String,
    /// Files, folders, patterns and s3:// prefixes.
    pub paths: Vec<String>,
    pub format: Format,
    /// JSON field with the text or the ids, or field of a tar's samples with the text.
    pub field: String,
    /// Parquet column with the text or the ids.
    pub column: String,
    /// Its share is this weight over the sum of all.
    pub weight: f64,
    /// Number of passes; 0 repeats them for ever.
    pub epochs: u64,
    /// Continue with files that appear later.
    pub follow: bool,
    /// The paths are inboxes.
    pub inbox: bool,
    /// Without it, documents come in the order of the files.
    pub shuffle: Option<ShuffleConfig>,
}

impl Default for NamedSource {
    fn default() -> Self {
        Self {
            name: String::new(),
            paths: Vec::new(),
            format: Format::default(),
            field: "text".to_owned(),
            column: "text".to_owned(),
            weight: 1.0,
            epochs: 1,
            follow: false,
            inbox: false,
            shuffle: None,
        }
    }
}

/// The shuffle of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShuffleConfig {
    pub seed: u64,
    /// Bytes of documents that are shuffled among themselves.
    pub window: ByteSize,
}

impl Default for ShuffleConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            window: ByteSize::mib(128),
        }
    }
}

impl ShuffleConfig {
    /// Returns the shuffle as the order takes it.
    pub fn shuffle(self) -> Shuffle {
        Shuffle {
            seed: self.seed,
            window: self.window.bytes(),
        }
    }
}

/// The table `[mixture]`: how the sources' shares are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MixtureConfig {
    /// The unit of shares.
    pub unit: ShareUnit,
    pub when_source_ends: WhenSourceEnds,
}

impl MixtureConfig {
    /// The mixture that cursors leave out: the default before `when_source_ends = "last"` was one.
    pub(crate) const UNTIL_LAST_WAS_ADDED: Self = Self {
        unit: ShareUnit::Tokens,
        when_source_ends: WhenSourceEnds::GoOn,
    };
}

impl NamedSource {
    /// Returns whether files that appear later join it.
    pub(crate) fn grows(&self) -> bool {
        self.follow || self.inbox
    }
}

impl ProducerConfig {
    /// Returns this configuration as if `source` were its only one.
    pub(crate) fn with_source(&self, source: &NamedSource) -> Self {
        Self {
            source: SourceConfig {
                paths: source.paths.clone(),
                format: source.format,
                field: source.field.clone(),
                column: source.column.clone(),
                epochs: source.epochs,
                follow: source.follow,
                inbox: source.inbox,
                ..self.source.clone()
            },
            ..self.clone()
        }
    }

    /// Returns a configuration for each source, which is its only one: of `[[sources]]`, or of `[source]`.
    pub(crate) fn by_source(&self) -> Vec<Self> {
        if self.sources.is_empty() {
            return vec![self.clone()];
        }
        self.sources.iter().map(|s| self.with_source(s)).collect()
    }
}
