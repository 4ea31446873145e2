//! The metrics of a daemon, parsed from the text of its `/metrics`.

use std::collections::BTreeMap;

/// The metrics of a daemon at one time. Names are without the prefix `batchweave_producer_` or `batchweave_consumer_`.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<Sample>);

/// One value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name after the prefix of the daemon.
    pub name: String,
    /// The labels by name.
    pub labels: BTreeMap<String, String>,
    /// The value; NaN and infinities are possible.
    pub value: f64,
}

impl Samples {
    /// Parses the body of an answer; leaves out comments and metrics of other programs.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(sample).collect())
    }

    /// Returns whether the text has no metric of a daemon.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the values of a metric.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |one| one.name == name)
    }

    /// Returns the sum of a metric's values that have these labels; 0 without any.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |one: &Sample| {
            let mut wanted = labels.iter();
            wanted.all(|(label, value)| one.labels.get(*label).is_some_and(|v| v == value))
        };
        let fit = self.all(name).filter(|one| has(one));
        fit.fold(0.0, |sum, one| sum + one.value)
    }

    /// Returns the sums of a metric by the value of `label`, which is empty where a series lacks the label.
    pub fn sums_by(&self, name: &str, label: &str) -> BTreeMap<&str, f64> {
        let mut sums = BTreeMap::new();
        for one in self.all(name) {
            let value = one.labels.get(label).map_or("", String::as_str);
            *sums.entry(value).or_default() += one.value;
        }
        sums
    }

    /// Returns the least value of a metric; `None` without any.
    pub fn least(&self, name: &str) -> Option<f64> {
        let values = self.all(name).map(|one| one.value);
        values.min_by(f64::total_cmp)
    }
}

/// Parses a line of the text format. The metrics of BatchWeave have no escapes in labels and no timestamps.
fn sample(line: &str) -> Option<Sample> {
    let (left, value) = line.strip_prefix("batchweave_")?.trim().rsplit_once(' ')?;
    let left = left
        .strip_prefix("producer_")
        .or(left.strip_prefix("consumer_"))?;
    let (name, labels) = left.split_once('{').unwrap_or((left, ""));
    let pairs = labels
        .trim_end_matches('}')
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()));
    Some(Sample {
        name: name.to_owned(),
        labels: pairs.collect(),
        value: value.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_label() {
        let text = "# HELP x\r\nbatchweave_consumer_rank_step{dp_rank=\"0\"} 12\n\
                    batchweave_consumer_rank_step{dp_rank=\"10\"} 9\n\
                    batchweave_consumer_rank_wait_seconds_total{cause=\"fetching\",dp_rank=\"0\"} 2\n\
                    batchweave_consumer_rank_wait_seconds_total{cause=\"fetching\",dp_rank=\"1\"} 3\n\
                    batchweave_consumer_rank_wait_seconds_total{cause=\"short\",dp_rank=\"1\"} 0.5\n\
                    batchweave_producer_batches 47\nother 1\nbatchweave_consumer_cut{dp_rank=\"0";
        let samples = Samples::parse(text);
        assert_eq!(samples.least("rank_step"), Some(9.0));
        assert_eq!(samples.least("absent"), None);
        assert_eq!(samples.sum("batches", &[]) as u64, 47);
        assert_eq!(samples.sum("other", &[]) as u64, 0);
        let waits = "rank_wait_seconds_total";
        let of_rank = [("cause", "fetching"), ("dp_rank", "1")];
        assert_eq!(samples.sum(waits, &of_rank) as u64, 3);
        assert_eq!(
            samples.sums_by(waits, "cause"),
            BTreeMap::from([("fetching", 5.0), ("short", 0.5)])
        );
        assert!(!samples.is_empty() && Samples::parse("other 1\n").is_empty());
    }
}
