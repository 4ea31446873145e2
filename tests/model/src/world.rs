//! The system that the checker explores: configuration, tables, and the missing guard.

use crate::action::{self, Action, Outcome};
use crate::checker::{Rest, System};
use crate::config::Config;
use crate::guard::Guard;
use crate::numbers::RecordNo;
use crate::property::Broken;
use crate::reclaimer;
use crate::spec::Spec;
use crate::state::{Phase, Process, Producer, Reclaimer, Role, Stage, State, Trainer};
use crate::tables::{Draft, Tables};
use crate::turn::Turn;

/// A configuration with its tables.
#[derive(Debug)]
pub struct World {
    tables: Tables,
    without: Option<Guard>,
}

impl World {
    /// Creates a world whose writers keep all guards but `without`.
    pub fn new(config: Config, without: Option<Guard>) -> Self {
        Self {
            tables: Tables::new(config, without),
            without,
        }
    }

    /// Returns the number of different logs and records.
    pub fn sizes(&self) -> (usize, usize) {
        self.tables.sizes()
    }

    /// Returns the log at the beginning: one record with the open jobs and producers.
    fn set_up(&mut self) -> u32 {
        let config = *self.tables.config();
        let mut specs = Vec::new();
        for (job, keep) in (0..).zip(config.keep).filter(|(_, keep)| *keep > 0) {
            specs.push(Spec::JobOpened {
                job,
                keep,
                start: 0,
                change: 0,
            });
        }
        let opened = if config.opened { config.producers } else { 0 };
        specs.extend((0..opened).map(|producer| Spec::Opened {
            producer,
            instance: 0,
            epoch: 1,
            began: 0,
        }));
        if config.filled {
            specs.push(filling_batch(&config));
        }
        if specs.is_empty() {
            return 0;
        }
        let entries = specs.into_iter().map(|spec| self.tables.entry(spec));
        let draft = Draft {
            entries: entries.collect(),
            after: 0,
            writer: u8::MAX,
            salt: 0,
        };
        let record = self.tables.build(draft);
        self.tables.fold(0, record)
    }

    fn processes(&self, head: u32) -> impl Iterator<Item = Process> {
        let config = *self.tables.config();
        let length = self.tables.facts(head).length;
        let producers = first_producers(config);
        let [first, second] = config.attempts;
        let trainers = (0..first + second).map(move |index| {
            Role::Trainer(Trainer {
                index,
                job: u8::from(index >= first),
                ..Trainer::default()
            })
        });
        let reclaimers = (0..config.reclaimers).map(|_| Role::Reclaimer(Reclaimer::default()));
        let sealer = (config.seals > 0).then_some(Role::Sealer { done: 0 });
        let operator = (config.reopens > 0).then_some(Role::Operator { done: 0 });
        let person = (config.asks > 0).then_some(Role::Person { left: config.asks });
        producers
            .chain(trainers)
            .chain(reclaimers)
            .chain(sealer)
            .chain(operator)
            .chain(person)
            .map(move |role| Process {
                view: head,
                read: length,
                role,
                ..Process::default()
            })
    }

    fn record(&self, record: RecordNo) -> String {
        let info = self.tables.record(record);
        let entries: Vec<_> = info
            .entries
            .iter()
            .map(|&entry| self.tables.spec(entry).to_string())
            .collect();
        format!("v{} [{}]", info.version, entries.join("; "))
    }
}

/// Returns a batch of all the TGBs of a world that begins filled.
fn filling_batch(config: &Config) -> Spec {
    Spec::Batch {
        producer: 0,
        instance: 0,
        epoch: 1,
        start: 0,
        first: 0,
        last: config.tgbs - 1,
    }
}

/// Returns the producers as they are at the beginning.
fn first_producers(config: Config) -> impl Iterator<Item = Role> {
    let producers = if config.filled { 0 } else { config.producers };
    (0..producers).flat_map(move |name| {
        (0..config.instances).map(move |instance| {
            let live = instance == 0 && config.opened;
            Role::Producer(Producer {
                name,
                instance,
                stage: [Stage::Absent, Stage::Live][usize::from(live)],
                epoch: u8::from(live),
                announces: config.announces * u8::from(live),
                ..Producer::default()
            })
        })
    })
}

impl System for World {
    type State = State;
    type Action = Action;

    fn first(&mut self) -> State {
        let config = *self.tables.config();
        let head = self.set_up();
        let mut state = State {
            head,
            faults: config.faults,
            crashes: config.crashes,
            ..State::default()
        };
        for tgb in self.tables.facts(head).tgbs.clone() {
            state.objects |= 1 << self.tables.object(tgb.object);
        }
        for process in self.processes(head) {
            state.processes.push(process);
        }
        state
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        action::all(&self.tables, state, into);
    }

    fn next(&mut self, state: &State, action: Action) -> Option<(State, Option<Broken>)> {
        let mut turn = Turn {
            config: *self.tables.config(),
            tables: &mut self.tables,
            without: self.without,
            state: *state,
            broken: None,
        };
        turn.act(action)?;
        turn.forget_views();
        Some((turn.state, turn.broken))
    }

    fn at_rest(&self, state: &State) -> Rest {
        let config = self.tables.config();
        let head = self.tables.facts(state.head);
        let mut producers = state
            .processes
            .as_slice()
            .iter()
            .filter_map(Process::producer);
        let names = &head.names[..usize::from(config.producers)];
        if producers.any(|p| matches!(p.stage, Stage::Opening | Stage::Live)) {
            Rest::Wanting
        } else if names.iter().all(|name| name.next == config.tgbs) {
            Rest::Complete
        } else {
            Rest::Stopped
        }
    }

