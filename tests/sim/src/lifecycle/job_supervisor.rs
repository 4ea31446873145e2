//! A job's supervisor: it opens the job, runs its machines, starts the ranks of each attempt, and
//! starts another attempt from a known restart point when one has ended. Frozen ranks may continue
//! beside it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{AttemptId, RequestId, Step, Version};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{JobClosed, JobOpened};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::job::Job;
use super::node::Node;
use super::rank::{AttemptRequest, End, Position, Rank};
use super::reports::Reporter;
use super::restart_points::RestartPoints;
use crate::actor::{Actor, Nature};
use crate::plan::lifecycle::{AttemptEnd, AttemptPlan, JobPlan};
use crate::world::person::Person;
use crate::world::shared::Shared;

/// The limit of incarnations: a lease or a person may close a running job.
const INCARNATIONS_MAX: u32 = 4;
/// The limit of attempts per incarnation.
const ATTEMPTS_MAX: u32 = 40;

/// The time that stands for one request in the plan of a rank's death.
const REQUEST: Duration = Duration::from_millis(40);

/// The end of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// All steps have been read.
    Done,
    /// Another attempt takes its place.
    Another,
    /// The job is closed.
    Closed,
}

struct Supervisor {
    job: Arc<Job>,
    person: Person,
    opened: Version,
    attempts: u32,
    /// The watermark that refused the last start.
    refused: Option<Step>,
    machines: Vec<JoinHandle<()>>,
    ranks: Vec<JoinHandle<()>>,
    /// The ranks of this incarnation.
    alive: Vec<Arc<Actor>>,
}

/// Runs a job until it has read all its steps.
pub(super) async fn supervise(shared: Arc<Shared>, plan: JobPlan) {
    let mut supervisor = Supervisor::new(shared, plan);
    supervisor.person.sleep(supervisor.job.plan.opens).await;
    let machines = supervisor.job.nodes.iter();
    supervisor.machines = machines
        .map(|node| tokio::spawn(Arc::clone(node).run()))
        .collect();
    let mut plans = supervisor.job.plan.attempts.clone().into_iter();
    for incarnation in 0..INCARNATIONS_MAX {
        if supervisor.open().await.is_none() {
            break;
        }
        if supervisor.incarnation(&mut plans).await != Outcome::Closed {
            break;
        }
        // A rank that waits for its attempt would open it in the next incarnation.
        kill(&std::mem::take(&mut supervisor.alive));
        supervisor.person.sleep(Duration::from_millis(200)).await;
        supervisor.refused = (incarnation + 1 < INCARNATIONS_MAX).then_some(0);
    }
    supervisor.end().await;
}

impl Supervisor {
    fn new(shared: Arc<Shared>, plan: JobPlan) -> Self {
        let name = super::name(plan.number);
        let person = Person::new(&shared, name.as_str());
        let machines = plan.daemons.len().max(1);
        let nodes: Vec<_> = (0..machines)
            .map(|number| Node::new(&shared, &plan, number))
            .collect();
        let job = Job {
            shared,
            plan,
            name,
            nodes,
            restart_points: std::sync::Mutex::default(),
        };
        Self {
            job: Arc::new(job),
            person,
            opened: 0,
            attempts: 0,
            refused: None,
            machines: Vec::new(),
            ranks: Vec::new(),
            alive: Vec::new(),
        }
    }

    /// Opens the job at its last restart point, or at the watermark if that is higher.
    async fn open(&mut self) -> Option<()> {
        let (plan, name) = (self.job.plan.clone(), self.job.name.clone());
        let from = self
            .job
            .restart_points(|p| p.points().last().copied())
            .unwrap_or(0);
        let request = RequestId(self.person.bytes());
        let make = |m: &batchweave_core::manifest::Manifest| {
            Entry::JobOpened(JobOpened {
                request,
                job: name.clone(),
                start: from.max(m.watermark()),
                keep: plan.keep,
                holds: plan.holds,
                paces: plan.paces,
                lease_seconds: plan.lease_seconds,
            })
        };
        let m = self.person.commit(make).await?;
        let job = m.jobs().get(&self.job.name)?;
        (self.opened, self.attempts) = (job.opened, 0);
        let start = job.start;
        self.job
            .restart_points(|points| *points = RestartPoints::at(start));
        Some(())
    }

    async fn incarnation(&mut self, plans: &mut std::vec::IntoIter<AttemptPlan>) -> Outcome {
        let mut back = 0;
        while self.attempts < ATTEMPTS_MAX {
            let plan = plans.next();
            let outcome = self.attempt(plan.as_ref(), back).await;
            if outcome != Outcome::Another {
                return outcome;
            }
            back = plan.as_ref().map_or(0, |p| p.back);
            let pause = plan.map_or(Duration::from_millis(100), |p| p.restart);
            self.person.sleep(pause).await;
        }
        let text = format!(
            "{ATTEMPTS_MAX} attempts of {} came to nothing",
            self.job.name
        );
        // A job without protection from reclamation may lose its data again and again.
        if self.job.plan.holds {
            self.job.shared.found("stuck", 0, text);
        }
        Outcome::Done
    }

    /// Chooses a restart point, or a readable step after a refusal.
    fn choose(&mut self, back: usize) -> AttemptRequest {
        let points: BTreeSet<Step> = self.job.restart_points(|points| points.points());
        let start = if let Some(watermark) = self.refused.take() {
            points
                .range(watermark..)
                .next()
                .copied()
                .unwrap_or(watermark)
        } else {
            let index = points.len().saturating_sub(back + 1);
            points.into_iter().nth(index).unwrap_or(0)
        };
        let parent = self.job.restart_points(|points| points.attempt_of(start));
        AttemptRequest {
            opened: self.opened,
            id: AttemptId(self.person.bytes()),
            start,
            parent,
            dp_size: 1,
        }
    }

