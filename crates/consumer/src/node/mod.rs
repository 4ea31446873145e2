//! The shared state of the daemon: the engine with its arena, the ranks' lines, what is known of
//! the stream. Everything happens under one lock, held for microseconds; what takes longer is
//! started after it is given back.

mod outbox;
mod ranks;
mod replaced;
mod rewind;
mod state;
mod status;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_arena::Segment;
use batchweave_core::ids::{JobName, ProducerName, Step, Version};
use batchweave_core::manifest::state::{JobState, QuarantineState};
use batchweave_core::stream::StreamConfig;
use batchweave_store::{Store, StoreError};
use batchweave_wire::{ErrorName, Fault, Hello, Welcome};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use outbox::Outgoing;
use outbox::Owner;
pub(crate) use ranks::Run;
pub(crate) use replaced::{AttemptKey, Replaced};
pub(crate) use state::State;
pub(crate) use status::Late;

use crate::config::JobTable;
use crate::context::Context;
use crate::engine::layouts::Shapes;
use crate::engine::{Limits, SessionId};
use crate::fetch;
use crate::fetch::hedge::Hedges;
use crate::fetch::permits::Permits;
use crate::job::admission::{self, Bounds, Refusal};
use crate::job::attempt_rate::AttemptRate;
use crate::job::attempts::Order;
use crate::job::deliveries::Deliveries;
use crate::job::membership::{Member, Standing, standing};
use crate::metrics::Metrics;
use crate::quarantine::Skips;
use crate::segments::Memory;

/// A head that is not known after this can't be read.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// What the follower of the log is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Steps that ranks need soon and that are not known, in order.
    pub(crate) steps: Arc<[Step]>,
    /// How far the head is ahead of the rank that is nearest to it; None without ranks.
    pub(crate) lead: Option<u64>,
    /// Data coordinates that ranks here read for.
    pub(crate) coordinates: u32,
    /// Some rank waits for its job or attempt to be opened.
    pub(crate) hurry: bool,
}

/// Who reads: either may work while the other does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reads {
    Log,
    Data,
}

impl Reads {
    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Data => "data",
        }
    }
}

/// What is known of the stream; the follower keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) watermark: Step,
    pub(crate) next_step: Step,
    pub(crate) end: Option<Step>,
    pub(crate) jobs: BTreeMap<JobName, JobState>,
    pub(crate) quarantine: Vec<QuarantineState>,
    /// Under `lanes`: whose TGB the next step waits for, and since which version.
    pub(crate) awaited: Option<(ProducerName, Version)>,
}

/// Fixed parts, and the state behind its lock.
pub(crate) struct Hub {
    pub(crate) stream: StreamConfig,
    pub(crate) instance: [u8; 16],
    pub(crate) job: JobTable,
    /// To the follower of the log.
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) context: Arc<Context>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop: CancellationToken,
    /// Reads in flight.
    pub(crate) permits: Permits,
    /// Second requests for those that are late.
    pub(crate) hedges: Hedges,
    pub(crate) read_bytes: u64,
    pub(crate) shapes: Mutex<Shapes>,
    pub(crate) needs: watch::Sender<Needs>,
    /// Wakes the follower for a look at the head now; `rounds` counts its looks.
    pub(crate) look: Notify,
    rounds: AtomicU64,
    looked: Notify,
    /// Tells that the head is another one. No watch channel: that wakes those who wait in any order.
    pub(crate) heads: Notify,
    /// Bounds the attempts that ranks have opened.
    pub(crate) attempt_rate: AttemptRate,
    /// Tells that progress is to be stored now.
    pub(crate) progress_due: Arc<Notify>,
    memory: Memory,
    growth: Growth,
    started: Duration,
    state: Mutex<State>,
}

/// What a hub is made of.
pub(crate) struct Parts {
    pub(crate) stream: StreamConfig,
    pub(crate) instance: [u8; 16],
    pub(crate) job: JobTable,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) deliveries: Deliveries,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) context: Arc<Context>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop: CancellationToken,
    pub(crate) concurrency: usize,
    pub(crate) read_bytes: u64,
    pub(crate) limits: Limits,
    pub(crate) memory: Memory,
    pub(crate) first_segment: Arc<Segment>,
    pub(crate) growth: Growth,
}

