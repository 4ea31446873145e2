//! `[[sources]]` and `[mixture]`: sources in shares; `[source]` alone is one without a name, in the order of its files.

use batchweave_core::order::{ShareUnit, Shuffle, WhenSourceEnds};
use batchweave_daemon::config::ByteSize;
use serde::{Deserialize, Serialize};

use super::{ProducerConfig, SourceConfig};
use crate::sources::Format;

/// The name of the source of `[source]` when it is shuffled.
const SHUFFLED: &str = "source";

/// One source of several, a table of `[[sources]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedSource {
    pub name: String,
    /// Files, folders, patterns and prefixes in stores.
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
            format: SourceConfig::default().format,
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

    /// Returns its name in the pins of its files; `None` for the source of `[source]`.
    pub(crate) fn pin_name(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(self.name.as_str())
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

    /// Returns the configuration in which a shuffled `[source]` is one of `[[sources]]`.
    #[must_use]
    pub(crate) fn with_named_source(mut self) -> Self {
        let Some(shuffle) = self.source.shuffle.take() else {
            return self;
        };
        if let ([], [mut source]) = (&self.sources[..], self.one_source()) {
            SHUFFLED.clone_into(&mut source.name);
            source.shuffle = Some(shuffle);
            self.sources = vec![source];
            let default = NamedSource::default();
            self = self.with_source(&default);
        }
        self
    }

    /// Returns the source of `[source]`, which has no name.
    fn one_source(&self) -> [NamedSource; 1] {
        let source = &self.source;
        [NamedSource {
            name: String::new(),
            paths: source.paths.clone(),
            format: source.format,
            field: source.field.clone(),
            column: source.column.clone(),
            epochs: source.epochs,
            follow: source.follow,
            inbox: source.inbox,
            ..NamedSource::default()
        }]
    }

    /// Returns all sources: those of `[[sources]]`, or the one of `[source]`, which has no name.
    pub(crate) fn all_sources(&self) -> Vec<NamedSource> {
        if !self.sources.is_empty() {
            return self.sources.clone();
        }
        self.one_source().into()
    }

    /// Returns a configuration for each source, which is its only one.
    pub(crate) fn by_source(&self) -> Vec<Self> {
        let all = self.all_sources();
        all.iter().map(|source| self.with_source(source)).collect()
    }
}
