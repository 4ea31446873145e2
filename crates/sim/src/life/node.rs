//! The trainer of one data coordinate in one attempt: reads step after step within its rights,
//! publishes its progress, makes marks. The node of coordinate 0 opens the attempt, the others wait
//! for it in the log, as consumer daemons do.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{AttemptId, AttemptNo, JobName, Step, Version};
use batchweave_core::manifest::entry::{AttemptOpened, Parent};
use batchweave_core::manifest::state::{AttemptState, StepEntry};
use batchweave_core::manifest::{Entry, Manifest, Void};
use batchweave_log::{Located, Log, LogError};
use batchweave_store::{Store, StoreError};
use futures::TryStreamExt;

use super::Received;
use super::job::Job;
use super::memory::Memory;
use super::signs::Signs;
use crate::actor::Actor;
use crate::world::forward::options;
use crate::world::producer::DATA;
use crate::world::run::Shared;

/// A node waits so long for its attempt to be opened.
const OPENED_WITHIN: Duration = Duration::from_mins(1);
/// Reads of one part that fails its checksum.
const FETCHES_MAX: u32 = 100;
/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(50);

/// How a node ended, other than by dying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It has read all that it was to read.
    Done,
    /// A newer attempt is open.
    Superseded,
    /// The job is closed.
    Closed,
    /// The attempt's start is reclaimed; the oldest step that can be read.
    Refused(Step),
    /// The attempt never came, or something else that another attempt may mend.
    Failed(String),
}

/// An attempt as the log has it.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) job: JobName,
    pub(super) opened: Version,
    pub(super) attempt: AttemptNo,
    pub(super) id: AttemptId,
    pub(super) dp_size: u32,
    /// Quarantined steps, first and last.
    skips: Vec<(Step, Step)>,
}

impl Open {
    /// The first step at or after `step` that is not passed over.
    fn not_skipped(&self, mut step: Step) -> Step {
        while let Some((_, last)) = self.skips.iter().find(|(f, l)| (*f..=*l).contains(&step)) {
            step = last + 1;
        }
        step
    }
}

/// What an attempt is to be; the same for all its nodes.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) opened: Version,
    pub(super) id: AttemptId,
    pub(super) start: Step,
    pub(super) parent: Option<Parent>,
    pub(super) dp_size: u32,
}

/// One node.
pub(super) struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) job: Arc<Job>,
    pub(super) wanted: Wanted,
    pub(super) coordinate: u32,
    pub(super) actor: Arc<Actor>,
    pub(super) store: Arc<dyn Store>,
}

/// The attempt that was the newest when the node first looked.
#[derive(Clone, Copy)]
enum Predecessor {
    Unknown,
    Is(Option<AttemptId>),
}

/// Goes on after a failure of the store, ends with anything else.
enum Stop {
    Again,
    End(End),
}

impl Node {
    pub(super) async fn run(self) -> End {
        let mut signs = Signs {
            store: Arc::clone(&self.store),
            actor: Arc::clone(&self.actor),
            stream: self.shared.stream_id(),
            coordinate: self.coordinate,
            published: Vec::new(),
        };
        // The first attempt that it saw before its own: another one in between supersedes it.
        let mut predecessor = Predecessor::Unknown;
        let mut next = None;
        loop {
            match self.train(&mut predecessor, &mut next, &mut signs).await {
                Ok(end) | Err(Stop::End(end)) => return end,
                Err(Stop::Again) => self.actor.sleep(LOOK).await,
            }
        }
    }

    /// Store failures are part of the world; anything else is a finding.
    fn stop(&self, error: LogError) -> Stop {
        match error {
            passes if self.shared.may_pass(&passes) => Stop::Again,
            LogError::Void(Void::BelowWatermark { watermark, .. }) => {
                Stop::End(End::Refused(watermark))
            }
            LogError::Void(Void::WrongPredecessor) => Stop::End(End::Superseded),
            LogError::Void(Void::JobNotOpen { .. }) => Stop::End(End::Closed),
            other => {
                let text = format!("{} stopped: {other}", self.actor.name);
                self.shared.found("trainer-error", self.actor.id, text);
                Stop::End(End::Failed(other.to_string()))
            }
        }
    }

