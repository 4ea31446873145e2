//! The limits of a stream, and how near a load is to each.

use serde::Serialize;

use super::estimate::Estimate;
use super::profile::Profile;

/// Approximate throughput of one S3 request.
pub(super) const REQUEST_BYTES_PER_SECOND: f64 = 85e6;
/// Requests that a node keeps in flight at most (`prefetch.concurrency`).
pub(super) const READS_AT_ONCE: f64 = 32.0;
/// Objects that a producer uploads at once (`upload.concurrency`).
pub(super) const UPLOADS_AT_ONCE: f64 = 4.0;
/// Largest size of a record (docs/format.md).
const RECORD_BYTES_MAX: f64 = (1 << 20) as f64;
/// JSON bytes of an entry without its TGBs, and of each TGB in it.
const ENTRY_BYTES: f64 = 500.0;
const TGB_ENTRY_BYTES: f64 = 320.0;

/// The use of one limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    pub(super) used: f64,
    pub(super) most: f64,
    pub(super) unit: &'static str,
    /// Used fraction of the limit.
    pub(super) share: f64,
    pub(super) remedy: &'static str,
}

/// Returns all limits, the nearest first.
pub(super) fn limits(store: Profile, estimate: &Estimate) -> Vec<Limit> {
    let total = estimate.requests_per_second.total();
    let entries = estimate.entries_per_second / estimate.records_per_second;
    let entry = ENTRY_BYTES + TGB_ENTRY_BYTES * estimate.tgbs_per_entry;
    let limit = |name, used: f64, most: f64, unit, remedy| Limit {
        name,
        used,
        most,
        unit,
        share: used / most,
        remedy,
    };
    let mut limits = vec![
        limit(
            "writes of a prefix",
            total.put + total.delete,
            store.writes_per_second(),
            "requests/s",
            "larger batches, a larger commit.linger; S3 Standard splits prefixes by itself, in hours",
        ),
        limit(
            "reads of a prefix",
            total.get + total.list,
            store.reads_per_second(),
            "requests/s",
            "larger batches or fewer, larger nodes; S3 Standard splits prefixes by itself, in hours",
        ),
        limit(
            "reads of a node",
            estimate.node_bytes_per_second,
            READS_AT_ONCE * REQUEST_BYTES_PER_SECOND,
            "bytes/s",
            "raise prefetch.concurrency in the consumer's configuration",
        ),
        limit(
            "uploads of a producer",
            estimate.producer_bytes_per_second,
            UPLOADS_AT_ONCE * REQUEST_BYTES_PER_SECOND,
            "bytes/s",
            "raise upload.concurrency in the producer's configuration, or add producers",
        ),
        limit(
            "size of a record",
            entries * entry,
            RECORD_BYTES_MAX,
            "bytes",
            "larger batches; what does not fit waits for the next record",
        ),
    ];
    limits.sort_by(|a, b| b.share.total_cmp(&a.share));
    limits
}
