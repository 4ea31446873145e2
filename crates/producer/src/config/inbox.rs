//! The table `[inbox]`: how inboxes are read (`source.inbox`).

use batchweave_core::inbox::is_writer;
use batchweave_daemon::config::Problem;
use serde::{Deserialize, Serialize};

use super::{ProducerConfig, SourceConfig};

/// When files of inboxes are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delete {
    #[default]
    Never,
    /// When all their rows are in committed batches.
    Committed,
}

/// The table `[inbox]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InboxConfig {
    /// The writers after whose end the producer finishes; it never does without.
    pub writers: Vec<String>,
    pub delete: Delete,
}

impl ProducerConfig {
    pub(super) fn check_inbox(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, message: String| problems.push(Problem::new(key, message));
        let inbox = self.source.inbox || self.sources.iter().any(|source| source.inbox);
        if !inbox && self.inbox != InboxConfig::default() {
            wrong(
                "inbox",
                "is for source.inbox = true, or inbox = true in one of [[sources]]".to_owned(),
            );
        }
        if let Some(name) = self.inbox.writers.iter().find(|name| !is_writer(name)) {
            wrong(
                "inbox.writers",
                format!(
                    "{name:?} can't be a writer's name, which is up to 63 of a-z, 0-9, '.', '_' and '-', first a letter or digit"
                ),
            );
        }
        for source in self.by_source().iter().map(|config| &config.source) {
            if source.inbox {
                check_source(source, &mut wrong);
            }
        }
    }
}

/// Checks the format and the paths of a source that is an inbox.
fn check_source(source: &SourceConfig, wrong: &mut impl FnMut(&str, String)) {
    if !source.format.is_for_inboxes() {
        wrong(
            "source.format",
            "is \"parquet\" in inboxes; remove it".to_owned(),
        );
    }
    let pattern = source
        .paths
        .iter()
        .find(|path| path.contains(['*', '?', '[']));
    if let Some(path) = pattern {
        wrong(
            "source.paths",
            format!(
                "{path:?} is a pattern, and source.inbox takes the folder of an inbox, as \"s3://bucket/inbox\""
            ),
        );
    }
}
