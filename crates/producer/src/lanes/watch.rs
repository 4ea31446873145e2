//! Follows the log for the lane of the first missing step.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchweave_core::flow_control::FlowControl;
use batchweave_core::ids::Step;
use batchweave_core::manifest::Manifest;
use batchweave_log::{FlowControlStatus, Log, LogError, LogOptions, PositionReader, TokioClock};
use batchweave_store::Store;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::takeover::Takeover;
use crate::config::ProducerConfig;
use crate::flow_control::{self, HeldByJob};

/// The time between two reads of the log is this part of the time after which a lane is taken over.
const READS: u32 = 8;
/// The bounds of that time.
const EVERY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];

/// An event of the log.
#[derive(Debug)]
pub(super) enum Seen {
    /// This lane is to be taken over.
    Abandoned(String),
    /// The stream has ended or is sealed.
    Over,
    /// The log can't be read.
    Failed(LogError),
}

/// The log, and how far the jobs let a producer go.
struct Follower {
    store: Arc<dyn Store>,
    log: Option<Log>,
    reader: Option<PositionReader>,
    bounds: Option<watch::Receiver<FlowControl>>,
    /// The reader looks up positions by what this says, until it is dropped.
    status: Option<watch::Sender<FlowControlStatus>>,
    /// Whether the store did not answer the last time, which is logged once.
    failing: bool,
}

impl Follower {
    fn new(store: Arc<dyn Store>, config: &ProducerConfig) -> Self {
        let (reader, bounds) = flow_control::position_reader(config);
        Self {
            store,
            log: None,
            reader,
            bounds,
            status: None,
            failing: false,
        }
    }

    /// Reads the log if the store answers. Returns whether the log was read.
    async fn try_read(&mut self) -> Result<bool, LogError> {
        match self.read().await {
            Ok(()) => {
                self.failing = false;
                Ok(true)
            }
            // A lane is about to create it.
            Err(LogError::NoStream { .. }) => Ok(false),
            // Producers report a store that does not answer, and stop when it lasts.
            Err(LogError::Store(why)) => {
                if !self.failing {
                    tracing::warn!(%why, "cannot see which lane is awaited; tries again");
                }
                self.failing = true;
                Ok(false)
            }
            Err(why) => Err(why),
        }
    }

    async fn read(&mut self) -> Result<(), LogError> {
        let log = if let Some(log) = &mut self.log {
            log.catch_up().await?;
            log
        } else {
            let options = LogOptions {
                write_snapshots: false,
                ..LogOptions::new(rand::random())
            };
            let opened = Log::open(self.store.clone(), &options).await?;
            self.log.insert(opened)
        };
        let status = FlowControlStatus {
            manifest: log.manifest().clone(),
            held: None,
            held_items: 0,
            lead: None,
        };
        match (&self.status, self.reader.take()) {
            (Some(sender), _) => drop(sender.send(status)),
            (None, Some(reader)) => {
                let (sender, receiver) = watch::channel(status);
                let store = self.store.clone();
                let clock = TokioClock::shared();
                tokio::spawn(reader.follow(store, clock, receiver, rand::random()));
                self.status = Some(sender);
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Returns whether a job, or its absence, may hold the owner of the first missing step: the next entry of that lane could
    /// give `most` steps, and would be over the ceiling.
    fn at_ceiling(&self, m: &Manifest, most: Step) -> bool {
        let Some(bounds) = &self.bounds else {
            return false;
        };
        let flow = bounds.borrow();
        // A job that has received all steps holds nobody.
        let starved = flow
            .slowest(m)
            .is_some_and(|slowest| slowest.position >= m.next_step());
        let over = |ceiling| m.next_step().saturating_add(most) > ceiling;
        !starved && flow.ceiling(m).is_some_and(over)
    }

    /// Returns the event of the log as it was read. `choose` decides, by the awaited lane with its step and whether the
    /// ceiling may hold it, which lane is to be taken over.
    fn event(
        &self,
        most: Step,
        choose: impl FnOnce(Option<(&str, Step)>, bool) -> Option<String>,
    ) -> Option<Seen> {
        let m = self.log.as_ref().map(Log::manifest)?;
        if m.end().is_some() {
            return Some(Seen::Over);
        }
        let awaited = m.awaited_lane().map(|lane| (lane.as_str(), m.next_step()));
        choose(awaited, self.at_ceiling(m, most)).map(Seen::Abandoned)
    }
}

/// Reads the log again and again, and when a lane has `ended`, until it is over or nobody listens.
pub(super) async fn follow(
    store: Arc<dyn Store>,
    config: ProducerConfig,
    takeover: Arc<Mutex<Takeover>>,
    began: Instant,
    held: HeldByJob,
    ended: Arc<Notify>,
    seen: mpsc::Sender<Seen>,
) {
    let after = config.producer.takeover_after.0;
    let mut follower = Follower::new(store, &config);
    // With each batch of the lane, every other one may give one that waits.
    let most = (flow_control::entry_max(&config) * config.stream.producers.len()) as Step;
    let every = (after / READS).clamp(EVERY[0], EVERY[1]);
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(every) => {}
            () = ended.notified() => {}
            () = seen.closed() => return,
        }
        let event = match follower.try_read().await {
            Ok(true) => follower.event(most, |awaited, is_held| {
                let held = is_held || held.any();
                let mut takeover = takeover.lock().unwrap_or_else(PoisonError::into_inner);
                takeover.look(began.elapsed(), awaited, held)
            }),
            Ok(false) => None,
            Err(why) => Some(Seen::Failed(why)),
        };
        let Some(event) = event else { continue };
        let last = !matches!(event, Seen::Abandoned(_));
        if seen.send(event).await.is_err() || last {
            return;
        }
    }
}