/// When the arena may grow beyond one segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    /// At the latest so long after the start.
    pub(crate) after: Duration,
    /// Before that once so many ranks are here and none has an earlier arena mapped; 0: not known.
    pub(crate) ranks: u32,
}

impl Hub {
    pub(crate) fn new(parts: Parts, head: Head) -> Arc<Self> {
        let progress_due = Arc::new(Notify::new());
        let mut state = State::new(
            parts.limits,
            parts.first_segment,
            parts.metrics.clone(),
            parts.deliveries,
        );
        state.report_progress(parts.job.progress_steps, progress_due.clone());
        state.set_head(head);
        let permits = Permits::new(
            parts.concurrency,
            parts.metrics.reads_allowed.clone(),
            Arc::clone(&parts.context),
        );
        let hedges = Hedges::new(Arc::clone(&parts.context));
        let started = parts.context.now();
        Arc::new(Self {
            stream: parts.stream,
            instance: parts.instance,
            job: parts.job,
            orders: parts.orders,
            store: parts.store,
            context: parts.context,
            metrics: parts.metrics,
            stop: parts.stop,
            permits,
            hedges,
            read_bytes: parts.read_bytes,
            shapes: Mutex::default(),
            needs: watch::Sender::default(),
            look: Notify::new(),
            rounds: AtomicU64::new(0),
            looked: Notify::new(),
            heads: Notify::new(),
            attempt_rate: AttemptRate::default(),
            progress_due,
            memory: parts.memory,
            growth: parts.growth,
            started,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then lets the engine go on and starts what it asks for.
    pub(crate) fn apply<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        let (value, started, needs) = {
            let mut state = self.lock();
            let value = change(&mut state);
            let started = state.advance();
            (value, started, state.needs())
        };
        self.needs.send_if_modified(|old| {
            let changed = *old != needs;
            *old = needs;
            changed
        });
        if !started.fetches.is_empty() {
            fetch::start(self, started.fetches);
        }
        if started.grow {
            self.grow();
        }
        value
    }

    /// Adds a segment, unless ranks may still have the last daemon's arena mapped: both together
    /// could get the trainer killed.
    fn grow(self: &Arc<Self>) {
        if self.context.since(self.started) < self.growth.after {
            let mut state = self.lock();
            if state.old_arena_may_be_mapped(self.growth.ranks) {
                state.postpone_growth();
                return;
            }
        }
        let hub = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let made = hub.memory.segment();
            hub.apply(|state| match made {
                Ok(segment) => state.add_segment(segment),
                Err(why) => {
                    tracing::warn!(%why, "the arena stays as it is");
                    state.engine.growth_failed();
                }
            });
        });
    }