    async fn attempt(&mut self, plan: Option<&AttemptPlan>, back: usize) -> Outcome {
        let mut wanted = self.choose(back);
        wanted.dp_size = plan.map_or(2, |p| p.dp_size);
        let (send, mut reports) = mpsc::unbounded_channel();
        let ranks: Vec<_> = (0..wanted.dp_size)
            .map(|coordinate| self.start(plan, wanted.clone(), coordinate, send.clone()))
            .collect();
        self.attempts += 1;
        let time = self.job.shared.store.time;
        let until = plan.map(|p| time.now() + p.lives);
        let mut left = ranks.len();
        while left > 0 {
            let report = tokio::select! {
                biased;
                report = reports.recv() => report.flatten(),
                () = time.sleep_until_any(until) => {
                    self.apply_fault(plan.map(|p| p.fate), &ranks);
                    return Outcome::Another;
                }
            };
            match report {
                Some(End::Done) => left -= 1,
                Some(End::Closed) => return Outcome::Closed,
                Some(End::Refused(watermark)) => {
                    self.refused = Some(watermark);
                    self.stop(&ranks);
                    return Outcome::Another;
                }
                Some(End::Superseded | End::Failed(_)) | None => {
                    self.stop(&ranks);
                    return Outcome::Another;
                }
            }
        }
        Outcome::Done
    }

    fn start(
        &mut self,
        plan: Option<&AttemptPlan>,
        wanted: AttemptRequest,
        coordinate: u32,
        send: mpsc::UnboundedSender<Option<End>>,
    ) -> Arc<Actor> {
        let job = Arc::clone(&self.job);
        let last = coordinate + 1 == wanted.dp_size;
        // Ranks make no requests of their own, so that they die at a time.
        let dies = match plan.map(|p| p.fate) {
            Some(AttemptEnd::Dies(request, _)) if last => Some(request),
            _ => None,
        };
        let name = format!(
            "{}@{}#{}.{coordinate}",
            job.name, wanted.opened, self.attempts
        );
        let actor = job.shared.store.actor(&name, Nature::default());
        self.alive.push(Arc::clone(&actor));
        // Neighbours run on different machines, so that one may have coordinates that are not
        // neighbours.
        let at = coordinate as usize % job.nodes.len();
        let time = job.shared.store.time;
        let mut position = Position::at(wanted.start);
        if !job.plan.drivers.is_empty() {
            position.reports.add_losses(Reporter {
                attempt: wanted.id,
                coordinate,
            });
        }
        let rank = Rank {
            shared: Arc::clone(&job.shared),
            store: job.shared.store.handle(&actor),
            actor: Arc::clone(&actor),
            at,
            position,
            job,
            wanted,
            coordinate,
        };
        let killed = async move {
            match dies {
                Some(request) => time.sleep(REQUEST.mul_f64(request as f64)).await,
                None => std::future::pending().await,
            }
        };
        self.ranks.push(tokio::spawn(async move {
            let (actor, store) = (Arc::clone(&rank.actor), Arc::clone(&rank.shared.store));
            let end = tokio::select! {
                biased;
                () = actor.died() => None,
                () = killed => None,
                end = rank.run() => Some(end),
            };
            actor.kill();
            let text = end
                .as_ref()
                .map_or("died".to_owned(), |end| format!("ends: {end:?}"));
            store.note(&actor, text);
            // The supervisor no longer listens once it has started another attempt.
            let _ = send.send(end);
        }));
        actor
    }

    fn apply_fault(&self, fate: Option<AttemptEnd>, ranks: &[Arc<Actor>]) {
        match fate {
            Some(AttemptEnd::Freeze(lasts)) => {
                let until = self.job.shared.store.time.now() + lasts;
                for rank in ranks {
                    rank.freeze(until);
                    let text = format!("freezes for {:.1} s", lasts.as_secs_f64());
                    self.job.shared.store.note(rank, text);
                }
                // A machine freezes with all its processes, or only its trainer does.
                for node in &self.job.nodes {
                    if self.person.chance(500) {
                        node.freeze(until);
                    }
                }
            }
            Some(AttemptEnd::Doubled) | None => {}
            Some(AttemptEnd::Crash | AttemptEnd::Dies(..)) => kill(ranks),
        }
    }

    /// Kills the other ranks, as a launcher mostly does.
    fn stop(&self, ranks: &[Arc<Actor>]) {
        if self.person.chance(700) {
            kill(ranks);
        }
    }

    async fn end(self) {
        let (plan, name, opened) = (&self.job.plan, self.job.name.clone(), self.opened);
        if plan.closes && plan.abandons.is_none() {
            let request = RequestId(self.person.bytes());
            let entry = Entry::JobClosed(JobClosed {
                request,
                job: name,
                opened,
                reason: "the run is over".to_owned(),
            });
            self.person.commit(|_| entry.clone()).await;
        }
        for rank in self.ranks {
            if let Err(e) = rank.await {
                self.job.shared.found("panic", 0, e.to_string());
            }
        }
        self.job.nodes.iter().for_each(|node| node.end());
        for machine in self.machines {
            if let Err(e) = machine.await {
                self.job.shared.found("panic", 0, e.to_string());
            }
        }
    }
}

fn kill(ranks: &[Arc<Actor>]) {
    for rank in ranks {
        rank.kill();
    }
}
