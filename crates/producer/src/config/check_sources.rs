//! Checks of `[[sources]]`.

use std::collections::BTreeSet;

use batchweave_core::ids::ProducerName;
use batchweave_core::limits::SOURCES_MAX;
use batchweave_core::order::{Weight, WeightError};
use batchweave_daemon::config::{ByteSize, Problem};

use super::{NamedSource, ProducerConfig, ShuffleConfig};

/// Windows of a source in memory: one that is given, and one that is read or tokenized.
const WINDOWS: u64 = 2;

impl ProducerConfig {
    pub(super) fn check_sources(&self, problems: &mut Vec<Problem>) {
        if let (true, Some(shuffle)) = (self.sources.is_empty(), self.source.shuffle) {
            if let Some(why) = shuffle.fault() {
                problems.push(Problem::new("source.shuffle.window", why));
            }
            return self.clone().with_named_source().check_memory(problems);
        }
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
        self.check_beside_sources(&mut wrong);
        self.check_source_names(&mut wrong);
        for (number, source) in self.sources.iter().enumerate() {
            // A source without a name is known by its number, from 1.
            let table = match source.name.as_str() {
                "" => format!("sources.{}", number + 1),
                name => format!("sources.{name}"),
            };
            let faults = source.faults().into_iter();
            problems.extend(faults.map(|(key, why)| Problem::new(format!("{table}.{key}"), why)));
        }
        if self.sources.iter().all(|source| source.weight == 0.0) {
            problems.push(Problem::new("sources", WeightError::AllZero.to_string()));
        }
        self.check_memory(problems);
    }

    /// Checks that no two sources have one name.
    fn check_source_names(&self, wrong: &mut impl FnMut(String)) {
        let mut names = BTreeSet::new();
        for source in self.sources.iter().filter(|source| !source.name.is_empty()) {
            if !names.insert(&source.name) {
                let name = &source.name;
                wrong(format!(
                    "the name {name:?} is given twice: each source needs its own"
                ));
            }
        }
    }

    /// Checks that `[source]` has no key that each of several sources has for itself.
    fn check_beside_sources(&self, wrong: &mut impl FnMut(String)) {
        if !self.source.paths.is_empty() {
            wrong("can't be combined with source.paths: make these paths a source, or remove [[sources]]".to_owned());
        }
        if self.source.shuffle.is_some() {
            wrong("can't be combined with source.shuffle: give a shuffle to each of the sources that shall have one".to_owned());
        }
        if self.source.grows() {
            wrong("can't be combined with source.follow or source.inbox: give follow or inbox = true to the sources whose files grow".to_owned());
        }
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

impl ShuffleConfig {
    /// Returns why the window is wrong.
    fn fault(self) -> Option<String> {
        (self.window.bytes() < 1 << 20).then(|| "must be at least 1MiB".to_owned())
    }
}

impl NamedSource {
    /// Returns the keys that are wrong, with their causes.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let name = match self.name.as_str() {
            "" => Some("must be given: each source has its own, for example \"web\"".to_owned()),
            name => name
                .parse::<ProducerName>()
                .err()
                .map(|why| why.to_string()),
        };
        let weight = Weight::new(self.weight).err().map(|why| why.to_string());
        let text = |bad: bool, why: &str| bad.then(|| why.to_owned());
        let all = [
            ("name", name),
            ("weight", weight),
            (
                "paths",
                text(
                    self.paths.is_empty(),
                    "must be given: files, folders, patterns or prefixes (s3://, gs://, az://)",
                ),
            ),
            ("field", text(self.field.is_empty(), "must not be empty")),
            ("column", text(self.column.is_empty(), "must not be empty")),
            (
                "shuffle.window",
                self.shuffle.and_then(ShuffleConfig::fault),
            ),
            (
                "epochs",
                text(
                    self.grows() && self.epochs != 1,
                    "must be 1 with follow: files that grow have no end to start again from",
                ),
            ),
        ];
        let faults = all.into_iter();
        faults.filter_map(|(key, why)| Some((key, why?))).collect()
    }
}