    async fn train(
        &self,
        predecessor: &mut Predecessor,
        next: &mut Option<Step>,
        signs: &mut Signs,
    ) -> Result<End, Stop> {
        let options = options(&self.shared, &self.actor, self.coordinate == 0);
        let opened = Log::open(Arc::clone(&self.store), &options).await;
        let mut log = opened.map_err(|e| self.stop(e))?;
        if self.coordinate == 0 && next.is_none() {
            self.open(&mut log, predecessor).await?;
        }
        let open = self.awaited(&mut log).await?;
        if next.is_none() {
            let text = format!("attempt {} starts at {}", open.attempt, self.wanted.start);
            self.shared.store.note(&self.actor, text);
            let (start, dp) = (self.wanted.start, open.dp_size);
            self.job
                .memory(|memory| memory.opened(open.attempt, start, dp));
        }
        let mut at = next.unwrap_or_else(|| open.not_skipped(self.wanted.start));
        loop {
            *next = Some(at);
            if self.job.plan.abandons.is_some_and(|last| at >= last) {
                return Ok(End::Done);
            }
            self.actor.sleep(self.job.plan.pace).await;
            let Some(step) = self.step(&mut log, &open, at, signs).await? else {
                signs.progress(&open, at).await;
                return Ok(End::Done);
            };
            self.receive(&open, &step);
            let after = open.not_skipped(at + 1);
            let head = log.manifest().next_step();
            self.tell(&open, (at, after), head, signs).await;
            at = after;
        }
    }

    async fn open(&self, log: &mut Log, predecessor: &mut Predecessor) -> Result<(), Stop> {
        log.catch_up().await.map_err(|e| self.stop(e))?;
        let job = log.manifest().jobs().get(&self.job.name);
        let newest = job.and_then(|job| job.attempts.last().map(|a| a.id));
        if newest == Some(self.wanted.id) {
            return Ok(());
        }
        if let Predecessor::Unknown = predecessor {
            *predecessor = Predecessor::Is(newest);
        }
        let Predecessor::Is(predecessor) = *predecessor else {
            return Ok(());
        };
        let entry = Entry::AttemptOpened(AttemptOpened {
            job: self.job.name.clone(),
            opened: self.wanted.opened,
            attempt: self.wanted.id,
            predecessor,
            parent: self.wanted.parent,
            start: self.wanted.start,
            dp_size: self.wanted.dp_size,
            mesh: Vec::new(),
        });
        let done = log.commit_entry(&self.actor.name, |_| entry.clone()).await;
        done.map(|_| ()).map_err(|e| self.stop(e))
    }

    /// This node's attempt in the log, with its set of quarantined steps.
    fn find(&self, m: &Manifest) -> Result<Option<Open>, End> {
        let job = m.jobs().get(&self.job.name);
        let Some(job) = job.filter(|job| job.opened == self.wanted.opened) else {
            return Err(End::Closed);
        };
        let Some(mine) = job.attempts.iter().find(|a| a.id == self.wanted.id) else {
            return Ok(None);
        };
        if job.attempts.last().map(|a| a.id) != Some(self.wanted.id) {
            return Err(End::Superseded);
        }
        Ok(Some(Open {
            job: self.job.name.clone(),
            opened: self.wanted.opened,
            attempt: mine.number,
            id: mine.id,
            dp_size: mine.dp_size,
            skips: skips(m, mine),
        }))
    }

    async fn awaited(&self, log: &mut Log) -> Result<Open, Stop> {
        let deadline = self.actor.now() + OPENED_WITHIN;
        loop {
            log.catch_up().await.map_err(|e| self.stop(e))?;
            match self.find(log.manifest()) {
                Ok(Some(open)) => return Ok(open),
                Err(end) => return Err(Stop::End(end)),
                Ok(None) if self.actor.now() >= deadline => {
                    let why = "the attempt was not opened in time".to_owned();
                    return Err(Stop::End(End::Failed(why)));
                }
                Ok(None) => self.actor.sleep(LOOK).await,
            }
        }
    }

