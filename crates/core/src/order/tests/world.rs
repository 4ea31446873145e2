//! Worlds of synthetic sources, run with and without restarts, and the checks of all that the order promises.

use std::collections::BTreeMap;

use super::super::synthetic::{SyntheticDocument, SyntheticFiles, SyntheticForm};
use super::super::*;

/// One source of a world.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// Form, documents and mean size of each file.
    pub(super) files: Vec<(SyntheticForm, u64, u64)>,
    pub(super) window: Option<u64>,
    pub(super) passes: u64,
    pub(super) weight: f64,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) sources: Vec<Source>,
    pub(super) seed: u64,
    pub(super) of: u32,
    pub(super) unit: ShareUnit,
    /// The documents after which the mixture changes, and its weights.
    pub(super) change: Option<(u64, Vec<f64>)>,
}

/// A document as it was given: source, pass, and the document.
pub(super) type Given = (usize, u64, SyntheticDocument);

/// A world as a producer opens it.
pub(super) struct Opened {
    pub(super) files: Vec<SyntheticFiles>,
    pub(super) orders: Vec<SourceOrder>,
    pub(super) options: SamplerOptions,
}

impl World {
    pub(super) fn open(&self, index: u32) -> Opened {
        let files: Vec<SyntheticFiles> = self.sources.iter().map(Source::files).collect();
        let portion = Portion { index, of: self.of };
        let shuffle = |window| Shuffle {
            seed: self.seed,
            window,
        };
        let orders = self
            .sources
            .iter()
            .zip(&files)
            .enumerate()
            .map(|(n, (source, files))| {
                let shuffle = source.window.map(shuffle);
                SourceOrder::new(&format!("s{n}"), files.blocks(), shuffle, portion)
            });
        let numbers: Vec<f64> = self.sources.iter().map(|source| source.weight).collect();
        Opened {
            orders: orders.collect(),
            files,
            options: SamplerOptions {
                weights: weights(&numbers).unwrap(),
                mixtures: self
                    .change
                    .iter()
                    .map(|(_, numbers)| (1, weights(numbers).unwrap()))
                    .collect(),
                passes: self.sources.iter().map(|source| source.passes).collect(),
                unit: self.unit,
                when_source_ends: WhenSourceEnds::GoOn,
                limit: None,
            },
        }
    }

    /// Returns what producer `index` gives, with restarts before the documents that `stops` selects.
    pub(super) fn run(&self, index: u32, stops: impl Fn(u64) -> bool) -> Vec<Given> {
        let opened = self.open(index);
        let mut state = SamplerState::start(self.sources.len());
        let mut all = Vec::new();
        loop {
            let stored = serde_json::to_string(&state).unwrap();
            let before = all.len();
            state = self.attempt(
                &opened,
                serde_json::from_str(&stored).unwrap(),
                &stops,
                &mut all,
            );
            if all.len() == before {
                return all;
            }
        }
    }

    /// Gives documents from `state` on, up to the next stop, and returns the state after them.
    pub(super) fn attempt(
        &self,
        opened: &Opened,
        state: SamplerState,
        stops: &impl Fn(u64) -> bool,
        all: &mut Vec<Given>,
    ) -> SamplerState {
        let walks = opened.orders.iter().zip(&opened.files).enumerate();
        let mut walks: Vec<_> = walks
            .map(|(n, (order, files))| {
                let passes = opened.options.passes[n];
                Walk::new(order, files, passes, state.at[n].position)
            })
            .collect();
        let begin = state.total[0];
        let mut sampler = Sampler::new(opened.options.clone(), state);
        loop {
            let given = sampler.state().total[0];
            // The log names a change again and again.
            if self.change.as_ref().is_some_and(|(from, _)| *from <= given) {
                sampler.change(1);
            }
            if given > begin && stops(given) {
                return sampler.state().clone();
            }
            let Some(source) = sampler.next() else {
                return sampler.state().clone();
            };
            match walks[source]
                .next_document()
                .unwrap_or_else(|never| match never {})
            {
                Some((at, document)) => {
                    sampler.give(source, at.after(), Some(document.tokens()));
                    all.push((source, at.pass, document));
                }
                None => sampler.end(source),
            }
        }
    }

