//! Filling holes of ledgers from the store's indexes, in a task of its own: one window of steps at a time. While
//! the store fails it retries without limit; only the marks of ranks with holes wait.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_core::proof::{LedgerEntry, ReaderSlices, rebuild_entries};
use batchweave_log::{Checksums, Log, LogError, StepCrcs, slice_crcs};
use batchweave_store::{Backoff, Store};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::BookKey;
use super::book::Hole;
use crate::context::Context;

/// Pauses between retries, after the log has given up its own.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));

/// A log that was not used for longer is reopened: a snapshot saves reading most of the records since.
const FRESH: Duration = Duration::from_mins(5);

/// Holes of ranks of one attempt, in one window of steps.
#[derive(Debug)]
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

/// The keeper's handle of the task: one window at a time.
pub(super) struct Recall {
    windows: mpsc::Sender<Window>,
    filled: mpsc::Receiver<Filled>,
    pub(super) busy: bool,
}

impl Recall {
    /// Starts the task, which reads by `log`; it ends with the keeper, or at `stop`.
    pub(super) fn start(log: Log, context: Arc<Context>, stop: CancellationToken) -> Self {
        let (windows, mut asked) = mpsc::channel::<Window>(1);
        let (answers, filled) = mpsc::channel(1);
        let work = async move {
            let store = Arc::clone(log.store());
            let (mut sums, mut used) = (Some(Checksums::new(log)), context.now());
            while let Some(window) = asked.recv().await {
                if context.since(used) > FRESH {
                    sums = None;
                }
                let filled = recall(&store, &context, &mut sums, window).await;
                used = context.now();
                if answers.send(filled).await.is_err() {
                    return;
                }
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
        Self {
            windows,
            filled,
            busy: false,
        }
    }

    /// Starts recalling a window.
    pub(super) fn start_window(&mut self, window: Window) {
        // The channel has room, since only one window is in progress.
        self.busy = self.windows.try_send(window).is_ok();
    }

    /// Waits for the outcome of the window; for ever if none is in progress or the task has ended.
    pub(super) async fn filled(&mut self) -> Filled {
        if self.busy
            && let Some(filled) = self.filled.recv().await
        {
            self.busy = false;
            return filled;
        }
        std::future::pending().await
    }
}

async fn recall(
    store: &Arc<dyn Store>,
    context: &Context,
    sums: &mut Option<Checksums>,
    window: Window,
) -> Filled {
    let mut steps: Vec<Step> = Vec::new();
    let mut slices: Vec<Range<u32>> = Vec::new();
    for Hole { member, steps: own } in &window.holes {
        steps.extend(
            own.clone()
                .filter(|step| !member.quarantine.contains(*step)),
        );
        slices.push(member.slices.clone());
    }
    steps.sort_unstable();
    steps.dedup();
    let mut backoff = PAUSES;
    loop {
        match read(store, context, sums, (&steps, &slices)).await {
            Ok(read) => return fill(window, &read),
            Err(why) => {
                tracing::warn!(%why, "cannot read what an earlier daemon delivered; retrying");
            }
        }
        // The log is reopened, since it may be repaired meanwhile.
        *sums = None;
        context.sleep(backoff.pause()).await;
    }
}

async fn read(
    store: &Arc<dyn Store>,
    context: &Context,
    sums: &mut Option<Checksums>,
    (steps, slices): (&[Step], &[Range<u32>]),
) -> Result<BTreeMap<Step, StepCrcs>, LogError> {
    let open = match sums {
        Some(open) => open,
        none => {
            let log = Log::open(Arc::clone(store), &context.log_options()).await?;
            none.insert(Checksums::new(log))
        }
    };
    open.for_steps(steps, slices).await
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
