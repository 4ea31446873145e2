//! One scrape of a daemon: `/metrics` and `/readyz`.

use std::collections::BTreeSet;
use std::io;

use batchweave_console::CliError;
use batchweave_console::admin_endpoint::{ANSWER_BYTES_MAX, get};
use batchweave_console::samples::Samples;
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
    samples: Samples,
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
            samples: Samples::parse(&metrics),
        };
        if scrape.samples.all(SESSIONS).next().is_none() {
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
            samples: Samples::parse(metrics),
        }
    }

    /// Returns the sum of a metric's values that have these labels; 0 without any.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples.sum(name, labels)
    }

    /// Returns the distinct values of a label.
    pub(super) fn labels(&self, name: &str, label: &str) -> Vec<String> {
        let values: BTreeSet<String> = self
            .samples
            .all(name)
            .filter_map(|sample| sample.labels.get(label))
            .cloned()
            .collect();
        values.into_iter().collect()
    }
}
