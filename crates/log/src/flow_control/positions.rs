//! Reads how far jobs are, for a producer with bounds: one LIST of the newest attempt's progress, and
//! only while the bound is near.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::flow_control::{FlowControl, JobPosition, Limits, pacing_jobs};
use batchweave_core::ids::{JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::state::AttemptState;
use batchweave_core::retention::AttemptObjects;
use batchweave_store::{Store, StoreError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tracing::warn;

use crate::FlowControlStatus;
use crate::clock::Clock;

/// Positions are read again after an eighth of the time since the last news, within these: a job that
/// becomes ten times faster is noticed before it has read a quarter of what is ahead of it.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Pages of one attempt's progress. What is beyond counts as not received, which is safe.
const PAGES_MAX: usize = 64;

/// Tells a commit task how far it may go. When it is dropped, nothing is allowed any more that was not
/// allowed before.
#[derive(Debug)]
pub struct PositionReader {
    tell: watch::Sender<FlowControl>,
    pace: FlowControl,
}

/// An attempt whose position is asked for.
#[derive(Debug)]
struct Asked {
    job: JobName,
    opened: Version,
    attempt: AttemptState,
    head: Step,
}

impl PositionReader {
    /// The pacer, and what goes into `CommitOptions::pace`.
    pub fn new(limits: Limits) -> (Self, watch::Receiver<FlowControl>) {
        let pace = FlowControl::new(limits);
        let (tell, told) = watch::channel(pace.clone());
        (Self { tell, pace }, told)
    }

    /// Follows jobs until the commit task behind `standing` has ended.
    pub async fn follow(
        mut self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        mut standing: watch::Receiver<FlowControlStatus>,
        seed: [u8; 32],
    ) {
        let mut rng = StdRng::from_seed(seed);
        let (mut news, mut due) = (clock.now(), clock.now());
        let mut was_near = false;
        loop {
            let asked = self.asked(&standing.borrow_and_update());
            let now = clock.now();
            if asked.is_empty() {
                was_near = false;
                if standing.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if !std::mem::replace(&mut was_near, true) {
                news = now;
            }
            tokio::select! {
                biased;
                () = clock.sleep(due.saturating_sub(now)) => {}
                changed = standing.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            if self.read(store.as_ref(), asked).await {
                news = clock.now();
            }
            let now = clock.now();
            let pause = (now.saturating_sub(news) / 8).clamp(PAUSE_MIN, PAUSE_MAX);
            due = now + pause * rng.random_range(768..1280) / 1024;
        }
    }

    /// The attempts whose position matters now: none while the bound is far.
    fn asked(&self, standing: &FlowControlStatus) -> Vec<Asked> {
        let m = &standing.manifest;
        if !self.pace.limits.follow_jobs() {
            return Vec::new();
        }
        let by_bytes = self.pace.limits.bytes.is_some_and(|most| {
            let bytes = standing.lead.as_ref().map_or(Some(0), |lead| lead.bytes);
            bytes.is_none_or(|bytes| bytes > most - most / 4)
        });
        let held = standing.held.as_ref().and_then(|held| held.by.as_ref());
        let all =
            pacing_jobs(m).filter_map(|(name, job)| Some((name, job.opened, job.attempts.last()?)));
        let near = |name: &JobName, opened, attempt: &AttemptState| {
            let steps = self.pace.limits.steps.is_some_and(|most| {
                let position = self.known(name, opened, attempt);
                m.next_step().saturating_sub(position) >= most - most / 4
            });
            steps || by_bytes || held.is_some_and(|slowest| slowest.job == *name)
        };
        let asked = all.filter(|(name, opened, attempt)| near(name, *opened, attempt));
        let asked = asked.map(|(name, opened, attempt)| Asked {
            job: name.clone(),
            opened,
            attempt: attempt.clone(),
            head: m.next_step(),
        });
        asked.collect()
    }

    fn known(&self, job: &JobName, opened: Version, attempt: &AttemptState) -> Step {
        let seen = self.pace.positions.get(job);
        let seen = seen.filter(|p| p.opened == opened && p.attempt == attempt.number);
        seen.map_or(attempt.start, |p| p.step.max(attempt.start))
    }

    /// True when somebody has got further.
    async fn read(&mut self, store: &dyn Store, asked: Vec<Asked>) -> bool {
        let mut news = false;
        for Asked {
            job,
            opened,
            attempt,
            head,
        } in asked
        {
            let step = match position(store, &job, opened, &attempt, head).await {
                Ok(step) => step,
                Err(error) => {
                    warn!(%job, %error, "how far the job is could not be read; trying again");
                    continue;
                }
            };
            let known = self.known(&job, opened, &attempt);
            // A LIST may miss objects while they are replaced, so an older one counts on.
            let position = JobPosition {
                opened,
                attempt: attempt.number,
                step: step.max(known),
            };
            news |= step > known;
            self.pace.positions.insert(job, position);
        }
        let pace = &self.pace;
        self.tell.send_if_modified(|told| {
            let changed = told != pace;
            told.clone_from(pace);
            changed
        });
        news
    }
}

/// What all coordinates of an attempt have received, as far as the store shows.
async fn position(
    store: &dyn Store,
    job: &JobName,
    opened: Version,
    attempt: &AttemptState,
    head: Step,
) -> Result<Step, StoreError> {
    let prefix = keys::progress_of(job, opened, attempt.number);
    let mut signs = AttemptObjects::default();
    let mut next = None;
    for _ in 0..PAGES_MAX {
        let page = store.list(&prefix, next).await?;
        for object in &page.objects {
            signs.note(&object.key, attempt.dp_size, head);
        }
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    Ok(signs.position(attempt))
}
