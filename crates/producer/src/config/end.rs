//! The end of a run over several sources, where some of them repeat without end.

use batchweave_core::order::WhenSourceEnds;

use super::{MixtureConfig, NamedSource, ProducerConfig, RunLimit};

impl NamedSource {
    /// Returns whether it is repeated without end.
    pub(crate) fn repeats(&self) -> bool {
        self.epochs == 0 && !self.grows()
    }
}

impl ProducerConfig {
    /// Returns the reaction to a source that ends. The run ends with the last source that has an end only where others
    /// have none and no limit is given: elsewhere that is the same as going on, and cursors keep it so.
    pub(crate) fn when_source_ends(&self) -> WhenSourceEnds {
        let set = self.mixture.when_source_ends;
        let grows = self.sources.iter().any(NamedSource::grows);
        let limited = self.producer.limit != RunLimit::None;
        if set == WhenSourceEnds::Last && (grows || limited || !self.mixes_ends()) {
            return WhenSourceEnds::GoOn;
        }
        set
    }

    /// Returns whether some sources repeat without end and others have one.
    fn mixes_ends(&self) -> bool {
        let repeating = self.sources.iter().filter(|source| source.repeats());
        (1..self.sources.len()).contains(&repeating.count())
    }

    /// Returns the mixture as cursors keep it.
    pub(crate) fn kept_mixture(&self) -> MixtureConfig {
        MixtureConfig {
            when_source_ends: self.when_source_ends(),
            ..self.mixture
        }
    }

    /// Returns a sentence about the end of the run where sources repeat: the first value is true when nothing ends it.
    pub(crate) fn end_of_repeating(&self) -> Option<(bool, String)> {
        let repeating = self.names_of_used(true);
        let finite = self.names_of_used(false);
        let repeats = if self.sources.is_empty() {
            self.source.epochs == 0 && !self.source.grows()
        } else {
            !repeating.is_empty()
        };
        let grows = self.sources.iter().any(NamedSource::grows);
        if !repeats || grows || self.producer.limit != RunLimit::None {
            return None;
        }
        let bound = self.bound_in_words();
        let when = self.when_source_ends();
        let text = match (when, finite.is_empty()) {
            (WhenSourceEnds::Last, false) => format!(
                "the run ends with {finite}; until then {repeating} repeats (epochs = 0); mixture.when_source_ends = \
                 \"go-on\" repeats it without end"
            ),
            (WhenSourceEnds::Finish, false) => format!(
                "the run ends with the first of {finite}; until then {repeating} repeats (epochs = 0)"
            ),
            (WhenSourceEnds::GoOn, false) => format!(
                "the run has no end: after {finite}, {repeating} repeats (epochs = 0), and {bound}"
            ),
            (_, true) => {
                let key = if self.sources.is_empty() {
                    "source.epochs"
                } else {
                    "epochs"
                };
                format!("the run has no end ({key} = 0), and {bound}")
            }
        };
        Some((finite.is_empty() || when == WhenSourceEnds::GoOn, text))
    }

    fn bound_in_words(&self) -> String {
        match self.bound() {
            Some(bound) => format!("{bound} bounds it"),
            None => {
                "nothing bounds it, and it fills the store; set producer.limit, or ahead.max_steps"
                    .to_owned()
            }
        }
    }

    /// Returns the names of the sources with a weight that repeat without end, or of those that do not.
    fn names_of_used(&self, repeat: bool) -> String {
        let of = self.sources.iter().filter(|one| one.repeats() == repeat);
        let of = of
            .filter(|one| one.weight > 0.0)
            .map(|one| one.name.as_str());
        of.collect::<Vec<&str>>().join(", ")
    }

    /// Returns the bound on the lead of the producers with its value.
    pub(crate) fn bound(&self) -> Option<String> {
        let ahead = &self.ahead;
        let steps = (ahead.max_steps > 0).then(|| format!("ahead.max_steps = {}", ahead.max_steps));
        let bytes = (ahead.max_bytes.bytes() > 0)
            .then(|| format!("ahead.max_bytes = \"{}\"", ahead.max_bytes));
        let both: Vec<String> = steps.into_iter().chain(bytes).collect();
        (!both.is_empty()).then(|| both.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parsed_sources;

    fn config(sources: &[(&str, &str)], more: &str) -> ProducerConfig {
        let tables = sources.iter().map(|(name, more)| {
            format!("[[sources]]\nname = \"{name}\"\npaths = [\"x\"]\n{more}\n")
        });
        parsed_sources(&(more.to_owned() + &tables.collect::<String>()))
    }

    #[test]
    fn a_run_ends_with_its_last_source_only_where_that_means_something() {
        let main = ("main", "");
        let tiny = ("tiny", "epochs = 0");
        let limit = "[producer]\nname = \"a\"\nlimit = \"9 batches\"\n";
        let go_on = "[mixture]\nwhen_source_ends = \"go-on\"\n";
        let steps = "[ahead]\nmax_steps = 9\n";
        let new = ("new", "follow = true");
        for (sources, more, when, words) in [
            (
                &[main, tiny][..],
                "",
                WhenSourceEnds::Last,
                Some("ends with main; until then tiny repeats"),
            ),
            (&[main, tiny], limit, WhenSourceEnds::GoOn, None),
            (
                &[main, tiny],
                go_on,
                WhenSourceEnds::GoOn,
                Some("no end: after main, tiny repeats (epochs = 0), and nothing bounds it"),
            ),
            (&[main, tiny, new], "", WhenSourceEnds::GoOn, None),
            (&[main], "", WhenSourceEnds::GoOn, None),
            (
                &[tiny],
                "",
                WhenSourceEnds::GoOn,
                Some("the run has no end (epochs = 0), and nothing bounds it"),
            ),
            (
                &[tiny],
                steps,
                WhenSourceEnds::GoOn,
                Some("(epochs = 0), and ahead.max_steps = 9 bounds it"),
            ),
        ] {
            let config = config(sources, more);
            assert_eq!(config.when_source_ends(), when, "{sources:?} {more}");
            let said = config.end_of_repeating().map(|(_, text)| text);
            match words {
                Some(words) => assert!(
                    said.as_ref().is_some_and(|said| said.contains(words)),
                    "{said:?}"
                ),
                None => assert_eq!(said, None),
            }
        }
    }
}