    fn describe(&self, state: &State, action: Action) -> String {
        let pid = |pid: u8| name(state.processes.as_slice()[usize::from(pid)].role, pid);
        let wanted = |pid: u8| {
            let process = state.processes.as_slice()[usize::from(pid)];
            self.record(process.record)
        };
        match action {
            Action::Start(p) => format!("{} starts and opens the log", pid(p)),
            Action::Refresh(p) => format!("{} folds up to the head", pid(p)),
            Action::Open { pid: p, announce } => {
                let way = ["builds a record to open its name", "announces its opening"];
                format!("{} {}", pid(p), way[usize::from(announce)])
            }
            Action::Upload(p) => format!("{} uploads its next object", pid(p)),
            Action::Announce(p) => format!("{} announces what is uploaded", pid(p)),
            Action::Commit { pid: p, how } => format!("{} builds a record ({how:?})", pid(p)),
            Action::Finish(p) => format!("{} builds a record to finish", pid(p)),
            Action::Send { pid: p, outcome } => {
                format!("{} puts {}: {}", pid(p), wanted(p), answer(outcome))
            }
            Action::Read(p) => format!("{} reads the version of its {}", pid(p), wanted(p)),
            Action::Crash { pid: p, leaves } => {
                let left = ["", ", its put on the way"];
                format!("{} dies{}", pid(p), left[usize::from(leaves)])
            }
            Action::Land(record) => format!("the late put of {} arrives", self.record(record)),
            Action::Attempt { pid: p, start } => {
                format!(
                    "{} builds a record for an attempt from step {start}",
                    pid(p)
                )
            }
            Action::Mark {
                pid: p,
                coordinate,
                step,
            } => format!("{}, coordinate {coordinate}, marks step {step}", pid(p)),
            Action::Receive { pid: p, step } => {
                format!("{}, coordinate 1, has received all below {step}", pid(p))
            }
            Action::ChangeJob(p) => format!("{} builds a record to change its job", pid(p)),
            Action::RequestWatermark { pid: p, step } => {
                format!("{} asks for the watermark at {step}", pid(p))
            }
            Action::Seal(p) => format!("{} builds its next record", pid(p)),
            Action::Compute(p) => format!("{} reads marks, computes a watermark", pid(p)),
            Action::Pass(p) => format!("{} begins a pass", pid(p)),
            Action::Delete { pid: p, object } => {
                let object = self.tables.objects()[usize::from(object)];
                format!("{} deletes {}", pid(p), reclaimer::label(object))
            }
            Action::DropMarks(p) => format!("{} deletes marks", pid(p)),
            Action::EndPass(p) => format!("{} ends its pass", pid(p)),
        }
    }
}

fn name(role: Role, pid: u8) -> String {
    match role {
        Role::Dead => "a dead process".to_owned(),
        Role::Producer(producer) => format!("p{}/{}", producer.name, producer.instance),
        Role::Trainer(trainer) => format!("trainer {}", trainer.index),
        Role::Reclaimer(_) => format!("reclaimer {pid}"),
        Role::Sealer { .. } => "the sealer".to_owned(),
        Role::Operator { .. } => "the operator".to_owned(),
        Role::Person { .. } => "a person".to_owned(),
    }
}

fn answer(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Created => "created",
        Outcome::Exists => "412, another record is there",
        Outcome::MetItself => "it happens, but the answer is 412",
        Outcome::Lost => "it happens, the answer is lost",
        Outcome::Dropped => "it does not happen, the answer is lost or 409",
        Outcome::Late => "no answer, it is still on its way",
    }
}

impl Turn<'_> {
    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Start(pid) => self.start(pid),
            Action::Refresh(pid) => self.refresh(pid).then_some(()),
            Action::Open { pid, announce } => self.open(pid, announce),
            Action::Upload(pid) => self.upload(pid),
            Action::Announce(pid) => self.announce(pid),
            Action::Commit { pid, how } => self.commit(pid, how),
            Action::Finish(pid) => self.finish(pid),
            Action::Send { pid, outcome } => self.send(pid, outcome),
            Action::Read(pid) => {
                self.read(pid);
                Some(())
            }
            Action::Crash { pid, leaves } => self.crash(pid, leaves),
            Action::Land(record) => {
                self.state.flight.retain(|&put| put != record);
                self.land(record);
                Some(())
            }
            Action::Attempt { pid, start } => self.attempt(pid, start),
            Action::Mark {
                pid,
                coordinate,
                step,
            } => self.mark(pid, coordinate, step),
            Action::Receive { pid, step } => self.receive(pid, step),
            Action::ChangeJob(pid) => self.change_job(pid),
            Action::RequestWatermark { pid, step } => self.request_watermark(pid, step),
            Action::Seal(pid) => self.seal(pid),
            Action::Compute(pid) => self.compute(pid),
            Action::Pass(pid) => self.pass(pid),
            Action::Delete { pid, object } => self.delete(pid, object),
            Action::DropMarks(pid) => self.drop_marks(pid),
            Action::EndPass(pid) => {
                self.end_pass(pid);
                Some(())
            }
        }
    }

    fn crash(&mut self, pid: u8, leaves: bool) -> Option<()> {
        let process = self.copy(pid);
        if leaves {
            if process.phase != Phase::Put || self.state.flight.is_full() {
                return None;
            }
            self.state.flight.insert(process.record);
        }
        self.state.crashes -= 1;
        *self.process(pid) = Process::default();
        Some(())
    }
}
