//! How far this producer may run ahead, and telling people when and by whom it is held back.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::flow_control::{Bound, FlowControl, HeldBack, Limits};
use batchweave_core::stream::StreamOrder;
use batchweave_daemon::health::Health;
use batchweave_log::{CommitQueue, FlowControlStatus, PositionReader, TokioClock};
use batchweave_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{ProducerConfig, WhenNoJob};
use crate::metrics::Metrics;

/// What `/readyz` says while nothing is held.
pub(crate) const PRODUCING: &str = "producing";
/// The same hold is logged as often as this.
const SAY_EVERY: Duration = Duration::from_mins(1);
/// Seconds held are counted as often as this.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The bounds as configured.
pub(crate) fn limits(config: &ProducerConfig) -> Limits {
    let bound = |most: u64| (most > 0).then_some(most);
    let ahead = &config.ahead;
    Limits {
        steps: bound(ahead.max_steps),
        bytes: bound(ahead.max_bytes.bytes()),
        no_job: match ahead.when_no_job {
            WhenNoJob::Run => bound(ahead.no_job_steps),
            WhenNoJob::Wait => Some(ahead.no_job_steps),
        },
        lane_lead: (config.stream.order == StreamOrder::Lanes).then_some(ahead.lane_lead),
    }
}

/// Batches that become visible together at most. Whole entries fit below the ceiling or wait, so
/// they are small beside the bound: then room is used as it comes, by all producers alike.
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

/// Who reads positions, if anything is bounded, and what the commit task is told.
pub(crate) fn pacer(
    config: &ProducerConfig,
) -> (Option<PositionReader>, Option<watch::Receiver<FlowControl>>) {
    let limits = limits(config);
    if !limits.any() {
        return (None, None);
    }
    let (pacer, pace) = PositionReader::new(limits);
    (Some(pacer), Some(pace))
}

/// Starts reading positions and telling people, until the commit task ends; `pacing` ends the
/// reading, and with it the waiting of who is held.
pub(crate) fn start(
    pacer: PositionReader,
    store: Arc<dyn Store>,
    queue: &CommitQueue,
    pacing: CancellationToken,
    (metrics, health): (Arc<Metrics>, &Health),
) {
    let follow = pacer.follow(
        store,
        TokioClock::shared(),
        queue.flow_control(),
        rand::random(),
    );
    tokio::spawn(async move { pacing.run_until_cancelled(follow).await });
    let teller = Teller {
        metrics,
        health: health.clone(),
        said: None,
        held: None,
    };
    tokio::spawn(teller.run(queue.flow_control()));
}

struct Teller {
    metrics: Arc<Metrics>,
    health: Health,
    /// What was logged last, and when.
    said: Option<(HeldBack, Instant)>,
    /// What holds now, since when, and until when that is counted.
    held: Option<(HeldBack, Instant, Instant)>,
}

impl Teller {
    async fn run(mut self, mut standing: watch::Receiver<FlowControlStatus>) {
        loop {
            let (held, lead) = {
                let now = standing.borrow_and_update();
                (now.held.clone(), now.lead.clone())
            };
            let ahead = &self.metrics.ahead;
            if let Some(lead) = lead {
                ahead.steps.set(lead.steps.cast_signed());
                ahead.bytes.set(lead.bytes.unwrap_or(0).cast_signed());
            } else {
                ahead.steps.set(0);
                ahead.bytes.set(0);
            }
            self.tell(held);
            let tick = tokio::time::sleep(COUNT_EVERY);
            tokio::select! {
                biased;
                changed = standing.changed() => if changed.is_err() {
                    self.tell(None);
                    return;
                },
                () = tick, if self.held.is_some() => {}
            }
        }
    }

    fn tell(&mut self, held: Option<HeldBack>) {
        let now = Instant::now();
        if let Some((before, _, counted)) = &self.held {
            let seconds = now.duration_since(*counted).as_secs_f64();
            let by = self
                .metrics
                .ahead
                .held_seconds
                .with_label_values(&[kind(before.bound)]);
            by.inc_by(seconds);
        }
        self.metrics.ahead.held.set(i64::from(held.is_some()));
        let Some(held) = held else {
            if self.held.take().is_some() {
                self.health.ready(PRODUCING);
                tracing::debug!("no longer held back");
            }
            return;
        };
        let since = self.held.as_ref().map_or(now, |(_, since, _)| *since);
        let seconds = now.duration_since(since).as_secs();
        self.health.ready(format!("{held}, for {seconds} s"));
        // A job that reads in its own time lets go and holds again all the time.
        let news = self.said.as_ref().is_none_or(|(said, at)| {
            now.duration_since(*at) >= SAY_EVERY || who(said) != who(&held)
        });
        if news {
            tracing::info!(seconds, "{held}; goes on by itself");
            self.said = Some((held.clone(), now));
        }
        self.held = Some((held, since, now));
    }
}

fn kind(bound: Bound) -> &'static str {
    match bound {
        Bound::Steps(_) => "steps",
        Bound::Bytes(_) => "bytes",
        Bound::NoJob(_) => "no_job",
        Bound::LaneLead(_) => "lead",
    }
}

/// What makes a hold another one.
fn who(held: &HeldBack) -> (Bound, Option<&str>) {
    (held.bound, held.by.as_ref().map(|by| by.job.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AheadConfig;

    fn config(max_steps: u64, when_no_job: WhenNoJob, no_job_steps: u64) -> ProducerConfig {
        ProducerConfig {
            ahead: AheadConfig {
                max_steps,
                when_no_job,
                no_job_steps,
                ..AheadConfig::default()
            },
            ..ProducerConfig::default()
        }
    }

    #[test]
    fn nothing_is_bounded_unless_configured() {
        let (pacer, pace) = pacer(&ProducerConfig::default());
        assert!(pacer.is_none() && pace.is_none());
    }

    #[test]
    fn zero_is_no_bound_but_for_who_waits() {
        let no_job = |when, steps| limits(&config(0, when, steps)).no_job;
        assert_eq!(no_job(WhenNoJob::Run, 0), None);
        assert_eq!(no_job(WhenNoJob::Run, 7), Some(7));
        assert_eq!(no_job(WhenNoJob::Wait, 0), Some(0));
        assert_eq!(no_job(WhenNoJob::Wait, 7), Some(7));
        assert_eq!(limits(&config(9, WhenNoJob::Run, 0)).steps, Some(9));
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
