//! Computes the figures of the load table from the recorded objects and counts.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_core::ids::Seq;
use batchweave_core::manifest::{Entry, Record};
use serde::Serialize;

use super::plan::LoadPlan;
use crate::store::{Counts, Landed};

/// One row of the load table.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// The number of producers.
    pub producers: u32,
    pub scenario: String,
    pub profile: &'static str,
    pub policy: String,
    /// The kind of manifest, and its entries at the start.
    pub manifest: String,
    pub history: u64,
    pub short_keys: bool,
    /// Entries per second of each.
    pub rate: f64,
    /// The median time from ready to visible, in ms.
    pub p50_ms: f64,
    /// The 99th percentile, in ms.
    pub p99_ms: f64,
    /// The maximum, in ms.
    pub max_ms: f64,
    /// Record puts per record won.
    pub attempts_per_commit: f64,
    /// Requests per entry; parallel reads count once.
    pub requests_per_entry: f64,
    /// HTTP requests per entry.
    pub http_requests_per_entry: f64,
    /// Visible entries per ready entry.
    pub visible_over_offered: f64,
    /// Jain's fairness index of visible per ready entries, by producer.
    pub jain: f64,
    /// The highest 99th percentile of a producer, in ms.
    pub worst_producer_p99_ms: f64,
    pub seed: u64,
    /// Seconds until all producers have opened; of a cold start.
    pub opened_s: Option<f64>,
    /// Records won per second.
    pub records_per_second: f64,
    /// Requests answered 503 because of the limits, in the whole run.
    pub throttled: u64,
    /// Entries that never became visible.
    pub never_visible: u64,
    /// The number of processes that failed.
    pub failures: u64,
    /// The error of the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Requests per entry by kind: `get log`, `create intents`, ...
    pub requests: BTreeMap<String, f64>,
    /// The fingerprint of the run.
    pub hash: String,
    /// The figures second by second.
    pub timeline: Vec<Second>,
}

/// One second of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Second {
    pub offered: u64,
    pub visible: u64,
    pub records: u64,
    /// The median latency of those that became visible, in ms.
    pub p50_ms: f64,
    /// Their 99th percentile, in ms.
    pub p99_ms: f64,
}

/// The recorded data of a run.
pub(super) struct Measured<'a> {
    pub(super) plan: &'a LoadPlan,
    pub(super) counted: [Duration; 2],
    pub(super) counts: [Counts; 2],
    pub(super) landed: Vec<Landed>,
    pub(super) ready: &'a [Vec<Duration>],
    pub(super) hash: u64,
    pub(super) throttled: u64,
    pub(super) failures: u64,
    pub(super) failure: Option<String>,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Returns the quantile of sorted values.
fn quantile(sorted: &[Duration], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .or(sorted.last())
        .map_or(0.0, |d| ms(*d))
}

fn sorted(mut values: Vec<Duration>) -> Vec<Duration> {
    values.sort_unstable();
    values
}

/// Returns the batch entries of a record as producer number and sequence range.
fn batches(record: &Record) -> impl Iterator<Item = (usize, Seq, Seq)> + '_ {
    record.entries.iter().filter_map(|entry| match entry {
        Entry::Batch(e) => {
            let number = e.producer.as_str().strip_prefix('p')?.parse().ok()?;
            Some((number, e.first_seq, e.last_seq))
        }
        _ => None,
    })
}

impl Measured<'_> {
    fn counts(&self, at: Duration) -> bool {
        (self.counted[0]..self.counted[1]).contains(&at)
    }

    /// Returns the times at which each TGB, by producer and sequence number, and each record became
    /// visible.
    fn visible(&self) -> (Vec<Vec<Duration>>, Vec<Duration>) {
        let mut visible: Vec<Vec<Duration>> = vec![Vec::new(); self.ready.len()];
        let mut records = Vec::new();
        for landed in &self.landed {
            let Ok(record) = Record::from_json(&landed.body, 0) else {
                continue;
            };
            records.push(landed.at);
            for (number, first, last) in batches(&record) {
                if let Some(times) = visible.get_mut(number)
                    && times.len() as u64 == first
                {
                    times.resize(last as usize + 1, landed.at);
                }
            }
        }
        (visible, records)
    }

    /// Returns the requests of the measured time: by kind, with parallel reads counted once, all.
    fn requests(&self, entries: f64) -> (BTreeMap<String, f64>, f64, f64) {
        let [before, after] = &self.counts;
        let (mut kinds, mut windows, mut http) = (BTreeMap::new(), 0.0, 0.0);
        for (kind, count) in after {
            let base = before.get(kind).copied().unwrap_or_default();
            let made = (count.http - base.http) as f64;
            kinds.insert(format!("{} {}", kind.0, kind.1), made / entries);
            http += made;
            windows += (count.windows - base.windows) as f64;
        }
        (kinds, windows / entries, http / entries)
    }

    fn record_puts(&self) -> f64 {
        let kind = ("create", "log");
        let at = |counts: &Counts| counts.get(&kind).map_or(0, |c| c.http);
        (at(&self.counts[1]) - at(&self.counts[0])) as f64
    }
}

