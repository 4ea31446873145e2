//! The state of the daemon behind one lock, which is held for microseconds: the engine, the outboxes of the
//! ranks, and what is known of the stream.
//!
//! [`Node::apply`] changes the state and lets the engine advance. Messages go into outboxes. Reads and
//! growth are collected as [`state::Work`], which is handed over after the lock is released, in the same
//! call: reads to `fetch`, growth to `segments`. Both are bounded by the arena, since the engine reserves
//! the room of a frame before it asks for it and asks for one segment at a time. Their outcomes return
//! through [`FetchEvents`] and a callback, so neither module knows this one.
//!
//! - `state` is everything behind the lock; `sessions` opens, feeds and ends sessions in it;
//! - `outbox` collects what one rank is to be sent; `ranks` reports positions, marks and leases;
//! - `status` explains late steps and fills gauges;
//! - `replaced` and `rewind` stop ranks that have received what the log does not contain.

mod outbox;
mod ranks;
mod replaced;
mod rewind;
mod sessions;
pub(crate) mod stages;
mod state;
mod status;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_arena::Segment;
use batchweave_core::ids::Step;
use batchweave_wire::Fault;
use tokio::sync::{Notify, mpsc, watch};

pub(crate) use self::outbox::Outgoing;
pub(crate) use self::replaced::{AttemptKey, LogReplacement};
pub(crate) use self::state::State;
pub(crate) use self::status::LateStep;
use crate::config::JobTable;
use crate::describe::TokenizerFile;
use crate::engine::Limits;
use crate::engine::location::FrameId;
use crate::fetch::{FetchEvents, Fetcher, LookupOutcome, Outcome};
use crate::job::attempt_rate::AttemptRate;
use crate::job::attempts::LogRequest;
use crate::job::deliveries::Deliveries;
use crate::resources::Resources;
use crate::segments::{Growth, SegmentMaker};
use crate::stream_head::Head;

/// A poll of the log that takes longer than this counts as failed.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// The needs of ranks that the follower of the log satisfies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Steps that ranks need soon and that are not located, in order.
    pub(crate) steps: Arc<[Step]>,
    /// Steps between the head and the rank that is nearest to it; `None` without ranks.
    pub(crate) lead: Option<u64>,
    /// The number of data coordinates that ranks here read for.
    pub(crate) coordinates: u32,
    /// Some rank waits for its job or attempt to be opened.
    pub(crate) hurry: bool,
}

/// Polls of the log's head on request.
#[derive(Default)]
pub(crate) struct HeadPolls {
    /// Wakes the follower to poll the head now.
    pub(crate) requested: Notify,
    count: AtomicU64,
    done: Notify,
}

impl HeadPolls {
    /// Notes that the follower has read the log to its head.
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, Relaxed);
        self.done.notify_waiters();
    }

    async fn next(&self) {
        let before = self.count.load(Relaxed);
        self.requested.notify_one();
        loop {
            let done = self.done.notified();
            if self.count.load(Relaxed) > before {
                return;
            }
            done.await;
        }
    }
}

/// The state, and the handles by which it acts.
pub(crate) struct Node {
    pub(crate) resources: Arc<Resources>,
    pub(crate) job: JobTable,
    /// Requests to the follower of the log.
    pub(crate) requests: mpsc::Sender<LogRequest>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) needs: watch::Sender<Needs>,
    pub(crate) polls: HeadPolls,
    /// Notifies that the head has changed. No watch channel, which wakes its waiters in any order.
    pub(crate) head_changed: Notify,
    pub(crate) attempt_rate: AttemptRate,
    /// Notifies that progress is to be stored now.
    pub(crate) progress_due: Arc<Notify>,
    /// The tokenizer's file, for clients that ask for it.
    pub(crate) tokenizer_file: TokenizerFile,
    segments: Arc<SegmentMaker>,
    growth: Growth,
    started: Duration,
    state: Mutex<State>,
}

/// The parts of a new node.
pub(crate) struct Parts {
    pub(crate) resources: Arc<Resources>,
    pub(crate) job: JobTable,
    pub(crate) requests: mpsc::Sender<LogRequest>,
    pub(crate) deliveries: Deliveries,
    pub(crate) fetcher: Fetcher,
    pub(crate) limits: Limits,
    pub(crate) segments: SegmentMaker,
    pub(crate) first_segment: Arc<Segment>,
    pub(crate) growth: Growth,
}

