//! Reclamation in the background. Any number of daemons may run it; one is enough. It can be interrupted at any
//! point, so stopping the daemon does not wait for it.

use std::sync::Arc;

use batchweave_daemon::metrics::Maker;
use batchweave_log::reclaim::{Limits, ReclaimReport, Reclaimer};
use batchweave_log::{Log, LogError, LogOptions};
use batchweave_store::Store;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};
use rand::RngExt;
use tokio_util::sync::CancellationToken;

use crate::config::ReclaimTable;

/// The metrics of reclamation, registered only where it is enabled.
#[derive(Debug)]
pub(crate) struct Metrics {
    passes: IntCounterVec,
    objects: IntCounterVec,
    bytes: IntCounter,
    steps: IntCounter,
    refused: IntCounter,
    watermark: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Self::make(&Maker::new(registry, "batchweave_reclaim"))
    }

    fn make(m: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            passes: m.counters("passes_total", "Passes, by outcome.", &["outcome"])?,
            objects: m.counters("objects_total", "Objects deleted, by class.", &["class"])?,
            bytes: m.counter("bytes_total", "Bytes deleted.")?,
            steps: m.counter("steps_total", "Steps given up by this daemon's records.")?,
            refused: m.counter("refused_total", "Keys that the store did not delete.")?,
            watermark: m.gauge("watermark_step", "The oldest step that may be needed.")?,
        })
    }

    fn note(&self, report: &ReclaimReport) {
        for (class, tally) in &report.deleted {
            let class = self.objects.with_label_values(&[class.name()]);
            class.inc_by(tally.objects);
        }
        self.bytes.inc_by(report.deleted_in_all().bytes);
        if report.published.is_some() {
            self.steps.inc_by(report.steps());
        }
        self.refused.inc_by(report.refused_keys);
        let watermark = i64::try_from(report.watermark);
        self.watermark.set(watermark.unwrap_or(i64::MAX));
    }
}

/// Runs passes until `stop`.
pub(crate) async fn reclaim(
    store: Arc<dyn Store>,
    table: ReclaimTable,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let (mut log, mut reclaimer) = (None, Reclaimer::keeping(table.keep_losses));
    loop {
        // Daemons that were started together must not list together.
        let pause = table.every.0.mul_f64(rand::rng().random_range(0.75..1.25));
        let pass = async {
            tokio::time::sleep(pause).await;
            pass(&store, &mut log, &mut reclaimer, table.max_delete).await
        };
        let done = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            done = pass => done,
        };
        let outcome = match done {
            Ok(report) => {
                log_outcome(&report);
                metrics.note(&report);
                if report.refused_keys == 0 {
                    "done"
                } else {
                    "refused"
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a pass of reclamation failed; the next one will retry");
                // The next pass reopens the log and begins with its stored state.
                log = None;
                "failed"
            }
        };
        metrics.passes.with_label_values(&[outcome]).inc();
    }
}

async fn pass(
    store: &Arc<dyn Store>,
    log: &mut Option<Log>,
    reclaimer: &mut Reclaimer,
    max_delete: u64,
) -> Result<ReclaimReport, LogError> {
    let log = match log {
        Some(log) => log,
        none => {
            let options = LogOptions {
                write_snapshots: false,
                ..LogOptions::new(rand::random())
            };
            none.insert(Log::open(Arc::clone(store), &options).await?)
        }
    };
    reclaimer.pass(log, Limits { max_delete }).await
}

fn log_outcome(report: &ReclaimReport) {
    let deleted = report.deleted_in_all();
    if report.published.is_some() || deleted.objects > 0 {
        tracing::info!(
            watermark = report.watermark,
            steps = report.steps(),
            objects = deleted.objects,
            bytes = deleted.bytes,
            more = report.more,
            "reclaimed"
        );
    }
    if let Some(first) = report.refused.first() {
        let (keys, key, why) = (report.refused_keys, &first.key, &first.error);
        tracing::warn!(keys, key, %why, "the store did not delete objects that are no longer needed");
    }
}

/// Returns the descriptions of the metrics, for the docs.
#[cfg(test)]
pub(crate) fn described() -> Vec<batchweave_daemon::metrics::Described> {
    let registry = Registry::new();
    let m = Maker::new(&registry, "batchweave_reclaim");
    Metrics::make(&m).unwrap();
    m.described()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use batchweave_core::ids::{Hash, StreamId};
    use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
    use batchweave_daemon::config::Period;
    use batchweave_store::memory::MemoryStore;

    use super::*;

    fn stream() -> StreamConfig {
        StreamConfig {
            format: 1,
            stream_id: StreamId::from_random([3; 16]),
            slices: 1,
            order: StreamOrder::Arrival,
            producers: Vec::new(),
            tokenizer: TokenizerId {
                name: "bytes".into(),
                fingerprint: Hash::sha256(b"bytes"),
            },
            seq_len: 8,
            rows_per_slice: 1,
            created: "2026-11-21T00:00:00Z".into(),
            form: None,
            parent: None,
        }
    }

    /// Passes run, survive a missing stream, and end on request.
    #[tokio::test(start_paused = true)]
    async fn passes_follow_each_other_until_the_end() {
        let store: Arc<dyn Store> = MemoryStore::new();
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let passes = metrics.passes.clone();
        let stop = CancellationToken::new();
        let table = ReclaimTable {
            enabled: true,
            every: Period(Duration::from_secs(10)),
            ..ReclaimTable::default()
        };
        let task = tokio::spawn(reclaim(store.clone(), table, metrics, stop.clone()));
        let outcome = |name: &str| passes.with_label_values(&[name]).get();
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert!(outcome("failed") >= 1, "no stream yet");
        let _ = batchweave_log::create(&store, &stream()).await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(outcome("done") >= 3);
        stop.cancel();
        task.await.unwrap();
    }
}
