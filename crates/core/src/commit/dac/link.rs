//! What a producer knows of latencies: its own, and what the log's writers report.

use std::time::Duration;

use super::super::SeenRecord;

/// Running means, in milliseconds.
#[derive(Debug, Clone)]
pub(super) struct Link {
    put: f64,
    list: f64,
    get: f64,
    reported: Option<f64>,
}

/// Weight of a new sample.
const WEIGHT: f64 = 0.2;
/// A single slow answer counts for this many times the mean at most.
const SAMPLE_MAX: f64 = 4.0;
/// Reports outside are lies or faults.
const REPORT_MS: (u32, u32) = (1, 10_000);
/// Only who is within this many times the reported latency may lead.
const LEAD_MAX: f64 = 2.5;

impl Link {
    /// S3 Standard, until something was measured.
    pub(super) fn new() -> Self {
        Self {
            put: 30.0,
            list: 40.0,
            get: 15.0,
            reported: None,
        }
    }

    pub(super) fn put_took(&mut self, took: Duration) {
        blend(&mut self.put, took);
    }

    pub(super) fn list_took(&mut self, took: Duration) {
        blend(&mut self.list, took);
    }

    pub(super) fn get_took(&mut self, took: Duration) {
        blend(&mut self.get, took);
    }

    pub(super) fn report(&mut self, record: &SeenRecord) {
        if let Some(ms) = record.put_ms {
            let ms = f64::from(ms.clamp(REPORT_MS.0, REPORT_MS.1));
            let mean = self.reported.get_or_insert(ms);
            *mean += WEIGHT * (ms - *mean);
        }
    }

    pub(super) fn may_lead(&self) -> bool {
        self.reported
            .is_none_or(|others| self.put <= LEAD_MAX * others)
    }

    pub(super) fn put(&self) -> Duration {
        ms(self.put)
    }

    /// Time after which a leader that says nothing is taken for dead, beside its own rhythm.
    pub(super) fn patience(&self) -> Duration {
        ms(4.0 * (self.put + self.list))
    }

    /// A sweep: list, read, catch up, put.
    pub(super) fn sweep(&self) -> Duration {
        ms(self.list + 2.0 * self.get + self.put)
    }

    pub(super) fn put_ms(&self) -> u32 {
        (self.put.round() as u32).clamp(REPORT_MS.0, REPORT_MS.1)
    }
}

fn blend(mean: &mut f64, took: Duration) {
    let sample = (took.as_secs_f64() * 1e3).min(SAMPLE_MAX * *mean).max(0.1);
    *mean += WEIGHT * (sample - *mean);
}

fn ms(value: f64) -> Duration {
    Duration::from_secs_f64(value / 1e3)
}