    /// Checks everything that the order promises of this world; the error is a sentence.
    pub(super) fn check(&self, every: u64) -> Result<(), String> {
        let mut counts: BTreeMap<Given, u32> = BTreeMap::new();
        for index in 0..self.of {
            let whole = self.run(index, |_| false);
            let parts = self.run(index, |given| given.is_multiple_of(every));
            if let Some(n) = whole.iter().zip(&parts).position(|(a, b)| a != b) {
                return Err(format!("with restarts document {n} is another one"));
            }
            if whole.len() != parts.len() {
                return Err("with restarts there are other documents".to_owned());
            }
            self.check_shares(index, &whole)?;
            for given in whole {
                *counts.entry(given).or_default() += 1;
            }
        }
        self.check_once(&counts)?;
        self.check_passes()
    }

    fn check_once(&self, counts: &BTreeMap<Given, u32>) -> Result<(), String> {
        let mut expected = 0;
        for (n, source) in self.sources.iter().enumerate() {
            let files = source.files();
            let weight = self
                .change
                .as_ref()
                .map_or(source.weight, |(_, all)| all[n]);
            if weight == 0.0 || source.weight == 0.0 {
                continue;
            }
            for pass in 0..source.passes {
                for document in files.all() {
                    expected += 1;
                    match counts.get(&(n, pass, document)) {
                        Some(1) => {}
                        other => return Err(format!("{document:?} is given {other:?} times")),
                    }
                }
            }
        }
        let all = self.change.is_some() || counts.len() == expected;
        all.then_some(())
            .ok_or_else(|| "more than the input is given".to_owned())
    }

    /// A source has at most its share and a document more, and at least its share less its part of a document of each.
    fn check_shares(&self, index: u32, given: &[Given]) -> Result<(), String> {
        let amount = |document: &SyntheticDocument| match self.unit {
            ShareUnit::Tokens => document.tokens() as f64,
            ShareUnit::Documents => 1.0,
        };
        let largest = given.iter().map(|(_, _, d)| amount(d)).fold(0.0, f64::max);
        let change = self.change.as_ref().map_or(u64::MAX, |(from, _)| *from) as usize;
        let of = |n: usize| given.iter().filter(|(s, ..)| *s == n).count();
        let left: Vec<usize> = (0..self.sources.len()).map(of).collect();
        for (range, numbers) in [
            (0..change.min(given.len()), None),
            (change.min(given.len())..given.len(), self.change.as_ref()),
        ] {
            let own: Vec<f64> = self.sources.iter().map(|source| source.weight).collect();
            let numbers = numbers.map_or(&own, |(_, numbers)| numbers);
            let sum: f64 = numbers.iter().sum();
            let mut amounts = vec![0.0; numbers.len()];
            let mut seen: Vec<usize> = (0..left.len())
                .map(|n| {
                    given[..range.start]
                        .iter()
                        .filter(|(s, ..)| *s == n)
                        .count()
                })
                .collect();
            for (source, _, document) in &given[range] {
                // Shares end when a source does.
                if (0..left.len()).any(|n| numbers[n] > 0.0 && seen[n] == left[n]) {
                    break;
                }
                amounts[*source] += amount(document);
                seen[*source] += 1;
                let total: f64 = amounts.iter().sum();
                for (n, number) in numbers.iter().enumerate() {
                    let (share, count) = (number / sum, numbers.len() as f64);
                    let (least, most) = (
                        share * (total - count * largest) - 1e-6,
                        share * total + largest + 1e-6,
                    );
                    if !(least..=most).contains(&amounts[n]) {
                        let has = amounts[n];
                        return Err(format!(
                            "producer {index} has {has} of source {n}, not {least} to {most}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Two passes of many blocks have different orders of blocks.
    fn check_passes(&self) -> Result<(), String> {
        for order in self
            .open(0)
            .orders
            .iter()
            .filter(|order| order.is_shuffled())
        {
            let pass = |pass| -> Vec<OpenBlock> {
                let groups = 0..order.groups();
                groups.flat_map(|group| order.group(pass, group)).collect()
            };
            if order.positions() >= 16 && pass(0) == pass(1) {
                return Err("two passes have the same order".to_owned());
            }
        }
        Ok(())
    }
}

impl Source {
    pub(super) fn files(&self) -> SyntheticFiles {
        let mut files = SyntheticFiles::default();
        for &(form, documents, mean) in &self.files {
            files.add(form, documents, mean);
        }
        files
    }
}
