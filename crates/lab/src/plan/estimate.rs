//! The arithmetic of a plan. Every assumed number is a constant here, with its reason, and `--explain`
//! prints it.

use serde::Serialize;

use super::prices::Tariff;
use super::profile::Profile;
use super::simulated::{Figures, Requests};

/// Size of an object: producers combine small batches and split large ones (`packing.object_bytes`).
pub(super) const OBJECT_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// The largest range of one read (`prefetch.read_bytes`).
pub(super) const READ_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Shortest interval between a producer's commits (`commit.linger`).
pub(super) const LINGER_S: f64 = 0.2;
/// Reads of the log per record and node: each record once, and about as many polls without a new record.
pub(super) const READS_PER_RECORD: f64 = 2.0;
/// Steps per progress object of a node.
pub(super) const STEPS_PER_PROGRESS: f64 = 64.0;
const DAY_S: f64 = 86_400.0;
const MONTH_DAYS: f64 = 365.25 / 12.0;
const GB: f64 = 1e9;

/// The load on the stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Load {
    pub(super) producers: u32,
    /// TGBs per second of each producer.
    pub(super) rate: f64,
    pub(super) tgb_bytes: u64,
    pub(super) nodes: u32,
    pub(super) tokens_per_tgb: u64,
    pub(super) keep_days: Option<f64>,
}

/// The quantities that follow from a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Estimate {
    pub(super) commit_latency_ms: Percentiles,
    pub(super) steps_per_second: f64,
    pub(super) tokens_per_second: f64,
    pub(super) bytes_per_second: f64,
    pub(super) entries_per_second: f64,
    pub(super) tgbs_per_entry: f64,
    pub(super) records_per_second: f64,
    pub(super) requests_per_entry: Requests,
    pub(super) requests_per_second: Parts<Requests>,
    pub(super) dollars_per_day: Parts<f64>,
    /// Cost of bytes sent and read, where the store charges for them.
    pub(super) transfer_dollars_per_day: f64,
    /// Cost of storage once reclamation keeps up with the input.
    pub(super) storage_dollars_per_day: Option<f64>,
    pub(super) total_dollars_per_day: f64,
    pub(super) dollars_per_trillion_tokens: f64,
    /// Bytes that one producer uploads per second.
    pub(super) producer_bytes_per_second: f64,
    /// Bytes that one node reads per second.
    pub(super) node_bytes_per_second: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// The same quantity for each part of the system.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Parts<T> {
    pub(super) commits: T,
    pub(super) uploads: T,
    pub(super) consumers: T,
}

impl Parts<Requests> {
    pub(super) fn total(self) -> Requests {
        self.commits.plus(self.uploads).plus(self.consumers)
    }
}

pub(super) fn estimate(
    load: &Load,
    store: Profile,
    figures: &Figures,
    tariff: &Tariff,
) -> Estimate {
    let producers = f64::from(load.producers);
    let steps = producers * load.rate;
    let bytes = steps * load.tgb_bytes as f64;
    // Batches that are finished while a commit is under way go into the next one.
    let most = 1.0 / LINGER_S.max(figures.p50_ms / 1000.0);
    let each = load.rate.min(most);
    let entries = producers * each;
    let tgbs_per_entry = load.rate / each;
    let records = entries.min(store.records_per_second());
    let requests = Parts {
        commits: figures.requests.times(entries),
        uploads: uploads(load, entries, tgbs_per_entry),
        consumers: consumers(load, steps, records),
    };
    let daily = |requests: Requests| tariff.requests(requests) * DAY_S;
    let dollars = Parts {
        commits: daily(requests.commits),
        uploads: daily(requests.uploads),
        consumers: daily(requests.consumers),
    };
    let moved_gb = bytes * DAY_S / GB;
    let transfer = moved_gb * (tariff.upload_per_gb + tariff.retrieval_per_gb);
    let kept = load.keep_days.zip(tariff.storage_per_gb_month);
    let storage = kept.map(|(days, price)| moved_gb * days * price / MONTH_DAYS);
    let total =
        dollars.commits + dollars.uploads + dollars.consumers + transfer + storage.unwrap_or(0.0);
    let tokens = steps * load.tokens_per_tgb as f64;
    Estimate {
        commit_latency_ms: Percentiles {
            p50: figures.p50_ms,
            p99: figures.p99_ms,
        },
        steps_per_second: steps,
        tokens_per_second: tokens,
        bytes_per_second: bytes,
        entries_per_second: entries,
        tgbs_per_entry,
        records_per_second: records,
        requests_per_entry: figures.requests,
        requests_per_second: requests,
        dollars_per_day: dollars,
        transfer_dollars_per_day: transfer,
        storage_dollars_per_day: storage,
        total_dollars_per_day: total,
        dollars_per_trillion_tokens: total / (tokens * DAY_S) * 1e12,
        producer_bytes_per_second: load.rate * load.tgb_bytes as f64,
        node_bytes_per_second: bytes / f64::from(load.nodes),
    }
}

/// Requests of uploads: an entry's batches share objects, or take several.
fn uploads(load: &Load, entries: f64, tgbs_per_entry: f64) -> Requests {
    let objects = (tgbs_per_entry * load.tgb_bytes as f64 / OBJECT_BYTES).ceil();
    Requests {
        put: entries * objects.max(1.0),
        ..Requests::default()
    }
}

/// Requests of nodes: each reads its share of each step and follows the log.
fn consumers(load: &Load, steps: f64, records: f64) -> Requests {
    let nodes = f64::from(load.nodes);
    let share = load.tgb_bytes as f64 / nodes;
    let reads = (share / READ_BYTES).ceil().max(1.0);
    Requests {
        put: nodes * steps / STEPS_PER_PROGRESS,
        get: nodes * (steps * reads + records * READS_PER_RECORD),
        ..Requests::default()
    }
}
