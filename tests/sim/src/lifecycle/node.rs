//! A job's machine: the consumer daemon's own code over the simulated store. Its processes are killed,
//! frozen and stopped, and others replace them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_consumer::config::{Checkpoints, ConsumerConfig, HugePages};
use batchweave_consumer::simulation::{Daemon, Setup, Socket};
use batchweave_daemon::config::{ByteSize, Period};
use batchweave_log::Log;
use tokio::sync::Notify;

use crate::actor::{Actor, Nature};
use crate::draw::Draw;
use crate::plan::lifecycle::{DaemonPlan, JobPlan};
use crate::world::forward::options;
use crate::world::shared::Shared;

/// The arena holds some dozens of steps, so that ranks that hold frames do not stop the others.
const ARENA_BYTES: u64 = 256 << 10;
/// The pause between two tries to open the log, as a service manager restarts a process.
const AGAIN: Duration = Duration::from_millis(500);
/// The deadline of an orderly stop, by the runtime's clock, of which a second is 10 ms here.
const STOP_WITHIN: Duration = Duration::from_secs(1000);

/// A process with a daemon.
struct Process {
    actor: Arc<Actor>,
    /// None once it has ended.
    daemon: Option<Daemon>,
}

/// The state of the processes of a machine.
#[derive(Default)]
struct State {
    running: Option<Process>,
    /// Frozen processes that others have replaced.
    zombies: Vec<Arc<Process>>,
    over: bool,
}

/// A machine with its daemon.
pub(super) struct Node {
    shared: Arc<Shared>,
    plan: DaemonPlan,
    /// For each process in turn, the requests before which it freezes, and for how long.
    stalls: Vec<Vec<(u64, Duration)>>,
    config: ConsumerConfig,
    name: String,
    state: Mutex<State>,
    /// Notifies of a command for the running process.
    changed: Notify,
}

/// The end of a daemon process, which decides whether another one starts.
enum End {
    /// It died, or is to be killed.
    Died,
    /// It is to stop orderly.
    Stops,
    /// It is frozen: another one starts.
    Frozen,
}

