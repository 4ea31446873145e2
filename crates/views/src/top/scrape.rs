//! One scrape of a daemon: `/metrics` and `/readyz`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use batchweave_console::CliError;
use batchweave_console::admin_endpoint::{ANSWER_BYTES_MAX, get};
use tokio::time::Instant;

/// The beginning of a consumer daemon's metrics, and one that every such daemon has.
const PREFIX: &str = "batchweave_consumer_";
const SESSIONS: &str = "sessions";

#[derive(Debug, Clone)]
pub(super) struct Scrape {
    pub(super) at: Instant,
    pub(super) ready: bool,
    /// The text of `/readyz`.
    pub(super) doing: String,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    /// The name after `batchweave_consumer_`.
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    /// Scrapes the daemon at `admin`.
    pub(super) async fn fetch(admin: &str) -> Result<Self, CliError> {
        let failed = |why: io::Error| {
            CliError::Absent(format!(
                "no metrics at {admin}: {why}; name the consumer daemon's admin.listen with --admin"
            ))
        };
        let answer = |path| get(admin, path, ANSWER_BYTES_MAX);
        let (_, metrics) = answer("/metrics").await.map_err(failed)?;
        let (ready, doing) = answer("/readyz").await.map_err(failed)?;
        let scrape = Self {
            at: Instant::now(),
            ready,
            doing: doing.trim().to_owned(),
            samples: metrics.lines().filter_map(sample).collect(),
        };
        if scrape.all(SESSIONS).next().is_none() {
            return Err(CliError::Absent(format!(
                "{admin} is not a consumer daemon: its metrics lack {PREFIX}{SESSIONS}"
            )));
        }
        Ok(scrape)
    }

    #[cfg(test)]
    pub(super) fn made_of(metrics: &str, at: Instant) -> Self {
        Self {
            at,
            ready: true,
            doing: "1 rank".to_owned(),
            samples: metrics.lines().filter_map(sample).collect(),
        }
    }

    /// Returns the samples of a metric.
    fn all(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |one| one.name == name)
    }

    /// Returns the sum of a metric's values that have these labels; 0 without any.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &Sample, (name, value): &(&str, &str)| {
            sample.labels.get(*name).is_some_and(|v| v == value)
        };
        let fit = self
            .all(name)
            .filter(|sample| labels.iter().all(|label| has(sample, label)));
        fit.map(|sample| sample.value).sum()
    }

    /// Returns the distinct values of a label.
    pub(super) fn labels(&self, name: &str, label: &str) -> Vec<String> {
        let values: BTreeSet<String> = self
            .all(name)
            .filter_map(|sample| sample.labels.get(label))
            .cloned()
            .collect();
        values.into_iter().collect()
    }
}

/// Parses a line of the text format; `None` for other metrics and comments. Our metrics have no escapes in labels and no timestamps.
fn sample(line: &str) -> Option<Sample> {
    let (left, value) = line.strip_prefix(PREFIX)?.trim().rsplit_once(' ')?;
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
