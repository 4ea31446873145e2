//! Limits on how far this producer may run ahead of the jobs, and reports of a held-back producer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use batchweave_core::flow_control::{Bound, FlowControl, HeldBack, Limits};
use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::stream::StreamOrder;
use batchweave_daemon::health::Health;
use batchweave_log::{CommitQueue, FlowControlStatus, PositionReader, TokioClock};
use batchweave_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{ProducerConfig, WhenNoJob};
use crate::metrics::Metrics;

/// Text of `/readyz` while nothing is held back.
pub(crate) const PRODUCING: &str = "producing";
/// Interval between log lines about the same hold.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// Interval between updates of the metric of seconds held.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// The least time over which the share of time held is computed, and the share that is logged.
const SHARE_OVER: Duration = Duration::from_mins(1);
const SHARE_LOGGED: f64 = 0.1;

/// Returns the configured bounds.
fn limits(config: &ProducerConfig) -> Limits {
    let bound = |most: u64| (most > 0).then_some(most);
    let ahead = &config.ahead;
    Limits {
        steps: bound(ahead.max_steps),
        bytes: bound(ahead.max_bytes.bytes()),
        no_job: match ahead.when_no_job {
            // A job that opens later would hold this producer at `max_steps` above the watermark.
            WhenNoJob::Run => bound(ahead.no_job_steps).or(bound(ahead.max_steps)),
            WhenNoJob::Wait => Some(ahead.no_job_steps),
        },
        lane_lead: (config.stream.order == StreamOrder::Lanes).then_some(ahead.lane_lead),
    }
}

/// Returns the most batches in one log entry. An entry fits below the bound as a whole or waits, so entries are
/// small compared with the bound: then all producers use free steps as these appear.
pub(crate) fn entry_max(config: &ProducerConfig) -> usize {
    let lanes = match config.stream.order {
        StreamOrder::Arrival => 1,
        StreamOrder::Lanes => config.stream.producers.len().max(1) as u64,
    };
    let most = config.commit.max_batches;
    match limits(config).steps {
        Some(steps) => most
            .min(usize::try_from(steps / (4 * lanes)).unwrap_or(most))
            .max(1),
        None => most,
    }
}

/// Returns the reader of the jobs' positions and the bounds for the commit task; none when nothing is bounded.
pub(crate) fn position_reader(
    config: &ProducerConfig,
) -> (Option<PositionReader>, Option<watch::Receiver<FlowControl>>) {
    let limits = limits(config);
    if !limits.any() {
        return (None, None);
    }
    let (reader, bounds) = PositionReader::new(limits);
    (Some(reader), Some(bounds))
}