    /// Admits a rank of user `uid` and opens its line, or says why not.
    pub(crate) fn join(
        self: &Arc<Self>,
        hello: &Hello,
        uid: u32,
    ) -> Result<(SessionId, Welcome, Arc<Notify>), Refusal> {
        admission::check(hello, &self.stream, &self.job.name)?;
        self.apply(|state| {
            let bounds = Bounds {
                watermark: state.head.watermark,
                end: state.head.end,
            };
            if let Some(fault) = state.contradicts(hello, None) {
                return Err(Refusal::Beyond(Box::new(fault)));
            }
            let standing = standing(hello, &state.head.jobs)?;
            let slices = admission::slices_of(hello, &self.stream, bounds)?;
            let quarantine = &state.head.quarantine;
            let (member, skips) = match standing {
                Standing::Opens(wish) => return Err(Refusal::Open(wish)),
                Standing::Waits(hold) => return Err(Refusal::Wait(hold)),
                Standing::Alone => (None, Arc::new(Skips::now(quarantine))),
                Standing::In(job, attempt) => {
                    let skips = Arc::new(Skips::at(quarantine, attempt.opened));
                    let member =
                        Member::new(hello, job, attempt, slices.clone(), Arc::clone(&skips))?;
                    (Some(Arc::new(member)), skips)
                }
            };
            if let Some(fault) = state.contradicts(hello, member.as_deref()) {
                return Err(Refusal::Beyond(Box::new(fault)));
            }
            let id = state.new_session();
            let owner = Owner::new(uid, hello, member.as_deref());
            self.retire_replaced(state, hello, &owner, id);
            if let Some(member) = &member {
                state.admission.enter(id, member)?;
            }
            let welcome = Welcome {
                session: id,
                instance: self.instance,
                stream: self.stream.stream_id.0,
                attempt: member.as_ref().map_or([0; 16], |m| m.id.0),
                attempt_number: member.as_ref().map(|m| m.attempt),
                next_step: skips.pass(hello.next_step),
                end_step: state.head.end,
                slices: self.stream.slices,
                seq_len: self.stream.seq_len,
                rows_per_slice: self.stream.rows_per_slice,
                first_slice: slices.start,
                slice_count: slices.end - slices.start,
                credits: hello.credits,
            };
            let wake = state.open_line((hello, owner), welcome.clone(), member, skips);
            Ok((id, welcome, wake))
        })
    }

    /// Ends the session that `owner` has had here before, and none of anybody else.
    fn retire_replaced(&self, state: &mut State, hello: &Hello, owner: &Owner, new: SessionId) {
        let replaced = hello.replaces.as_ref();
        let old = replaced.filter(|old| old.instance == hex(&self.instance));
        let Some(old) = old.map(|old| old.session) else {
            return;
        };
        match state.owner(old) {
            None => {}
            Some(whose) if whose == owner => {
                let message = format!("session {new} of the same rank has replaced this one");
                let fault = Fault::new(ErrorName::DuplicateCoordinate, message);
                state.fail_session(old, fault.remedy("read on in the newer session"));
            }
            Some(_) => tracing::warn!(
                session = old,
                client = %hello.client,
                "a rank says that it replaces this session, which is another one's: both go on"
            ),
        }
    }

    /// What reads `of` has heard of the store: an answer, or a failure that is tried again.
    pub(crate) fn store_health(&self, of: Reads, failure: Option<&StoreError>) {
        if let Some(why) = failure {
            self.store_fails(of, why.to_string());
        } else if self.lock().store_failures.remove(&of).is_some() {
            tracing::info!(reads = of.name(), "the store answers again");
        }
    }

    /// A failure that is tried again.
    pub(crate) fn store_fails(&self, of: Reads, why: String) {
        let known = { self.lock().store_failures.insert(of, why.clone()) };
        if known.is_none() {
            tracing::warn!(reads = of.name(), %why, "the store fails; trying again");
        }
    }

    /// Waits until the follower has read the log to its head once more; gives what is then known, or
    /// `None` when the log can't be read.
    pub(crate) async fn look_again(&self) -> Option<Head> {
        let twice = async {
            // Twice: the look under way may have begun earlier.
            for _ in 0..2 {
                let before = self.rounds.load(Relaxed);
                self.look.notify_one();
                loop {
                    let looked = self.looked.notified();
                    if self.rounds.load(Relaxed) > before {
                        break;
                    }
                    looked.await;
                }
            }
        };
        self.context.timeout(LOOK_TIMEOUT, twice).await?;
        Some(self.lock().head.clone())
    }

    /// The follower has looked at the log.
    pub(crate) fn has_looked(&self) {
        self.rounds.fetch_add(1, Relaxed);
        self.looked.notify_waiters();
    }

    /// An error for every rank that waits for a step the log can't tell of.
    pub(crate) fn log_broken(self: &Arc<Self>, fault: Option<Fault>) {
        self.apply(|state| state.log_fault = fault);
    }
}

/// How records name the daemon as their writer.
pub(crate) fn writer(instance: &[u8; 16]) -> String {
    format!("consumer-{}", &hex(instance)[..8])
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}
