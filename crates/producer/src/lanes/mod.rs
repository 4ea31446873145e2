//! Several lanes of a stream in one daemon: a producer for each, and the takeover of lanes whose daemon is gone.
//!
//! - `takeover` decides (pure) which lane to take; `watch` reads the log for it;
//! - `metrics` and `health` join what the producers report.
//!
//! Invariants: what a lane contains depends on its place in `stream.producers` alone, never on the daemon that runs it;
//! a lane that another daemon took ends here and fails nothing; any other failure stops all lanes.

mod health;
mod metrics;
mod takeover;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchweave_core::ids::Seq;
use batchweave_daemon::health::Health;
use batchweave_store::Store;
use prometheus::Registry;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::health::LaneHealth;
use self::metrics::LaneMetrics;
use self::takeover::Takeover;
use self::watch::Seen;
use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::flow_control::HeldByJob;
use crate::metrics::DaemonMetrics;
use crate::outcome::Outcome;
use crate::produce;
use crate::site::{SharedTransform, Site};

/// The surroundings that all lanes of the daemon share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) health: Health,
    pub(crate) registry: Registry,
    pub(crate) metrics: DaemonMetrics,
}

/// Runs the lanes of `config` until all have ended and no other can be taken over, or `stop` is cancelled. `began` is
/// called when the first document is about to be read.
pub(crate) async fn run(
    shared: Shared,
    config: &ProducerConfig,
    stop: &CancellationToken,
    began: Box<dyn FnOnce() + Send>,
) -> Result<Outcome, RunError> {
    let stop = stop.child_token();
    let mut lanes = Lanes {
        metrics: LaneMetrics::new(&shared.registry)?,
        pages: LaneHealth::start(shared.health.clone()),
        takeover: Arc::new(Mutex::new(Takeover::new(config.producer.takeover_after.0))),
        shared,
        config,
        transform: SharedTransform::default(),
        held: HeldByJob::default(),
        lane_ended: Arc::new(Notify::new()),
        tasks: JoinSet::new(),
        ended: Ended::default(),
        stop: stop.clone(),
        _ends: stop.drop_guard(),
        began: Instant::now(),
    };
    let mut began = Some(began);
    for lane in &config.producer.lanes {
        lanes.start(lane, began.take().unwrap_or_else(|| Box::new(|| ())))?;
    }
    let worked = lanes.work().await;
    lanes.stop.cancel();
    // After a failure the others commit what is durable, within shutdown.deadline.
    while lanes.tasks.join_next().await.is_some() {}
    worked?;
    lanes.ended.outcome()
}

type LaneEnd = (String, Result<Outcome, RunError>);

struct Lanes<'a> {
    shared: Shared,
    config: &'a ProducerConfig,
    transform: SharedTransform,
    metrics: LaneMetrics,
    pages: LaneHealth,
    takeover: Arc<Mutex<Takeover>>,
    held: HeldByJob,
    /// Makes the watch look at once: the stream may be over.
    lane_ended: Arc<Notify>,
    tasks: JoinSet<LaneEnd>,
    ended: Ended,
    stop: CancellationToken,
    _ends: DropGuard,
    began: Instant,
}

