//! Reads the positions of jobs for a producer with bounds: one LIST of the progress of each newest attempt,
//! and only while a bound is near.

use std::sync::Arc;

use batchweave_core::flow_control::{
    FlowControl, JobPosition, Limits, PositionRead, PositionSchedule, pacing_jobs,
};
use batchweave_core::ids::{JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::state::AttemptState;
use batchweave_core::retention::AttemptObjects;
use batchweave_store::{Hints, Pages, Store, StoreError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tracing::warn;

use crate::clock::Clock;
use crate::flow_control::limiter::FlowControlStatus;

/// Pages listed of one attempt's progress. Steps on further pages count as not received, which is safe.
const PAGES_MAX: usize = 64;

/// Reads the positions of jobs and sends them to a commit task. After it is dropped, the task's ceiling never
/// rises again.
#[derive(Debug)]
pub struct PositionReader {
    sender: watch::Sender<FlowControl>,
    sent: FlowControl,
}

/// An attempt whose position is to be read.
#[derive(Debug)]
struct Target {
    job: JobName,
    opened: Version,
    attempt: AttemptState,
    head: Step,
}

impl Target {
    /// The prefix of its progress.
    fn prefix(&self) -> String {
        keys::progress_of(&self.job, self.opened, self.attempt.number)
    }
}

impl PositionReader {
    /// Returns a reader, and the receiver for `CommitOptions::pace`.
    pub fn new(limits: Limits) -> (Self, watch::Receiver<FlowControl>) {
        let sent = FlowControl::new(limits);
        let (sender, receiver) = watch::channel(sent.clone());
        (Self { sender, sent }, receiver)
    }

    /// Follows jobs until the commit task that sends `status` has ended.
    pub async fn follow(
        mut self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        mut status: watch::Receiver<FlowControlStatus>,
        seed: [u8; 32],
    ) {
        let mut rng = StdRng::from_seed(seed);
        let mut schedule = PositionSchedule::default();
        let mut hints = Hints::new("");
        loop {
            let (targets, held) = {
                let now = status.borrow_and_update();
                (self.targets(&now), now.held.is_some())
            };
            let Some(first) = targets.first() else {
                schedule.note_far();
                if status.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let watched = first.prefix();
            if hints.prefix() != watched {
                hints = Hints::new(watched);
            }
            let now = clock.now();
            let due = schedule.note_near(now, held);
            tokio::select! {
                biased;
                () = clock.sleep(due.saturating_sub(now)) => {}
                () = hints.changed(store.as_ref()), if held => {
                    schedule.note_hint();
                    continue;
                }
                changed = status.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            let began = clock.now();
            let (lead, progress) = self.read(store.as_ref(), targets).await;
            let read = PositionRead {
                began,
                ended: clock.now(),
                lead,
                progress,
                producers: writers(&status.borrow()),
            };
            schedule.note_read(read, rng.random());
        }
    }

    /// Returns the attempts whose positions matter now: none while the bounds are far.
    fn targets(&self, status: &FlowControlStatus) -> Vec<Target> {
        let m = &status.manifest;
        if !self.sent.limits.follow_jobs() {
            return Vec::new();
        }
        let by_bytes = self.sent.limits.bytes.is_some_and(|most| {
            let bytes = status.lead.as_ref().map_or(Some(0), |lead| lead.bytes);
            bytes.is_none_or(|bytes| bytes > most - most / 4)
        });
        let held = status.held.as_ref().and_then(|held| held.by.as_ref());
        let all =
            pacing_jobs(m).filter_map(|(name, job)| Some((name, job.opened, job.attempts.last()?)));
        let near = |name: &JobName, opened, attempt: &AttemptState| {
            let steps = self.sent.limits.steps.is_some_and(|most| {
                let position = self.known(name, opened, attempt);
                m.next_step().saturating_sub(position) >= most - most / 4
            });
            steps || by_bytes || held.is_some_and(|slowest| slowest.job == *name)
        };
        let near = all.filter(|(name, opened, attempt)| near(name, *opened, attempt));
        let targets = near.map(|(name, opened, attempt)| Target {
            job: name.clone(),
            opened,
            attempt: attempt.clone(),
            head: m.next_step(),
        });
        targets.collect()
    }

    fn known(&self, job: &JobName, opened: Version, attempt: &AttemptState) -> Step {
        let seen = self
            .sent
            .positions
            .get(job)
            .filter(|p| p.opened == opened && p.attempt == attempt.number);
        seen.map_or(attempt.start, |p| p.step.max(attempt.start))
    }

    /// Reads and sends positions; returns the steps that the slowest job had left by its last known position, and the
    /// most steps by which a job has advanced since.
    async fn read(&mut self, store: &dyn Store, targets: Vec<Target>) -> (u64, u64) {
        let (mut lead, mut progress) = (0, 0);
        for target in targets {
            let prefix = target.prefix();
            let Target {
                job,
                opened,
                attempt,
                head,
            } = target;
            let known = self.known(&job, opened, &attempt);
            lead = lead.max(head.saturating_sub(known));
            let step = match position(store, &prefix, &attempt, head).await {
                Ok(step) => step,
                Err(error) => {
                    warn!(%job, %error, "cannot read the job's progress; retrying");
                    continue;
                }
            };
            // A LIST may miss objects while they are replaced, so an older position stays valid.
            let position = JobPosition {
                opened,
                attempt: attempt.number,
                step: step.max(known),
            };
            progress = progress.max(step.saturating_sub(known));
            self.sent.positions.insert(job, position);
        }
        let new = &self.sent;
        self.sender.send_if_modified(|old| {
            let changed = old != new;
            old.clone_from(new);
            changed
        });
        (lead, progress)
    }
}

/// Returns the number of producers that may commit and read positions.
fn writers(status: &FlowControlStatus) -> usize {
    let all = status.manifest.producers();
    all.filter(|(_, producer)| !producer.finished).count()
}

/// Returns the first step that some coordinate of an attempt has not received, as far as the store shows.
async fn position(
    store: &dyn Store,
    prefix: &str,
    attempt: &AttemptState,
    head: Step,
) -> Result<Step, StoreError> {
    let mut objects = AttemptObjects::default();
    let mut pages = Pages::new(store, prefix);
    for _ in 0..PAGES_MAX {
        let Some(page) = pages.next().await? else {
            break;
        };
        for object in &page {
            objects.note(&object.key, attempt.dp_size, head);
        }
    }
    Ok(objects.position(attempt))
}
