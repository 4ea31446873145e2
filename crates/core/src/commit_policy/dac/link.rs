//! Latencies of the store: the producer's own, and those that other writers report in the log.

use std::time::Duration;

use super::super::SeenRecord;

/// Running means, in milliseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    put: Option<f64>,
    list: Option<f64>,
    get: Option<f64>,
    reported: Option<f64>,
}

/// Latency of S3 Standard, used until one is measured; unmeasured latencies are in proportion to the put.
const PUT_MS: f64 = 30.0;
const LIST_OF_PUT: f64 = 4.0 / 3.0;
const GET_OF_PUT: f64 = 0.5;

/// Weight of a new sample.
const WEIGHT: f64 = 0.2;
/// A single slow answer counts as at most this many times the mean.
const SAMPLE_MAX: f64 = 4.0;
/// Range of plausible reports and samples; others come from faults or freezes.
const REPORT_MS: (u32, u32) = (1, 10_000);
/// A producer may lead only when its put takes at most this many times the reported latency.
const LEAD_MAX: f64 = 2.5;

impl Link {
    pub(super) fn put_took(&mut self, took: Option<Duration>) {
        blend(&mut self.put, took);
    }

    pub(super) fn list_took(&mut self, took: Option<Duration>) {
        blend(&mut self.list, took);
    }

    pub(super) fn get_took(&mut self, took: Option<Duration>) {
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
            .is_none_or(|others| self.put_mean() <= LEAD_MAX * others)
    }

    fn put_mean(&self) -> f64 {
        self.put.unwrap_or(PUT_MS)
    }

    fn list_mean(&self) -> f64 {
        self.list.unwrap_or(LIST_OF_PUT * self.put_mean())
    }

    fn get_mean(&self) -> f64 {
        self.get.unwrap_or(GET_OF_PUT * self.put_mean())
    }

    pub(super) fn put(&self) -> Duration {
        ms(self.put_mean())
    }

    /// Returns the time, beyond its own interval, after which a silent leader counts as failed.
    pub(super) fn patience(&self) -> Duration {
        ms(4.0 * (self.put_mean() + self.list_mean()))
    }

    /// Returns the duration of a sweep: list, read, catch up, put.
    pub(super) fn sweep(&self) -> Duration {
        ms(self.list_mean() + 2.0 * self.get_mean() + self.put_mean())
    }

    /// Returns the duration of a sweep by the writers of the log's records. A slow producer must not wait by
    /// its own measure, or it would wait for ever.
    pub(super) fn sweep_of_others(&self) -> Duration {
        let put = self.reported.unwrap_or_else(|| self.put_mean());
        ms(put * (1.0 + LIST_OF_PUT + 2.0 * GET_OF_PUT))
    }

    pub(super) fn put_ms(&self) -> u32 {
        (self.put_mean().round() as u32).clamp(REPORT_MS.0, REPORT_MS.1)
    }
}

fn blend(mean: &mut Option<f64>, took: Option<Duration>) {
    let Some(took) = took else { return };
    let sample = (took.as_secs_f64() * 1e3).clamp(0.1, f64::from(REPORT_MS.1));
    let mean = mean.get_or_insert(sample);
    *mean += WEIGHT * (sample.min(SAMPLE_MAX * *mean) - *mean);
}

fn ms(value: f64) -> Duration {
    Duration::from_secs_f64(value / 1e3)
}