/// Totals over the entries of the measured time.
#[derive(Default)]
struct Totals {
    latencies: Vec<Duration>,
    /// The share of its offered entries that became visible, by producer.
    shares: Vec<f64>,
    worst_p99: f64,
    never_visible: u64,
    offered: u64,
    visible: u64,
}

impl Totals {
    fn add(&mut self, m: &Measured<'_>, ready: &[Duration], visible: &[Duration]) {
        let in_time = ready.iter().filter(|t| m.counts(**t)).count();
        let seen_in_time = visible.iter().filter(|t| m.counts(**t)).count();
        self.offered += in_time as u64;
        self.visible += seen_in_time as u64;
        self.never_visible += ready.len().saturating_sub(visible.len()) as u64;
        let pairs = ready.iter().zip(visible).filter(|(r, _)| m.counts(**r));
        let latencies = sorted(pairs.map(|(r, v)| v.saturating_sub(*r)).collect());
        if in_time > 0 {
            self.shares.push(seen_in_time as f64 / in_time as f64);
            self.worst_p99 = self.worst_p99.max(quantile(&latencies, 0.99));
        }
        self.latencies.extend(latencies);
    }
}

impl Figures {
    pub(super) fn from(m: &Measured<'_>) -> Self {
        let (visible, records) = m.visible();
        let mut totals = Totals::default();
        for (ready, visible) in m.ready.iter().zip(&visible) {
            totals.add(m, ready, visible);
        }
        let all = sorted(totals.latencies);
        let won = records.iter().filter(|t| m.counts(**t)).count() as f64;
        let (requests, windows, http) = m.requests((totals.visible as f64).max(1.0));
        let seconds = m.counted[1].saturating_sub(m.counted[0]).as_secs_f64();
        Self {
            producers: m.plan.producers(),
            scenario: m.plan.scenario.to_string(),
            profile: m.plan.profile.name,
            policy: m.plan.policy.to_string(),
            manifest: m.plan.manifest.kind.to_string(),
            history: m.plan.manifest.history,
            short_keys: m.plan.short_keys,
            rate: m.plan.rate,
            p50_ms: quantile(&all, 0.5),
            p99_ms: quantile(&all, 0.99),
            max_ms: quantile(&all, 1.0),
            attempts_per_commit: m.record_puts() / won.max(1.0),
            requests_per_entry: windows,
            http_requests_per_entry: http,
            visible_over_offered: totals.visible as f64 / (totals.offered as f64).max(1.0),
            jain: jain(&totals.shares),
            worst_producer_p99_ms: totals.worst_p99,
            seed: m.plan.seed,
            opened_s: (seconds == 0.0).then(|| m.counted[0].as_secs_f64()),
            records_per_second: if seconds > 0.0 { won / seconds } else { 0.0 },
            throttled: m.throttled,
            never_visible: totals.never_visible,
            failures: m.failures,
            failure: m.failure.clone(),
            requests,
            hash: format!("{:016x}", m.hash),
            timeline: timeline(m, &visible, &records),
        }
    }
}

fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

fn timeline(m: &Measured<'_>, visible: &[Vec<Duration>], records: &[Duration]) -> Vec<Second> {
    let second = |at: Duration| {
        let since = at.checked_sub(m.counted[0])?;
        m.counts(at).then_some(since.as_secs() as usize)
    };
    let length = m.counted[1].saturating_sub(m.counted[0]).as_secs() as usize;
    let mut line = vec![Second::default(); length];
    let mut latencies: Vec<Vec<Duration>> = vec![Vec::new(); length];
    for (ready, visible) in m.ready.iter().zip(visible) {
        for at in ready.iter().filter_map(|t| second(*t)) {
            line[at].offered += 1;
        }
        for (r, v) in ready.iter().zip(visible) {
            if let Some(at) = second(*v) {
                line[at].visible += 1;
                latencies[at].push(v.saturating_sub(*r));
            }
        }
    }
    for at in records.iter().filter_map(|t| second(*t)) {
        line[at].records += 1;
    }
    for (second, latencies) in line.iter_mut().zip(latencies) {
        let latencies = sorted(latencies);
        second.p50_ms = quantile(&latencies, 0.5);
        second.p99_ms = quantile(&latencies, 0.99);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_fairness() {
        let times: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert!((quantile(&times, 0.5) - 50.0).abs() < 1e-9);
        assert!((quantile(&times, 0.99) - 99.0).abs() < 1e-9);
        assert!((quantile(&times, 1.0) - 100.0).abs() < 1e-9);
        assert!(quantile(&[], 0.5).abs() < 1e-9);
        assert!((jain(&[1.0; 8]) - 1.0).abs() < 1e-9);
        assert!((jain(&[1.0, 0.0]) - 0.5).abs() < 1e-9);
    }
}