impl Node {
    /// A node without ranks, whose stream is at `head`.
    pub(crate) fn new(parts: Parts, head: Head) -> Arc<Self> {
        let resources = parts.resources;
        let progress_due = Arc::new(Notify::new());
        let mut state = State::new(
            parts.limits,
            parts.first_segment,
            resources.metrics.clone(),
            resources.store_health.clone(),
            parts.deliveries,
            resources.states.clone(),
            resources.values.clone(),
        );
        state.stream = Some(Arc::new(resources.stream.clone()));
        state.report_progress(parts.job.progress_steps, progress_due.clone());
        state.set_head(head);
        Arc::new(Self {
            job: parts.job,
            requests: parts.requests,
            fetcher: Arc::new(parts.fetcher),
            needs: watch::Sender::default(),
            polls: HeadPolls::default(),
            head_changed: Notify::new(),
            attempt_rate: AttemptRate::default(),
            progress_due,
            tokenizer_file: TokenizerFile::default(),
            segments: Arc::new(parts.segments),
            growth: parts.growth,
            started: resources.context.now(),
            state: Mutex::new(state),
            resources,
        })
    }

    /// Locks the state without letting the engine advance.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, lets the engine advance, and hands over the work that it asks for.
    pub(crate) fn apply<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        let (value, work, needs) = {
            let mut state = self.lock();
            let value = change(&mut state);
            let work = state.advance();
            (value, work, state.needs())
        };
        self.needs.send_if_modified(|old| {
            let changed = *old != needs;
            *old = needs;
            changed
        });
        if !work.fetches.is_empty() {
            self.fetcher.start(self, work.fetches);
        }
        if work.grow {
            self.grow();
        }
        value
    }

    /// Adds a segment, unless ranks may still have the arena of the last daemon mapped.
    fn grow(self: &Arc<Self>) {
        if self.resources.context.since(self.started) < self.growth.after {
            let mut state = self.lock();
            if state.old_arena_may_be_mapped(self.growth.ranks) {
                state.engine.growth_postponed();
                return;
            }
        }
        let node = Arc::clone(self);
        self.segments.create_in_background(move |created| {
            node.apply(|state| match created {
                Ok(segment) => state.add_segment(segment),
                Err(why) => {
                    tracing::warn!(%why, "the arena stays as it is");
                    state.engine.growth_failed();
                }
            });
        });
    }

    /// Passes the outcomes of lookups to the engine.
    pub(crate) fn located(self: &Arc<Self>, outcomes: Vec<LookupOutcome>) {
        self.apply(|state| {
            for outcome in outcomes {
                match outcome {
                    LookupOutcome::Located(step, first, locations) => {
                        state.engine.add_step(step, first, locations.into());
                    }
                    LookupOutcome::Failed(step, slices, why) => {
                        state.engine.fail_slices(step, slices, &why);
                    }
                }
            }
        });
    }

    /// Sets or clears the fault of a log that can't be followed. Ranks that wait for a step the log would
    /// have to locate are failed with it.
    pub(crate) fn set_log_fault(self: &Arc<Self>, fault: Option<Fault>) {
        self.apply(|state| state.log_fault = fault);
    }

    /// Has the log read to its head and returns what is then known; `None` when it can't be read in time.
    pub(crate) async fn poll_head(&self) -> Option<Head> {
        let twice = async {
            // The poll in progress may have begun before this call, so wait for the one after it, too.
            self.polls.next().await;
            self.polls.next().await;
        };
        let context = &self.resources.context;
        context.timeout(POLL_TIMEOUT, twice).await?;
        Some(self.head())
    }
}

impl FetchEvents for Node {
    fn fetched(self: &Arc<Self>, outcomes: Vec<(FrameId, Outcome)>) {
        self.apply(|state| {
            for (id, outcome) in outcomes {
                state.engine.fetched(id, outcome);
            }
        });
    }

    fn head(&self) -> Head {
        self.lock().head.clone()
    }

    async fn refresh_head(&self) -> Option<Head> {
        self.poll_head().await
    }

    fn steps_in(&self, key: &str) -> Vec<Step> {
        self.lock().engine.steps_in(key).collect()
    }
}