/// Starts reading positions and reporting, until the commit task ends. `stop_waiting` ends the reading, and with it
/// the wait of a held-back producer.
pub(crate) fn start(
    reader: PositionReader,
    store: Arc<dyn Store>,
    queue: &CommitQueue,
    stop_waiting: CancellationToken,
    (metrics, health): (Arc<Metrics>, &Health),
    (producer, by_job): (&ProducerName, &HeldByJob),
) {
    let follow = reader.follow(
        store,
        TokioClock::shared(),
        queue.flow_control(),
        rand::random(),
    );
    tokio::spawn(async move { stop_waiting.run_until_cancelled(follow).await });
    let reporter = HoldReporter {
        producer: producer.clone(),
        metrics,
        health: health.clone(),
        by_job: by_job.clone(),
        mark: None,
        last_logged: None,
        hold: None,
        share: HeldShare::new(Instant::now()),
    };
    tokio::spawn(reporter.run(queue.flow_control()));
}

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
struct HoldReporter {
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
    async fn run(mut self, mut status: watch::Receiver<FlowControlStatus>) {
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

    fn report(&mut self, held: Option<HeldBack>, committed: Seq) {
        let now = Instant::now();
        let by_job = |held: &&HeldBack| !matches!(held.bound, Bound::LaneLead(_));
        match held.as_ref().filter(by_job) {
            Some(_) => self.mark = self.mark.take().or_else(|| Some(self.by_job.mark())),
            None => self.mark = None,
        }
        let metrics = &self.metrics.flow_control;
        if let Some(hold) = &self.hold {
            let time = now.duration_since(hold.counted);
            let bound = bound_label(hold.held.bound);
            metrics
                .held_seconds
                .with_label_values(&[bound])
                .inc_by(time.as_secs_f64());
            if let Some(key) = lead_key(hold.held.bound) {
                self.share.add(time);
                log_share(self.share.due(now), key);
            }
        }
        metrics.held.set(i64::from(held.is_some()));
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
        self.health
            .ready(format!("{held}; this hold lasts for {seconds} s"));
        // A slow job releases and holds this producer again and again; log a new cause at once, the same one at intervals.
        let due = self.last_logged.as_ref().is_none_or(|(last, at)| {
            now.duration_since(*at) >= LOG_INTERVAL || cause(last) != cause(&held)
        });
        if due {
            tracing::info!(seconds, "{held}; continues by itself");
            self.last_logged = Some((held.clone(), now));
        }
        let counted = now;
        self.hold = Some(Hold {
            held,
            committed,
            since,
            counted,
        });
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
    use crate::config::FlowControlConfig;

    fn config(max_steps: u64, when_no_job: WhenNoJob, no_job_steps: u64) -> ProducerConfig {
        ProducerConfig {
            ahead: FlowControlConfig {
                max_steps,
                when_no_job,
                no_job_steps,
                ..FlowControlConfig::default()
            },
            ..ProducerConfig::default()
        }
    }

    #[test]
    fn nothing_is_bounded_unless_configured() {
        let (reader, bounds) = position_reader(&ProducerConfig::default());
        assert!(reader.is_none() && bounds.is_none());
    }

    #[test]
    fn zero_is_no_bound_unless_producers_wait_for_a_job() {
        let no_job = |when, steps| limits(&config(0, when, steps)).no_job;
        assert_eq!(no_job(WhenNoJob::Run, 0), None);
        assert_eq!(no_job(WhenNoJob::Run, 7), Some(7));
        assert_eq!(no_job(WhenNoJob::Wait, 0), Some(0));
        assert_eq!(no_job(WhenNoJob::Wait, 7), Some(7));
        assert_eq!(limits(&config(9, WhenNoJob::Run, 0)).steps, Some(9));
    }

    #[test]
    fn a_bound_in_steps_holds_also_before_a_job_is_open() {
        let no_job = |when, steps| limits(&config(9, when, steps)).no_job;
        assert_eq!(no_job(WhenNoJob::Run, 0), Some(9));
        assert_eq!(no_job(WhenNoJob::Run, 70), Some(70), "given");
        assert_eq!(no_job(WhenNoJob::Wait, 0), Some(0));
    }

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
        let mut reporter = HoldReporter {
            producer: "a".parse().unwrap(),
            metrics: Arc::new(Metrics::new(&registry).unwrap()),
            health: health.clone(),
            by_job: HeldByJob::default(),
            mark: None,
            last_logged: None,
            hold: None,
            share: HeldShare::new(Instant::now()),
        };
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
            let expected = format!("and has 403 steps; this hold lasts for {seconds} s");
            assert!(text.ends_with(&expected), "{committed}: {text}");
            tokio::time::advance(Duration::from_secs(30)).await;
        }
    }

    #[test]
    fn entries_are_small_beside_the_bound() {
        assert_eq!(entry_max(&config(0, WhenNoJob::Run, 0)), 128);
        assert_eq!(entry_max(&config(100, WhenNoJob::Run, 0)), 25);
        assert_eq!(entry_max(&config(3, WhenNoJob::Run, 0)), 1);
        let mut lanes = config(100, WhenNoJob::Run, 0);
        lanes.stream.order = StreamOrder::Lanes;
        lanes.stream.producers = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(entry_max(&lanes), 8);
        assert_eq!(limits(&lanes).lane_lead, Some(256));
    }
}
