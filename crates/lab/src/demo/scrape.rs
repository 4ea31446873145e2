//! Counters from the consumer daemon's `/metrics`. A killed daemon's counters end with it, so they are read
//! until the end and summed over its restarts.

use std::time::Duration;

use batchweave_console::admin_endpoint::{ANSWER_BYTES_MAX, get};
use batchweave_console::samples::Samples;

/// Longest wait for an answer, which the daemon has in memory.
const PATIENCE: Duration = Duration::from_millis(500);

/// Counters by name, summed over labels and restarts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The last counters of the daemons that were killed.
    past: Vec<Samples>,
    current: Samples,
}

impl Counters {
    /// Reads the daemon's counters; leaves the last known ones when it does not answer.
    pub(crate) async fn read(&mut self, port: u16) {
        let admin = format!("127.0.0.1:{port}");
        let answer = tokio::time::timeout(PATIENCE, get(&admin, "/metrics", ANSWER_BYTES_MAX));
        if let Ok(Ok((_, text))) = answer.await {
            let samples = Samples::parse(&text);
            if !samples.is_empty() {
                self.current = samples;
            }
        }
    }

    /// Adds the counters of a daemon that is about to be killed.
    pub(crate) fn end_life(&mut self) {
        self.past.push(std::mem::take(&mut self.current));
    }

    /// Returns a counter's sum over the series with these labels. Names are without `batchweave_consumer_`.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let lives = self.past.iter().chain([&self.current]);
        lives.fold(0.0, |sum, life| sum + life.sum(name, labels))
    }

    /// Returns the number of requests for data.
    pub(crate) fn data_requests(&self) -> f64 {
        self.sum(
            "store_requests_total",
            &[("class", "data"), ("op", "get_range")],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_over_labels_and_lives() {
        let name = |name: &str, labels: &str| format!("batchweave_consumer_{name}{labels}");
        let requests = |op: &str, count: u64| {
            let labels = format!("{{class=\"data\",op=\"{op}\"}} {count}\n");
            name("store_requests_total", &labels)
        };
        let text = requests("get_range", 2) + &requests("put", 3) + &name("b", " 7\n");
        let mut counters = Counters {
            current: Samples::parse(&text),
            ..Counters::default()
        };
        counters.end_life();
        counters.current = Samples::parse(&name("b", " 1\n"));
        assert_eq!(counters.sum("store_requests_total", &[]) as u64, 5);
        assert_eq!(counters.data_requests() as u64, 2);
        assert_eq!(counters.sum("b", &[]) as u64, 8);
        assert_eq!(counters.sum("other", &[]) as u64, 0);
    }
}
