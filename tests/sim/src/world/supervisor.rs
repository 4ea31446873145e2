//! Keeps one producer running, as a service manager would: it replaces a process that died or failed,
//! and starts one beside a frozen one when the plan demands it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::producer::{End, Process};
use super::shared::Shared;
use crate::actor::{Actor, Nature};
use crate::plan::{Freeze, ProducerPlan};

/// The limit of processes of one producer; more mean that the world never settles.
const PROCESSES_MAX: u32 = 2000;
/// The pause between two tries while the stream is sealed or unreadable.
const PAUSE: Duration = Duration::from_secs(1);

enum ProcessReport {
    Ended(Arc<Actor>, End),
    Died(Arc<Actor>),
    TakeOver,
}

pub(super) struct Supervisor {
    shared: Arc<Shared>,
    plan: ProducerPlan,
    started: u32,
    live: u32,
    newest: Option<Arc<Actor>>,
    send: mpsc::UnboundedSender<ProcessReport>,
}

/// Runs a producer to the end of its input.
pub(super) async fn supervise(shared: Arc<Shared>, plan: ProducerPlan) {
    let (send, mut receive) = mpsc::unbounded_channel();
    let mut freezes = planned_freezes(&shared, &plan);
    let mut supervisor = Supervisor {
        shared,
        plan,
        started: 0,
        live: 0,
        newest: None,
        send,
    };
    supervisor.start();
    let twins = &supervisor.shared.plan.twins;
    let twin = twins
        .iter()
        .find(|(number, _)| *number == supervisor.plan.number);
    if let Some((_, after)) = twin {
        supervisor.take_over(*after);
    }
    let mut done = false;
    while supervisor.live > 0 {
        let next_freeze = freezes.last().map(|f| f.at);
        let time = supervisor.shared.store.time;
        tokio::select! {
            biased;
            report = receive.recv() => match report {
                Some(report) => supervisor.handle_report(report, &mut done).await,
                None => break,
            },
            () = time.sleep_until_any(next_freeze) => supervisor.freeze(freezes.pop(), done),
        }
    }
}

/// Returns the producer's freezes, the first one last.
fn planned_freezes(shared: &Shared, plan: &ProducerPlan) -> Vec<Freeze> {
    let mut freezes: Vec<_> = shared
        .plan
        .freezes
        .iter()
        .filter(|f| f.producer == plan.number)
        .cloned()
        .collect();
    freezes.sort_by_key(|f| f.at);
    freezes.reverse();
    freezes
}

impl Supervisor {
    fn start(&mut self) {
        if self.started >= PROCESSES_MAX {
            let text = format!(
                "{PROCESSES_MAX} processes of p{} came to nothing",
                self.plan.number
            );
            self.shared.found("stuck", 0, text);
            return;
        }
        let process = self.started;
        self.started += 1;
        self.live += 1;
        let nature = self.nature(process);
        let name = format!("p{}#{process}", self.plan.number);
        let actor = self.shared.store.actor(&name, nature);
        self.newest = Some(Arc::clone(&actor));
        let process = Process {
            shared: Arc::clone(&self.shared),
            plan: self.plan.clone(),
            name: super::shared::name(self.plan.number),
            store: self.shared.store.handle(&actor),
            actor: Arc::clone(&actor),
        };
        let send = self.send.clone();
        tokio::spawn(async move {
            let report = tokio::select! {
                biased;
                () = actor.died() => ProcessReport::Died(Arc::clone(&actor)),
                end = process.run() => ProcessReport::Ended(Arc::clone(&actor), end),
            };
            // The receiver is gone only after the world has ended.
            let _ = send.send(report);
        });
    }

    fn nature(&self, process: u32) -> Nature {
        let dies = self.shared.plan.crashes.iter();
        let dies = dies
            .filter(|c| (c.producer, c.process) == (self.plan.number, process))
            .map(|c| (c.request, c.moment));
        Nature {
            slow: self.plan.slow,
            skew: self.plan.skew.clone(),
            dies: dies.min_by_key(|d| d.0),
            ..Nature::default()
        }
    }

    async fn handle_report(&mut self, report: ProcessReport, done: &mut bool) {
        let note = |actor: &Actor, text: &str| self.shared.store.note(actor, text);
        match report {
            ProcessReport::TakeOver => {
                if !*done {
                    self.start();
                }
                return;
            }
            ProcessReport::Died(actor) => note(&actor, "died"),
            ProcessReport::Ended(actor, End::Done(how)) => {
                note(&actor, how);
                *done = true;
            }
            // A seal that is not final is lifted later.
            ProcessReport::Ended(actor, End::Sealed) => {
                note(&actor, "sealed");
                *done = self.shared.plan.sealed_at.is_some();
                self.shared.store.time.sleep(PAUSE).await;
            }
            ProcessReport::Ended(actor, End::Stopped) => {
                note(&actor, "stopped");
                self.shared.store.time.sleep(PAUSE).await;
            }
            ProcessReport::Ended(actor, End::Fenced) => note(&actor, "was fenced"),
            ProcessReport::Ended(actor, End::Failed(why)) => {
                note(&actor, &format!("failed: {why}"))
            }
        }
        self.live -= 1;
        if self.live == 0 && !*done {
            let time = self.shared.store.time;
            time.sleep(self.plan.restart).await;
            self.start();
        }
    }

    fn freeze(&mut self, freeze: Option<Freeze>, done: bool) {
        let (Some(freeze), Some(actor), false) = (freeze, &self.newest, done) else {
            return;
        };
        let time = self.shared.store.time;
        actor.freeze(time.now() + freeze.lasts);
        let text = format!("freezes for {:.1} s", freeze.lasts.as_secs_f64());
        self.shared.store.note(actor, text);
        if let Some(after) = freeze.taken_over {
            self.take_over(after);
        }
    }

    /// Starts another process beside the running one after a time.
    fn take_over(&self, after: Duration) {
        let (send, time) = (self.send.clone(), self.shared.store.time);
        tokio::spawn(async move {
            time.sleep(after).await;
            // The receiver is gone only after the world has ended.
            let _ = send.send(ProcessReport::TakeOver);
        });
    }
}
