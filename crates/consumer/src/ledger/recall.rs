//! Finding and filling holes of ledgers from the store's indexes, in a task of its own: one window of steps at a
//! time. While the store fails it retries without limit; only the marks of ranks with holes wait.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_core::proof::{LedgerEntry, ReaderSlices, rebuild_entries};
use batchweave_log::{Checksums, Log, LogError, StepCrcs, slice_crcs};
use batchweave_store::Backoff;
use tokio::sync::mpsc;

use super::BookKey;
use super::book::Hole;
use super::lineage;
use crate::job::membership::Member;
use crate::resources::Resources;

/// Pauses between retries, after the log has given up its own.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));

/// A log that was not used for longer is reopened: a snapshot saves reading most of the records since.
const FRESH: Duration = Duration::from_mins(5);

/// Holes of ranks of one attempt, in one window of steps.
#[derive(Debug, Clone)]
pub(super) struct Window {
    pub(super) key: BookKey,
    pub(super) holes: Vec<Hole>,
}

/// The outcome of a window.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) window: Window,
    pub(super) entries: Vec<LedgerEntry>,
    /// Steps that can't be recalled, with the reasons.
    pub(super) left: Vec<(Hole, String)>,
}

/// Work of the task.
#[derive(Debug)]
pub(super) enum Work {
    Window(Window),
    /// Find the holes in the ledgers of the attempts before that of these members.
    Lineage(Vec<Arc<Member>>),
}

/// The outcome of work.
#[derive(Debug)]
pub(super) enum Done {
    Window(Filled),
    /// The holes in the ledgers of the attempts before that of these members.
    Lineage(Vec<Arc<Member>>, Vec<Hole>),
}

/// The keeper's handle of the task: one piece of work at a time.
pub(super) struct Recall {
    work: mpsc::Sender<Work>,
    done: mpsc::Receiver<Done>,
    pub(super) busy: bool,
}

impl Recall {
    /// Starts the task, which reads by `log`; it ends with the keeper, or when the daemon ends.
    pub(super) fn start(log: Log, resources: Arc<Resources>) -> Self {
        let (work, mut asked) = mpsc::channel::<Work>(1);
        let (answers, done) = mpsc::channel(1);
        let stop = resources.stop.clone();
        let task = async move {
            let mut used = resources.context.now();
            let mut reader = Reader {
                sums: Some(Checksums::new(log)),
                resources,
            };
            while let Some(work) = asked.recv().await {
                if reader.resources.context.since(used) > FRESH {
                    reader.sums = None;
                }
                let done = reader.carry_out(work).await;
                used = reader.resources.context.now();
                if answers.send(done).await.is_err() {
                    return;
                }
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
        Self {
            work,
            done,
            busy: false,
        }
    }

    /// Starts a piece of work.
    pub(super) fn begin(&mut self, work: Work) {
        // The channel has room, since only one piece is in progress.
        self.busy = self.work.try_send(work).is_ok();
    }

    /// Waits for the outcome of the work; for ever if none is in progress or the task has ended.
    pub(super) async fn done(&mut self) -> Done {
        if self.busy
            && let Some(done) = self.done.recv().await
        {
            self.busy = false;
            return done;
        }
        std::future::pending().await
    }
}

/// The task, with its log.
struct Reader {
    sums: Option<Checksums>,
    resources: Arc<Resources>,
}

impl Reader {
    /// Carries out work; retries without limit while the store or the log fails.
    async fn carry_out(&mut self, work: Work) -> Done {
        let mut backoff = PAUSES;
        loop {
            match self.once(&work).await {
                Ok(done) => return done,
                Err(why) => {
                    tracing::warn!(%why, "cannot read what an earlier daemon delivered; retrying");
                }
            }
            // The log is reopened, since it may be repaired meanwhile.
            self.sums = None;
            self.resources.context.sleep(backoff.pause()).await;
        }
    }

    async fn once(&mut self, work: &Work) -> Result<Done, LogError> {
        let resources = Arc::clone(&self.resources);
        let sums = self.sums().await?;
        match work {
            Work::Window(window) => {
                let (steps, slices) = required(window);
                let read = sums.for_steps(&steps, &slices).await?;
                Ok(Done::Window(fill(window.clone(), &read)))
            }
            Work::Lineage(members) => {
                let (store, stream) = (resources.store.as_ref(), &resources.stream);
                let manifest = sums.manifest().await?;
                let holes = match lineage::holes(store, stream, manifest, members).await {
                    Err(why) if !why.kind.is_transient() => {
                        resources.metrics.ledger_holes.inc();
                        tracing::warn!(
                            %why,
                            "cannot read ledgers: deliveries that an earlier attempt did not record will be \
                             missing from the proof"
                        );
                        Vec::new()
                    }
                    found => found?,
                };
                Ok(Done::Lineage(members.clone(), holes))
            }
        }
    }

    async fn sums(&mut self) -> Result<&mut Checksums, LogError> {
        if self.sums.is_none() {
            let Resources { store, context, .. } = self.resources.as_ref();
            let log = Log::open(Arc::clone(store), &context.log_options()).await?;
            self.sums = Some(Checksums::new(log));
        }
        // Opened just now if it was not.
        self.sums
            .as_mut()
            .ok_or_else(|| LogError::Stopped("no log".to_owned()))
    }
}

/// Returns the steps and slices that a window needs.
fn required(window: &Window) -> (Vec<Step>, Vec<Range<u32>>) {
    let mut steps: Vec<Step> = Vec::new();
    let mut slices: Vec<Range<u32>> = Vec::new();
    for Hole { member, steps: own } in &window.holes {
        let kept = |step: &Step| !member.quarantine.contains(*step);
        steps.extend(own.clone().filter(kept));
        slices.push(member.slices.clone());
    }
    steps.sort_unstable();
    steps.dedup();
    (steps, slices)
}

fn fill(window: Window, read: &BTreeMap<Step, StepCrcs>) -> Filled {
    let (mut entries, mut left) = (Vec::new(), Vec::new());
    for Hole { member, steps } in &window.holes {
        let of = ReaderSlices {
            dp_rank: member.dp_rank,
            rank: member.rank,
            slices: member.slices.clone(),
        };
        let crcs = |step: Step| slice_crcs(member.slices.clone(), read.get(&step));
        let (told, lost) = rebuild_entries(
            &of,
            steps.clone(),
            |step| member.quarantine.next_read(step),
            crcs,
        );
        entries.extend(told);
        left.extend(lost.into_iter().map(|(steps, why)| {
            let member = Arc::clone(member);
            (Hole { member, steps }, why)
        }));
    }
    Filled {
        window,
        entries,
        left,
    }
}
