//! Checks of the configuration: the ranges and rules of `table`, and contradictions whose words name values.

use std::collections::BTreeSet;

use batchweave_core::ids::ProducerName;
use batchweave_core::stream::StreamOrder;
use batchweave_daemon::config::{Config, Problem};

use super::{NamedSource, ProducerConfig, ShuffleConfig, ShuffleRowsConfig, StageConfig, hints};

impl Config for ProducerConfig {
    fn hint(key: &str, value: Option<&str>) -> Option<String> {
        hints::hint(key, value)
    }

    fn value_hint(key: &str, value: Option<&str>) -> Option<String> {
        hints::value_hint(key, value)
    }

    fn tables_of() -> Vec<(&'static str, serde_json::Value)> {
        let source = NamedSource {
            shuffle: Some(ShuffleConfig::default()),
            ..NamedSource::default()
        };
        let shuffle = serde_json::to_value(ShuffleConfig::default());
        let shuffle_rows = serde_json::to_value(ShuffleRowsConfig::default());
        let tables = [
            ("sources", serde_json::to_value(source)),
            ("stages", serde_json::to_value(StageConfig::default())),
            ("source.shuffle", shuffle),
            ("packing.shuffle_rows", shuffle_rows),
        ];
        let tables = tables.into_iter();
        tables
            .filter_map(|(key, table)| Some((key, table.ok()?)))
            .collect()
    }

    fn stands_in(key: &str) -> &'static [&'static str] {
        match key {
            "source.paths" => &["source", "sources", "sources.*"],
            _ => &[],
        }
    }

    fn check_given(&self, given: &dyn Fn(&str) -> bool) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.check_given_balanced(given, &mut problems);
        problems
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = self.log.check();
        problems.extend(self.store.check());
        problems.extend(self.check_table());
        self.check_sources(&mut problems);
        self.check_part(&mut problems);
        self.check_inbox(&mut problems);
        self.check_arrays(&mut problems);
        self.check_learned(&mut problems);
        self.check_columns(&mut problems);
        self.check_shards(&mut problems);
        self.check_paths(&mut problems);
        self.check_function(&mut problems);
        self.check_shuffle_rows(&mut problems);
        self.check_balanced(&mut problems);
        self.check_stages(&mut problems);
        let lanes = self.check_lanes(&mut problems);
        self.check_names(lanes, &mut problems);
        problems
    }
}

impl ProducerConfig {
    fn check_arrays(&self, problems: &mut Vec<Problem>) {
        let arrays = &self.packing.arrays;
        let mut wrong = |bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new("packing.arrays", message));
            }
        };
        let names: BTreeSet<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
        wrong(names.len() < arrays.len(), "names an array twice");
        let invalid = arrays.iter().any(|array| {
            let bytes = array.item_bytes();
            array.name.is_empty()
                || array.name.ends_with(".offsets")
                || bytes == 0
                || bytes > 1 << 30
        });
        wrong(
            invalid,
            "needs names that do not end in \".offsets\", and items of 1 byte to 1 GiB",
        );
        let fault = arrays
            .iter()
            .find_map(|array| Some((&array.name, array.image_fault()?)));
        if let Some((name, fault)) = fault {
            wrong(true, &format!("{name:?} {fault}"));
        }
    }

    /// Returns the producer's name if it has a valid one. `lanes`: `producer.lanes` takes the place of a name.
    fn check_own_name(&self, lanes: bool, problems: &mut Vec<Problem>) -> Option<ProducerName> {
        let fault = match self.producer.name.parse::<ProducerName>() {
            Ok(name) => return Some(name),
            Err(_) if lanes => return None,
            Err(_) if self.producer.name.is_empty() => {
                "must be given: each producer of a stream has its own, for example \"tokens-0\""
                    .to_owned()
            }
            Err(why) => why.to_string(),
        };
        problems.push(Problem::new("producer.name", fault));
        None
    }

    /// Checks the producer's name and the names of the stream's producers. `lanes`: `producer.lanes` takes the place of a
    /// name.
    fn check_names(&self, lanes: bool, problems: &mut Vec<Problem>) {
        let name = self.check_own_name(lanes, problems);
        for listed in &self.stream.producers {
            if let Err(why) = listed.parse::<ProducerName>() {
                problems.push(Problem::new("stream.producers", why.to_string()));
            }
        }
        let named = self.stream.producers.is_empty()
            || name.is_none_or(|n| self.stream.producers.iter().any(|l| *l == n.as_str()));
        if !named {
            let message = format!(
                "does not list this producer, {:?}; add it, or correct producer.name",
                self.producer.name
            );
            problems.push(Problem::new("stream.producers", message));
        }
        let mut seen = BTreeSet::new();
        let twice = self
            .stream
            .producers
            .iter()
            .find(|listed| !seen.insert(*listed));
        problems.extend(twice.map(|name| {
            let message = format!("names {name:?} twice; give each producer its own name");
            Problem::new("stream.producers", message)
        }));
        if self.stream.order == StreamOrder::Lanes && self.stream.producers.is_empty() {
            problems.push(Problem::new(
                "stream.producers",
                "must list the lanes in turn, since stream.order = \"lanes\"",
            ));
        }
    }
}