    /// The data of step `at`; none at the end of what it reads.
    async fn step(
        &self,
        log: &mut Log,
        open: &Open,
        at: Step,
        signs: &mut Signs,
    ) -> Result<Option<Arc<StepEntry>>, Stop> {
        loop {
            let done = self.shared.done();
            log.catch_up().await.map_err(|e| self.stop(e))?;
            self.find(log.manifest()).map_err(Stop::End)?;
            match log.locate(at).await.map_err(|e| self.stop(e))? {
                Located::At(step) => match self.fetch(&step).await {
                    Ok(()) => return Ok(Some(step)),
                    Err(e) if e.is_not_found() => return self.missing(log, open, &step).await,
                    Err(_) => {}
                },
                Located::NotYet | Located::Ended { .. } if done => return Ok(None),
                // Producers that are held back wait to be told. A range that is quarantined ahead of
                // time may lie beyond the head, and nobody believes progress that does.
                Located::NotYet | Located::Ended { .. } => {
                    let head = log.manifest().next_step();
                    signs.progress(open, at.min(head)).await;
                }
                Located::Reclaimed { watermark } => return self.reclaimed(at, watermark),
            }
            self.actor.sleep(LOOK).await;
        }
    }

    /// Gets the step's parts; what fails its checksum is fetched again, as the daemon does.
    async fn fetch(&self, step: &StepEntry) -> Result<(), StoreError> {
        for part in &step.tgb.parts {
            let mut whole = false;
            for _ in 0..FETCHES_MAX {
                let range = 0..DATA.len() as u64;
                let chunks = self.store.get_range(&part.key, range).await?;
                let read: Vec<_> = chunks.try_collect().await?;
                whole = read.concat() == DATA;
                if whole {
                    break;
                }
            }
            if !whole {
                let text = format!("{} was never read whole", part.key);
                self.shared.found("checksum", self.actor.id, text);
            }
        }
        Ok(())
    }

    /// The data is gone: that is right only for one who has lost his rights.
    async fn missing<T>(&self, log: &mut Log, open: &Open, step: &StepEntry) -> Result<T, Stop> {
        log.catch_up().await.map_err(|e| self.stop(e))?;
        self.find(log.manifest()).map_err(Stop::End)?;
        let watermark = log.manifest().watermark();
        if step.step < watermark {
            return self.reclaimed(step.step, watermark);
        }
        let text = format!(
            "{} attempt {}: step {} is not there, the watermark is {watermark}",
            open.job, open.attempt, step.step
        );
        self.shared.found("missing", self.actor.id, text);
        Err(Stop::End(End::Failed("data is missing".to_owned())))
    }

    /// The watermark has passed the newest attempt of an open job: right if the job does not hold.
    fn reclaimed<T>(&self, at: Step, watermark: Step) -> Result<T, Stop> {
        if self.job.plan.holds {
            let name = &self.job.name;
            let text = format!("{name} needs step {at}, but the watermark is {watermark}");
            self.shared.found("rights", self.actor.id, text);
        }
        Err(Stop::End(End::Refused(watermark)))
    }

    fn receive(&self, open: &Open, step: &StepEntry) {
        self.shared.received(Received {
            job: open.job.clone(),
            opened: open.opened,
            attempt: open.attempt,
            coordinate: self.coordinate,
            step: step.step,
            producer: step.producer.clone(),
            seq: step.seq,
        });
    }

    /// Progress and marks that are due when the position moves.
    async fn tell(
        &self,
        open: &Open,
        (before, after): (Step, Step),
        head: Step,
        signs: &mut Signs,
    ) {
        let plan = &self.job.plan;
        let passes = |every: u64| before / every != after / every;
        let coordinate = (!plan.rank0).then_some(self.coordinate);
        let marks = passes(plan.mark_every) && (self.coordinate == 0 || !plan.rank0);
        if marks && signs.mark(open, after, coordinate).await {
            let marked = |memory: &mut Memory| memory.marked(open.attempt, after, coordinate);
            self.job.memory(marked);
        }
        if passes(plan.progress_every) {
            signs.progress(open, after.min(head)).await;
        }
    }
}

/// The quarantines in force when the attempt was opened.
fn skips(m: &Manifest, attempt: &AttemptState) -> Vec<(Step, Step)> {
    let at = attempt.opened;
    let in_force = m.quarantines().iter();
    let in_force = in_force.filter(|q| q.added < at && q.lifted.is_none_or(|l| l > at));
    in_force.map(|q| (q.first, q.last)).collect()
}