impl Lanes<'_> {
    /// Waits for lanes that end, and takes over others, until no lane runs and none may be taken.
    async fn work(&mut self) -> Result<(), RunError> {
        let (to_here, mut seen) = mpsc::channel(1);
        let mut watches = self.config.takes_over();
        if watches {
            tokio::spawn(watch::follow(
                self.shared.store.clone(),
                self.config.clone(),
                self.takeover.clone(),
                self.began,
                self.held.clone(),
                self.lane_ended.clone(),
                to_here,
            ));
        }
        while !self.tasks.is_empty() || watches {
            let lanes = i64::try_from(self.tasks.len()).unwrap_or(i64::MAX);
            self.shared.metrics.lanes.set(lanes);
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next() => self.end(ended)?,
                () = self.stop.cancelled(), if self.tasks.is_empty() => {
                    self.ended.add(Outcome::Stopped { batches: None });
                    return Ok(());
                }
                seen = seen.recv(), if watches => match seen {
                    Some(Seen::Abandoned(lane)) => self.take_over(&lane)?,
                    Some(Seen::Failed(why)) => return Err(why.into()),
                    Some(Seen::Over) => {
                        self.ended.over = true;
                        watches = false;
                    }
                    None => watches = false,
                },
            }
        }
        Ok(())
    }

    /// Starts the producer of `lane`.
    fn start(&mut self, lane: &str, began: Box<dyn FnOnce() + Send>) -> Result<(), RunError> {
        let site = Site {
            store: self.shared.store.clone(),
            metrics: self.metrics.of(lane)?,
            health: self.pages.begin(lane),
            transform: self.transform.clone(),
            held: self.held.clone(),
            alone: false,
        };
        self.takeover().began(lane);
        self.ended.lost.remove(lane);
        let (config, lane) = (self.config.of_lane(lane), lane.to_owned());
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let ended = produce::run(site, &config, &stop, began).await;
            (lane, ended)
        });
        Ok(())
    }

    fn take_over(&mut self, lane: &str) -> Result<(), RunError> {
        if self.stop.is_cancelled() {
            return Ok(());
        }
        let after = self.config.producer.takeover_after;
        tracing::warn!(lane, %after, "no batch came from this lane, for which the stream waits: takes it over");
        self.shared.metrics.takeovers.inc();
        self.start(lane, Box::new(|| ()))
    }

    /// Takes note of the end of a lane. A lane that another daemon took fails nothing.
    fn end(&mut self, ended: Result<LaneEnd, JoinError>) -> Result<(), RunError> {
        let (lane, outcome) = ended.map_err(|why| RunError::lost("lane", why))?;
        let why = match outcome {
            Ok(outcome) => {
                self.ended.add(outcome);
                match outcome {
                    Outcome::Finished { .. } => "finished",
                    Outcome::Stopped { .. } => "stopped",
                    Outcome::Sealed => "the stream is sealed",
                }
            }
            Err(why @ RunError::Fenced { .. }) => {
                tracing::warn!(lane, "{why}");
                self.shared.metrics.lost.inc();
                self.takeover().lost(&lane, self.began.elapsed());
                self.ended.lost.insert(lane.clone(), why);
                "run by another daemon"
            }
            Err(why) => return Err(why),
        };
        self.pages.end(&lane, why);
        self.lane_ended.notify_one();
        Ok(())
    }

    fn takeover(&self) -> MutexGuard<'_, Takeover> {
        self.takeover.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How lanes ended so far.
#[derive(Debug, Default)]
struct Ended {
    finished: Option<Seq>,
    /// Lanes that were stopped, and the batches of those that had begun.
    stopped: (usize, Option<Seq>),
    sealed: bool,
    /// Lanes that other daemons took.
    lost: BTreeMap<String, RunError>,
    /// Whether the stream was seen to be over: the other daemons have brought those lanes to their end. A lane may hear
    /// that it was taken before this or after it.
    over: bool,
}

impl Ended {
    fn add(&mut self, outcome: Outcome) {
        let more = |sum: Option<Seq>, batches: Seq| Some(sum.unwrap_or(0) + batches);
        match outcome {
            Outcome::Finished { batches } => self.finished = more(self.finished, batches),
            Outcome::Stopped { batches } => {
                let (lanes, sum) = self.stopped;
                self.stopped = (lanes + 1, batches.map_or(sum, |batches| more(sum, batches)));
            }
            Outcome::Sealed => self.sealed = true,
        }
    }

    /// Returns the outcome of the daemon; an error when another one has some of its lanes.
    fn outcome(mut self) -> Result<Outcome, RunError> {
        if let (1.., batches) = self.stopped {
            return Ok(Outcome::Stopped { batches });
        }
        if let Some((_, fenced)) = self.lost.pop_first()
            && !self.over
        {
            return Err(fenced);
        }
        Ok(match self.finished {
            Some(batches) if !self.sealed => Outcome::Finished { batches },
            _ => Outcome::Sealed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced() -> RunError {
        RunError::Fenced {
            producer: "l2".to_owned(),
            by: 3,
            instance: "other".to_owned(),
        }
    }

    #[test]
    fn a_lane_that_was_taken_fails_a_daemon_until_the_stream_is_over() {
        let ended = |over, finished| {
            let mut ended = Ended {
                over,
                ..Ended::default()
            };
            if finished {
                ended.add(Outcome::Finished { batches: 7 });
            }
            ended.lost.insert("l2".to_owned(), fenced());
            ended.outcome()
        };
        assert!(matches!(
            ended(false, true),
            Err(RunError::Fenced { by: 3, .. })
        ));
        assert_eq!(ended(true, true).unwrap(), Outcome::Finished { batches: 7 });
        assert_eq!(ended(true, false).unwrap(), Outcome::Sealed);
    }
}