impl Node {
    pub(super) fn new(shared: &Arc<Shared>, job: &JobPlan, number: usize) -> Arc<Self> {
        let plan = job.daemons.get(number).cloned().unwrap_or_default();
        let stalls = job
            .attempts
            .iter()
            .filter(|_| number == 0)
            .map(|attempt| attempt.stalls.clone())
            .collect();
        Arc::new(Self {
            shared: Arc::clone(shared),
            config: config(job, &plan),
            plan,
            stalls,
            name: format!("{}-node{number}", super::name(job.number)),
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a rank. Returns `None` while no daemon runs.
    pub(super) fn connect(&self) -> Option<Socket> {
        let state = self.state();
        let daemon = state.running.as_ref()?.daemon.as_ref()?;
        Some(daemon.connect())
    }

    /// Freezes the running process, which another one then replaces.
    pub(super) fn freeze(&self, until: Duration) {
        if let Some(process) = &self.state().running {
            process.actor.freeze(until);
        }
        self.changed.notify_one();
    }

    /// Ends the machine and its daemon.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.changed.notify_one();
    }

    /// Runs one process after another until the machine ends.
    pub(super) async fn run(self: Arc<Self>) {
        let mut sorted = self.plan.ends.clone();
        sorted.sort_unstable();
        let mut ends = sorted.into_iter().peekable();
        for number in 0.. {
            if self.state().over {
                break;
            }
            let actor = self.start_process(number);
            let daemon = tokio::select! {
                biased;
                () = actor.died() => None,
                daemon = self.start(&actor) => daemon,
            };
            if let Some(daemon) = daemon {
                let process = Process {
                    actor: Arc::clone(&actor),
                    daemon: Some(daemon),
                };
                self.state().running = Some(process);
                self.shared.store.note(&actor, "serves");
                let planned = ends.peek().copied();
                let end = self.watch(&actor, planned).await;
                if planned.is_some_and(|(at, _)| at <= self.shared.store.time.now()) {
                    ends.next();
                }
                self.finish(end).await;
            }
            self.shared.store.time.sleep(self.plan.restart).await;
        }
        let zombies = { std::mem::take(&mut self.state().zombies) };
        for zombie in &zombies {
            zombie.actor.kill();
        }
    }

    /// Creates the actor of a daemon process.
    fn start_process(&self, number: usize) -> Arc<Actor> {
        let nature = Nature {
            dies: self.plan.deaths.get(number).copied(),
            refused: self.plan.refused,
            stalls: self.stalls.get(number).cloned().unwrap_or_default(),
            ..Nature::default()
        };
        let name = format!("{}#{number}", self.name);
        self.shared.store.actor(&name, nature)
    }

    /// Waits for an event that ends the running process.
    async fn watch(&self, actor: &Arc<Actor>, planned: Option<(Duration, bool)>) -> End {
        let time = self.shared.store.time;
        let planned = async {
            match planned {
                Some((at, in_order)) => {
                    time.sleep_until(at).await;
                    in_order
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = actor.died() => End::Died,
            () = self.changed.notified() => {
                if self.state().over { End::Stops } else { End::Frozen }
            }
            in_order = planned => if in_order { End::Stops } else { End::Died },
        }
    }

    async fn finish(&self, end: End) {
        let Some(mut process) = ({ self.state().running.take() }) else {
            return;
        };
        match end {
            End::Frozen => {
                let zombie = Arc::new(process);
                self.state().zombies.push(Arc::clone(&zombie));
                // It may still die.
                tokio::spawn(async move {
                    zombie.actor.died().await;
                    kill(&zombie);
                });
                return;
            }
            End::Died => kill(&process),
            End::Stops => {
                if let Some(daemon) = process.daemon.take() {
                    tokio::select! {
                        biased;
                        () = process.actor.died() => {}
                        () = daemon.stop(STOP_WITHIN) => {}
                    }
                }
                // The dropped process does nothing more.
                process.actor.kill();
            }
        }
        self.shared.store.note(&process.actor, "ended");
    }

    /// Opens the log and starts the daemon. Returns none if a person has to act first.
    async fn start(&self, actor: &Arc<Actor>) -> Option<Daemon> {
        let store = self.shared.store.handle(actor);
        let log = loop {
            let options = options(&self.shared, actor, false);
            match Log::open(Arc::clone(&store), &options).await {
                Ok(log) => break log,
                Err(e) if self.shared.may_pass(&e) => actor.sleep(AGAIN).await,
                Err(e) => {
                    let text = format!("{} stopped: {e}", actor.name);
                    self.shared.found("daemon-error", actor.id, text);
                    return None;
                }
            }
        };
        let mut instance = [0; 16];
        instance.copy_from_slice(&actor.draw(Draw::seed)[..16]);
        let setup = Setup {
            config: self.config.clone(),
            store,
            log,
            clock: actor.clock(),
            seed: actor.draw(Draw::seed),
            calendar: || "2026-01-01T00:00:00Z".to_owned(),
            instance,
        };
        match Daemon::start(setup) {
            Ok(daemon) => Some(daemon),
            Err(e) => {
                let text = format!("{} did not start: {e}", actor.name);
                self.shared.found("daemon-error", actor.id, text);
                None
            }
        }
    }
}

fn kill(process: &Process) {
    process.actor.kill();
    if let Some(daemon) = &process.daemon {
        daemon.kill();
    }
}

fn config(job: &JobPlan, plan: &DaemonPlan) -> ConsumerConfig {
    let mut config = ConsumerConfig::default();
    config.job.progress_steps = job.progress_every;
    config.job.checkpoints = if job.rank0 {
        Checkpoints::Rank0
    } else {
        Checkpoints::All
    };
    config.job.open_within = Period(Duration::from_mins(1));
    config.arena.bytes = ByteSize(ARENA_BYTES);
    config.arena.segment_bytes = ByteSize(ARENA_BYTES);
    config.arena.huge_pages = HugePages::Off;
    config.prefetch.steps = plan.ahead.max(1);
    config.prefetch.bytes = ByteSize(ARENA_BYTES / 4);
    config.prefetch.read_bytes = ByteSize(8 << 10);
    config
}
