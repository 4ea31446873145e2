//! Checks of `[[sources]]`.

use std::collections::BTreeSet;

use batchweave_core::ids::ProducerName;
use batchweave_core::limits::SOURCES_MAX;
use batchweave_core::order::{Weight, WeightError};
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
        if self.source.grows() {
            wrong("can't be combined with source.follow or source.inbox: give follow or inbox = true to the sources whose files grow".to_owned());
        }
        let mut names = BTreeSet::new();
        for source in &self.sources {
            if !names.insert(&source.name) {
                let name = &source.name;
                wrong(format!(
                    "the name {name:?} is given twice: each source needs its own"
                ));
            }
        }
        for source in &self.sources {
            let key = format!("sources.{}", source.name);
            problems.extend(source.faults().map(|why| Problem::new(&*key, why)));
        }
        if self.sources.iter().all(|source| source.weight == 0.0) {
            problems.push(Problem::new("sources", WeightError::AllZero.to_string()));
        }
        self.check_memory(problems);
    }

    /// Two windows of each source must fit, for every lane of the daemon.
    fn check_memory(&self, problems: &mut Vec<Problem>) {
        let windows = self.sources.iter().filter_map(|source| source.shuffle);
        let all = windows.clone().fold(0_u64, |sum, shuffle| {
            sum.saturating_add(shuffle.window.bytes().saturating_mul(WINDOWS))
        });
        let lanes = self.lanes_max() as u64;
        let all = all.saturating_mul(lanes);
        let memory = self.source.memory;
        if all > memory.bytes() {
            let count = windows.count() as u64;
            let fits = (memory.bytes() / (WINDOWS * count.max(1) * lanes)) >> 20;
            let of_lanes = match lanes {
                1 => String::new(),
                lanes => format!(", for each of {lanes} lanes"),
            };
            let message = format!(
                "the windows of {count} shuffled sources need {}, twice their sum{of_lanes}, and source.memory is {memory}: set each \
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
    fn faults(&self) -> impl Iterator<Item = String> {
        let name = self.name.parse::<ProducerName>().err();
        let weight = Weight::new(self.weight).err();
        let paths = self
            .paths
            .is_empty()
            .then_some("paths must be given: files, folders, patterns or s3:// prefixes");
        let empty = self.field.is_empty() || self.column.is_empty();
        let empty = empty.then_some("field and column must not be empty");
        let window = self.shuffle.map(|shuffle| shuffle.window.bytes());
        let window = window.filter(|window| *window < 1 << 20);
        let window = window.map(|_| "shuffle.window must be at least 1MiB");
        let follow = (self.grows() && self.epochs != 1).then_some(
            "epochs must be 1 with follow: files that grow have no end to start again from",
        );
        let texts = [paths, empty, window, follow]
            .into_iter()
            .flatten()
            .map(str::to_owned);
        let name = name.map(|why| why.to_string());
        let weight = weight.map(|why| why.to_string());
        name.into_iter().chain(weight).chain(texts)
    }
}
