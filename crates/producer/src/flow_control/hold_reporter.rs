//! Reports of a held-back producer in metrics, `/readyz` and the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use batchweave_core::flow_control::{Bound, HeldBack};
use batchweave_core::ids::{ProducerName, Seq};
use batchweave_daemon::health::Health;
use batchweave_log::FlowControlStatus;
use tokio::sync::watch;
use tokio::time::Instant;

use super::PRODUCING;
use crate::metrics::Metrics;

/// Interval between log lines about the same hold.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// Interval between updates of the metric of seconds held.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// The least time over which the share of time held is computed, and the share that is logged.
const SHARE_OVER: Duration = Duration::from_mins(1);
const SHARE_LOGGED: f64 = 0.1;

/// How many producers of this daemon a job, or its absence, holds back.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldByJob(Arc<AtomicUsize>);

impl HeldByJob {
    /// Counts one more until the mark is dropped.
    pub(crate) fn mark(&self) -> HeldMark {
        self.0.fetch_add(1, Ordering::Relaxed);
        HeldMark(self.clone())
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A producer that is held back.
#[derive(Debug)]
pub(crate) struct HeldMark(HeldByJob);

impl Drop for HeldMark {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reports in metrics, `/readyz` and the log that this producer is held back, and by which job.
pub(crate) struct HoldReporter {
    producer: ProducerName,
    metrics: Arc<Metrics>,
    health: Health,
    by_job: HeldByJob,
    /// Set while the cause is not another lane.
    mark: Option<HeldMark>,
    last_logged: Option<(HeldBack, Instant)>,
    hold: Option<Hold>,
    share: HeldShare,
}

/// The share of time for which a bound on the lead holds a producer back, reported once.
#[derive(Debug)]
struct HeldShare {
    since: Instant,
    held: Duration,
    reported: bool,
}

impl HeldShare {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            held: Duration::ZERO,
            reported: false,
        }
    }

    fn add(&mut self, held: Duration) {
        self.held += held;
    }

    /// Returns the share once it is above `SHARE_LOGGED` over `SHARE_OVER` or longer.
    fn due(&mut self, now: Instant) -> Option<f64> {
        let over = now.duration_since(self.since);
        if self.reported || over < SHARE_OVER {
            return None;
        }
        let share = self.held.as_secs_f64() / over.as_secs_f64();
        (self.since, self.held) = (now, Duration::ZERO);
        self.reported = share > SHARE_LOGGED;
        self.reported.then_some(share)
    }
}

/// The period during which a bound holds back one commit.
struct Hold {
    held: HeldBack,
    /// The batches of this producer in the stream: with more, it is another hold.
    committed: Seq,
    since: Instant,
    /// The metric of seconds held is counted up to here.
    counted: Instant,
}

impl HoldReporter {
    /// Returns the reporter of `producer`, which counts itself in `by_job` while a job holds it back.
    pub(crate) fn new(
        producer: ProducerName,
        metrics: Arc<Metrics>,
        health: Health,
        by_job: HeldByJob,
    ) -> Self {
        Self {
            producer,
            metrics,
            health,
            by_job,
            mark: None,
            last_logged: None,
            hold: None,
            share: HeldShare::new(Instant::now()),
        }
    }

    /// Reports until the commit task ends.
    pub(super) async fn run(mut self, mut status: watch::Receiver<FlowControlStatus>) {
        loop {
            let (held, lead, committed) = {
                let now = status.borrow_and_update();
                let own = now.manifest.producer(&self.producer);
                let committed = own.map_or(0, |state| state.next_seq);
                (now.held.clone(), now.lead.clone(), committed)
            };
            let steps = lead.as_ref().map_or(0, |lead| lead.steps);
            let bytes = lead.and_then(|lead| lead.bytes).unwrap_or(0);
            self.metrics.flow_control.steps.set(steps.cast_signed());
            self.metrics.flow_control.bytes.set(bytes.cast_signed());
            self.report(held, committed);
            let tick = tokio::time::sleep(COUNT_INTERVAL);
            tokio::select! {
                biased;
                changed = status.changed() => if changed.is_err() {
                    self.report(None, committed);
                    return;
                },
                () = tick, if self.hold.is_some() => {}
            }
        }
    }

    /// Logs a new cause immediately, and the same one at intervals: a slow job releases and holds this producer again and
    /// again.
    fn log_if_due(&mut self, held: &HeldBack, seconds: u64, now: Instant) {
        let due = self.last_logged.as_ref().is_none_or(|(last, at)| {
            now.duration_since(*at) >= LOG_INTERVAL || cause(last) != cause(held)
        });
        if due {
            tracing::info!(seconds, "{held}; continues by itself");
            self.last_logged = Some((held.clone(), now));
        }
    }

