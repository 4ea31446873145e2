//! One scrape of a daemon: `/metrics` and `/readyz`.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::error::CliError;

/// Time-out of a request; the endpoint answers from memory.
const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 8 << 20;
/// A metric that every consumer daemon has and no other program.
const CONSUMER_METRIC: &str = "batchweave_consumer_sessions";

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
        let (_, metrics) = get(admin, "/metrics").await.map_err(failed)?;
        let (ready, doing) = get(admin, "/readyz").await.map_err(failed)?;
        let scrape = Self {
            at: Instant::now(),
            ready,
            doing: doing.trim().to_owned(),
            samples: metrics.lines().filter_map(sample).collect(),
        };
        if scrape
            .samples
            .iter()
            .all(|sample| sample.name != CONSUMER_METRIC)
        {
            return Err(CliError::Absent(format!(
                "{admin} is not a consumer daemon: its metrics lack {CONSUMER_METRIC}"
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

    /// Returns the values of a metric with their labels.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = (&BTreeMap<String, String>, f64)> {
        let of = self
            .samples
            .iter()
            .filter(move |sample| sample.name == name);
        of.map(|sample| (&sample.labels, sample.value))
    }

    /// Returns the sum of a metric's values that have these labels; 0 without any.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |of: &BTreeMap<String, String>| {
            let has = |(name, value): &(&str, &str)| of.get(*name).is_some_and(|v| v == value);
            labels.iter().all(has)
        };
        self.all(name)
            .filter(|(of, _)| fits(of))
            .map(|(_, value)| value)
            .sum()
    }

    /// Returns the distinct values of a label.
    pub(super) fn labels(&self, name: &str, label: &str) -> Vec<String> {
        let values = self.all(name).filter_map(|(labels, _)| labels.get(label));
        let mut values: Vec<String> = values.cloned().collect();
        values.sort();
        values.dedup();
        values
    }
}

/// Returns whether the status is 200, and the body.
async fn get(admin: &str, path: &str) -> io::Result<(bool, String)> {
    let answer = timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream
            .take(ANSWER_BYTES_MAX)
            .read_to_string(&mut text)
            .await?;
        Ok::<_, io::Error>(text)
    });
    let text = answer
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let good = head.split_ascii_whitespace().nth(1) == Some("200");
    Ok((good, body.to_owned()))
}

/// Parses a line of the text format. Our metrics have no escapes in labels and no timestamps.
fn sample(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let (left, value) = line.trim().rsplit_once(' ')?;
    let (name, labels) = match left.split_once('{') {
        Some((name, rest)) => (name, rest.trim_end_matches('}')),
        None => (left, ""),
    };
    let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    Some(Sample {
        name: name.to_owned(),
        labels: pairs
            .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
            .collect(),
        value: value.parse().ok()?,
    })
}
