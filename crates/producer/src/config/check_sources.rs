//! Checks of `[[sources]]`.

use std::collections::BTreeSet;

use batchweave_core::ids::ProducerName;
use batchweave_core::limits::SOURCES_MAX;
use batchweave_core::order::weights;
use batchweave_daemon::config::{ByteSize, Problem};

use super::{NamedSource, ProducerConfig};

/// Windows of a source in memory: one that is given, and one that is read or tokenized.
const WINDOWS: u64 = 2;

impl ProducerConfig {
    pub(super) fn check_sources(&self, problems: &mut Vec<Problem>) {
        if self.sources.is_empty() {
            return;
        }
        let mut wrong = |message: String| problems.push(Problem::new("sources", message));
        if self.sources.len() > SOURCES_MAX {
            wrong(format!(
                "lists {} sources: at most {SOURCES_MAX} fit",
                self.sources.len()
            ));
        }
        if !self.source.paths.is_empty() {
            wrong("can't be combined with source.paths: make these paths a source, or remove [[sources]]".to_owned());
        }
        if self.source.follow {
            wrong("can't be combined with source.follow: name the files in [source] alone, or turn it off".to_owned());
        }
        let mut names = BTreeSet::new();
        for source in &self.sources {
            if let Err(why) = source.name.parse::<ProducerName>() {
                wrong(why.to_string());
            }
            if !names.insert(&source.name) {
                wrong(format!(
                    "the name {:?} is given twice: each source needs its own",
                    source.name
                ));
            }
            if let Some(why) = source.fault() {
                wrong(format!("{:?}: {why}", source.name));
            }
        }
        let numbers: Vec<f64> = self.sources.iter().map(|source| source.weight).collect();
        if let Err(why) = weights(&numbers) {
            wrong(why.to_string());
        }
        self.check_memory(problems);
    }

    /// Two windows of each source must fit.
    fn check_memory(&self, problems: &mut Vec<Problem>) {
        let windows = self.sources.iter().filter_map(|source| source.shuffle);
        let all = windows.clone().fold(0_u64, |sum, shuffle| {
            sum.saturating_add(shuffle.window.bytes().saturating_mul(WINDOWS))
        });
        let memory = self.source.memory;
        if all > memory.bytes() {
            let count = windows.count() as u64;
            let fits = memory.bytes() / (WINDOWS * count.max(1)) >> 20;
            let message = format!(
                "the windows of {count} shuffled sources need {}, twice their sum, and source.memory is {memory}: set each \
                 window to at most {}, or source.memory to {}",
                ByteSize(all),
                ByteSize::mib(fits.max(1)),
                ByteSize(all),
            );
            problems.push(Problem::new("sources", message));
        }
    }
}

impl NamedSource {
    fn fault(&self) -> Option<&'static str> {
        if self.paths.is_empty() {
            return Some("paths must be given: files, folders, patterns or s3:// prefixes");
        }
        if self.field.is_empty() || self.column.is_empty() {
            return Some("field and column must not be empty");
        }
        let window = self.shuffle.map(|shuffle| shuffle.window.bytes());
        if window.is_some_and(|window| window < 1 << 20) {
            return Some("shuffle.window must be at least 1MiB");
        }
        None
    }
}
