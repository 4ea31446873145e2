//! Counters from the consumer daemon's `/metrics`. A killed daemon's counters end with it, so they are read
//! until the end and summed over its restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Counters by name, summed over labels and restarts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    past: BTreeMap<String, f64>,
    current: BTreeMap<String, f64>,
}

impl Counters {
    /// Reads the daemon's counters; leaves the last known ones when it does not answer.
    pub(crate) async fn read(&mut self, port: u16) {
        let get = tokio::time::timeout(Duration::from_millis(500), fetch(port));
        if let Ok(Ok(text)) = get.await {
            let counters = parse(&text);
            if !counters.is_empty() {
                self.current = counters;
            }
        }
    }

    /// Adds the counters of a daemon that is about to be killed.
    pub(crate) fn end_life(&mut self) {
        for (name, value) in std::mem::take(&mut self.current) {
            *self.past.entry(name).or_default() += value;
        }
    }

    /// Returns a counter's sum, or one of its series as `name{label="value"}`.
    pub(crate) fn get(&self, name: &str) -> f64 {
        let of = |map: &BTreeMap<String, f64>| map.get(name).copied().unwrap_or(0.0);
        of(&self.past) + of(&self.current)
    }
}

async fn fetch(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.take(1 << 20).read_to_string(&mut text).await?;
    Ok(text)
}

fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with("batchweave_")) {
        let Some((name, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let Ok(value) = value.parse::<f64>() else {
            continue;
        };
        let plain = name.split('{').next().unwrap_or(name);
        if plain != name {
            counters.insert(name.to_owned(), value);
        }
        *counters.entry(plain.to_owned()).or_default() += value;
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_over_labels_and_lives() {
        let text = "# HELP x\r\nbatchweave_a{op=\"get\"} 2\nbatchweave_a{op=\"put\"} 3\nbatchweave_b 7\nother 1\n";
        let mut counters = Counters {
            current: parse(text),
            ..Counters::default()
        };
        counters.end_life();
        counters.current = parse("batchweave_b 1\n");
        assert_eq!(counters.get("batchweave_a") as u64, 5);
        assert_eq!(counters.get("batchweave_a{op=\"put\"}") as u64, 3);
        assert_eq!(counters.get("batchweave_b") as u64, 8);
        assert_eq!(counters.get("other") as u64, 0);
    }
}
