//! Limits on how far this producer may run ahead of the jobs, and reports of a held-back producer.

mod hold_reporter;

use std::sync::Arc;

use batchweave_core::flow_control::{FlowControl, Limits};
use batchweave_core::stream::StreamOrder;
use batchweave_log::{CommitQueue, PositionReader, TokioClock};
use batchweave_store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::hold_reporter::{HeldByJob, HoldReporter};
use crate::config::{ProducerConfig, WhenNoJob};

/// Text of `/readyz` while nothing is held back.
pub(crate) const PRODUCING: &str = "producing";

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
    reporter: HoldReporter,
) {
    let follow = reader.follow(
        store,
        TokioClock::shared(),
        queue.flow_control(),
        rand::random(),
    );
    tokio::spawn(async move { stop_waiting.run_until_cancelled(follow).await });
    tokio::spawn(reporter.run(queue.flow_control()));
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