    fn report(&mut self, held: Option<HeldBack>, committed: Seq) {
        let now = Instant::now();
        let by_job = |held: &&HeldBack| !matches!(held.bound, Bound::LaneLead(_));
        match held.as_ref().filter(by_job) {
            Some(_) => self.mark = self.mark.take().or_else(|| Some(self.by_job.mark())),
            None => self.mark = None,
        }
        self.count_held_time(now);
        self.metrics
            .flow_control
            .held
            .set(i64::from(held.is_some()));
        let Some(held) = held else {
            if self.hold.take().is_some() {
                self.health.ready(PRODUCING);
                tracing::debug!("no longer held back");
            }
            return;
        };
        // A slow job may free one step and take it back before this is called again.
        let same = self
            .hold
            .as_ref()
            .filter(|hold| hold.committed == committed);
        let since = same.map_or(now, |hold| hold.since);
        let seconds = now.duration_since(since).as_secs();
        self.health.ready(match seconds {
            0 => held.to_string(),
            _ => format!("{held}; this hold lasts for {seconds} s"),
        });
        self.log_if_due(&held, seconds, now);
        let counted = now;
        self.hold = Some(Hold {
            held,
            committed,
            since,
            counted,
        });
    }

    /// Counts the time from the last call on in the metric of seconds held and in the share that is logged.
    fn count_held_time(&mut self, now: Instant) {
        let Some(hold) = &self.hold else { return };
        let time = now.duration_since(hold.counted);
        let bound = bound_label(hold.held.bound);
        (self.metrics.flow_control.held_seconds)
            .with_label_values(&[bound])
            .inc_by(time.as_secs_f64());
        if let Some(key) = lead_key(hold.held.bound) {
            self.share.add(time);
            log_share(self.share.due(now), key);
        }
    }
}

/// Returns the key of a bound on the lead over a job.
fn lead_key(bound: Bound) -> Option<&'static str> {
    match bound {
        Bound::Steps(_) => Some("ahead.max_steps"),
        Bound::Bytes(_) => Some("ahead.max_bytes"),
        Bound::NoJob(_) | Bound::LaneLead(_) => None,
    }
}

fn log_share(share: Option<f64>, key: &str) {
    if let Some(share) = share {
        let (share, percent) = ((share * 100.0).round() / 100.0, (share * 100.0).round());
        tracing::info!(
            share,
            "{key} holds this producer back for {percent} % of the time; raise it if the job waits for producers"
        );
    }
}

fn bound_label(bound: Bound) -> &'static str {
    match bound {
        Bound::Steps(_) => "steps",
        Bound::Bytes(_) => "bytes",
        Bound::NoJob(_) => "no_job",
        Bound::LaneLead(_) => "lead",
    }
}

/// Returns the bound and the job that make a hold differ from others.
fn cause(held: &HeldBack) -> (Bound, Option<&str>) {
    (held.bound, held.by.as_ref().map(|by| by.job.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_share_of_time_held_is_reported_once_when_it_is_large() {
        let second = Duration::from_secs(1);
        let mut share = HeldShare::new(Instant::now());
        let mut reported = Vec::new();
        // In the first minute 3 s are held, from then on half of the time.
        for at in 0..300 {
            tokio::time::advance(second).await;
            share.add(if at < 60 { second / 20 } else { second / 2 });
            if let Some(share) = share.due(Instant::now()) {
                reported.push((at, (share * 100.0).round()));
            }
        }
        assert_eq!(reported, [(119, 50.0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn held_time_is_that_of_one_commit() {
        let registry = prometheus::Registry::new();
        let health = Health::default();
        let mut reporter = HoldReporter::new(
            "a".parse().unwrap(),
            Arc::new(Metrics::new(&registry).unwrap()),
            health.clone(),
            HeldByJob::default(),
        );
        let held = Some(HeldBack {
            bound: Bound::Steps(9),
            by: None,
            lane: None,
            next_step: 403,
        });
        // Steps that free one commit after the other, without a moment between them.
        for (committed, seconds) in [(1, 0), (1, 30), (2, 0), (2, 30), (2, 60), (3, 0)] {
            reporter.report(held.clone(), committed);
            let text = health.get().1;
            let expected = match seconds {
                0 => "and has 403 steps".to_owned(),
                _ => format!("and has 403 steps; this hold lasts for {seconds} s"),
            };
            assert!(text.ends_with(&expected), "{committed}: {text}");
            tokio::time::advance(Duration::from_secs(30)).await;
        }
    }
}
