//! The numbers of both daemons, from their `/metrics` and `/readyz`.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_console::admin_endpoint::{ANSWER_BYTES_MAX, get};
use tokio::time::{Instant, timeout};

/// Longest wait for an answer; both daemons answer from memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer of one daemon.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    pub(super) at: Instant,
    pub(super) ready: bool,
    /// The text of `/readyz`.
    pub(super) doing: String,
    series: Vec<Series>,
}

/// A value with the part of its name after `batchweave_producer_` or `batchweave_consumer_`.
#[derive(Debug, Clone)]
struct Series {
    name: String,
    label: Option<String>,
    value: f64,
}

impl Numbers {
    /// Reads a daemon's numbers; `None` while it does not answer.
    pub(super) async fn read(admin: &str) -> Option<Self> {
        let answers = async {
            let (_, metrics) = get(admin, "/metrics", ANSWER_BYTES_MAX).await.ok()?;
            let (ready, doing) = get(admin, "/readyz", ANSWER_BYTES_MAX).await.ok()?;
            Some(Self::new(&metrics, ready, doing.trim()))
        };
        timeout(PATIENCE, answers).await.ok().flatten()
    }

    /// Returns the numbers in the text of `/metrics`.
    pub(super) fn new(metrics: &str, ready: bool, doing: &str) -> Self {
        Self {
            at: Instant::now(),
            ready,
            doing: doing.to_owned(),
            series: metrics.lines().filter_map(series).collect(),
        }
    }

    fn values(&self, name: &str) -> impl Iterator<Item = f64> {
        let named = self.series.iter().filter(move |one| one.name == name);
        named.map(|one| one.value)
    }

    /// Returns the sum of a metric over its labels; 0 when there is none.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.values(name).sum()
    }

    /// Returns the least value of a metric over its labels.
    pub(super) fn least(&self, name: &str) -> Option<f64> {
        self.values(name).min_by(f64::total_cmp)
    }

    /// Returns the sums of a metric by the value of its first label.
    pub(super) fn by_first_label(&self, name: &str) -> BTreeMap<&str, f64> {
        let mut sums = BTreeMap::new();
        for one in self.series.iter().filter(|one| one.name == name) {
            *sums.entry(one.label.as_deref().unwrap_or("")).or_default() += one.value;
        }
        sums
    }
}

/// Parses a line of the text format; `None` for comments and other programs' metrics.
fn series(line: &str) -> Option<Series> {
    let (left, value) = line.strip_prefix("batchweave_")?.rsplit_once(' ')?;
    let (_, left) = left.split_once('_')?;
    let (name, labels) = left.split_once('{').unwrap_or((left, ""));
    // Labels are sorted by name: `cause` comes before `dp_rank`.
    let first = labels
        .split(',')
        .next()
        .and_then(|pair| pair.split_once('='));
    let label = first.map(|(_, value)| value.trim_end_matches('}').trim_matches('"').to_owned());
    Some(Series {
        name: name.to_owned(),
        label,
        value: value.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_label() {
        let text = "# HELP x\nbatchweave_consumer_rank_step{dp_rank=\"0\"} 12\n\
                    batchweave_consumer_rank_step{dp_rank=\"10\"} 9\n\
                    batchweave_consumer_rank_wait_seconds_total{cause=\"fetching\",dp_rank=\"0\"} 2\n\
                    batchweave_consumer_rank_wait_seconds_total{cause=\"fetching\",dp_rank=\"1\"} 3\n\
                    batchweave_producer_batches 47\nother 1\n";
        let numbers = Numbers::new(text, true, "producing");
        assert_eq!(numbers.least("rank_step"), Some(9.0));
        assert_eq!(numbers.least("absent"), None);
        assert_eq!(numbers.sum("batches") as u64, 47);
        assert_eq!(
            numbers.by_first_label("rank_wait_seconds_total"),
            BTreeMap::from([("fetching", 5.0)])
        );
    }
}
