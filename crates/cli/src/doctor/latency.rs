//! Latency of requests of each kind: percentiles of a few samples, a few requests at a time.

use std::pin::pin;
use std::time::{Duration, Instant};

use batchweave_console::output::count;
use batchweave_core::keys;
use batchweave_store::{Op, Store, StoreError, found};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use super::Target;
use super::finding::Finding;

/// Requests in flight: enough to be fast, too few to queue.
const AT_ONCE: usize = 4;
/// Size of a log record, roughly.
const RECORD_BYTES: usize = 2 * 1024;
/// Size of a small data object.
const DATA_BYTES: usize = 256 * 1024;
const RANGE_BYTES: u64 = 64 * 1024;
/// 99th percentile of creates above which the finding is a warning: each commit waits for one.
const CREATE_WARN_MS: f64 = 2000.0;

/// Percentiles of one kind of request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) request: &'static str,
    pub(super) samples: usize,
    pub(super) failed: usize,
    pub(super) p50_ms: f64,
    pub(super) p90_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

/// Samples of one kind of request.
struct Sample {
    op: Op,
    times: Vec<Duration>,
    failures: Vec<StoreError>,
}

pub(super) async fn measure(target: &Target<'_>) -> (Vec<Latency>, Option<Finding>) {
    if target.args.samples == 0 {
        return (Vec::new(), None);
    }
    let kinds: &[Op] = if target.args.read_only {
        &[Op::Get, Op::Head, Op::List]
    } else {
        &Op::CONTRACT
    };
    let mut samples = Vec::new();
    for op in kinds {
        samples.push(sample(target, *op).await);
    }
    let rows: Vec<Latency> = samples.iter().filter_map(Sample::summary).collect();
    let finding = judge(&samples, &rows);
    (rows, Some(finding))
}

async fn sample(target: &Target<'_>, op: Op) -> Sample {
    let calls = (0..target.args.samples).map(|at| async move {
        let begun = Instant::now();
        let outcome = request(target, op, at).await;
        (begun.elapsed(), outcome)
    });
    let mut calls = pin!(stream::iter(calls).buffer_unordered(AT_ONCE));
    let (mut times, mut failures) = (Vec::new(), Vec::new());
    while let Some((time, outcome)) = calls.next().await {
        match outcome {
            Ok(()) => times.push(time),
            Err(error) => failures.push(error),
        }
    }
    times.sort();
    Sample {
        op,
        times,
        failures,
    }
}

async fn request(target: &Target<'_>, op: Op, at: usize) -> Result<(), StoreError> {
    let store = target.store();
    let data = target.key(&format!("data-{at}"));
    // With --read-only doctor has written no record, so it reads stream.json, which may be missing.
    let record = if target.args.read_only {
        keys::STREAM.to_owned()
    } else {
        target.key(&format!("record-{at}"))
    };
    match op {
        Op::Create => {
            let body = Bytes::from(vec![b'r'; RECORD_BYTES]);
            store.create(&record, body).await.map(|_| ())
        }
        Op::Upload => {
            let body = Bytes::from(vec![b'd'; DATA_BYTES]);
            store.upload(&data, body).await.map(|_| ())
        }
        // A missing key is an answer.
        Op::Get => found(store.get(&record, keys::bytes_max(&record)).await).map(drop),
        Op::GetRange => ranged(store, &data).await,
        Op::Head => found(store.head(&record).await).map(drop),
        Op::List => store.list(keys::SNAPSHOTS, None).await.map(drop),
        Op::Delete => store.delete(&record).await,
        Op::Open => Ok(()),
    }
}

async fn ranged(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    let chunks = store.get_range(key, 0..RANGE_BYTES).await?;
    chunks.try_for_each(|_| async { Ok(()) }).await
}

impl Sample {
    fn summary(&self) -> Option<Latency> {
        let max = self.times.last()?;
        Some(Latency {
            request: self.op.name(),
            samples: self.times.len(),
            failed: self.failures.len(),
            p50_ms: percentile(&self.times, 50),
            p90_ms: percentile(&self.times, 90),
            p99_ms: percentile(&self.times, 99),
            max_ms: milliseconds(*max),
        })
    }
}

/// Returns the percentile of sorted times by nearest rank.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().map_or(0.0, milliseconds)
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn judge(samples: &[Sample], rows: &[Latency]) -> Finding {
    let name = "requests";
    let made = samples.iter().map(|s| s.times.len() + s.failures.len());
    let made = count(made.sum::<usize>() as u64, "request");
    let failures: Vec<_> = samples.iter().flat_map(|s| &s.failures).collect();
    if let Some(first) = failures.first() {
        let (failed, example, why) = (failures.len(), first.op.name(), &first.detail);
        let detail = format!("{failed} of {made} failed, {example} for example: {why}");
        return Finding::warn(name, detail, first.kind.remedy());
    }
    let create = rows.iter().find(|row| row.request == Op::Create.name());
    if let Some(slow) = create.filter(|row| row.p99_ms > CREATE_WARN_MS) {
        let worst = slow.p99_ms;
        let detail = format!("a create takes {worst:.0} ms in the worst of 100 cases");
        let remedy = "commits take as long: check the network, the region and the store's load";
        return Finding::warn(name, detail, remedy);
    }
    Finding::ok(name, format!("{made}, {AT_ONCE} at a time, none failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<_> = (1..=50).map(Duration::from_millis).collect();
        let of = |times, percent| format!("{:.3}", percentile(times, percent));
        assert_eq!(of(&times, 50), "25.000");
        assert_eq!(of(&times, 90), "45.000");
        assert_eq!(of(&times, 99), "50.000");
        assert_eq!(of(&times[..1], 50), "1.000");
        assert_eq!(of(&[], 50), "0.000");
    }
}
