//! The actions that are possible in a state.

use crate::numbers::RecordNo;
use crate::state::{Phase, Process, Role, Stage, State, Trainer};
use crate::tables::Tables;

/// One possible event. `pid` is the number of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// An instance starts and opens the log.
    Start(u8),
    /// It folds the new records.
    Refresh(u8),
    /// It asks for an epoch.
    Open {
        pid: u8,
        /// With an intent instead of a record.
        announce: bool,
    },
    /// It uploads its next object.
    Upload(u8),
    /// It announces what is uploaded.
    Announce(u8),
    /// It builds a record.
    Commit {
        pid: u8,
        /// The entries to put into the record.
        how: How,
    },
    /// It commits the end of its input.
    Finish(u8),
    /// Its put gets an outcome.
    Send { pid: u8, outcome: Outcome },
    /// It reads the object at its record's version.
    Read(u8),
    /// The process dies at any point.
    Crash {
        pid: u8,
        /// Its put stays in flight.
        leaves: bool,
    },
    /// A put arrives that its sender had given up.
    Land(RecordNo),
    /// A trainer asks for an attempt.
    Attempt {
        pid: u8,
        /// The first step of the attempt.
        start: u8,
    },
    /// A data coordinate of a trainer marks this step.
    Mark { pid: u8, coordinate: u8, step: u8 },
    /// The slower coordinate of a trainer has received all steps below this one.
    Receive { pid: u8, step: u8 },
    /// The operator closes the first job, or opens it again.
    ChangeJob(u8),
    /// A person asks for a watermark at this step.
    RequestWatermark { pid: u8, step: u8 },
    /// The sealer asks for the next seal or unseal.
    Seal(u8),
    /// The reclaimer reads the marks and computes a watermark.
    Compute(u8),
    /// It begins to delete.
    Pass(u8),
    /// It deletes an object.
    Delete {
        pid: u8,
        /// The number of the object.
        object: u8,
    },
    /// It deletes marks that no job needs.
    DropMarks(u8),
    /// It ends its pass.
    EndPass(u8),
}

/// The entries that a record contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The writer's own TGBs.
    Own,
    /// The writer's own TGBs and valid intents.
    Combined,
    /// Only other producers' valid intents.
    Others,
    /// Half of the last object; only without a guard.
    Half,
}

/// The effect of a put, and the answer that the writer got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, and the answer says so.
    Created,
    /// Another record has the version, and the answer says so (412).
    Exists,
    /// It took effect; a retry inside the client met the new object and got 412.
    MetItself,
    /// It took effect; the answer was lost.
    Lost,
    /// It had no effect; the answer was lost, or was 409.
    Dropped,
    /// It has not taken effect yet; the writer got no answer.
    Late,
}

impl Outcome {
    const ALL: [Self; 6] = [
        Self::Created,
        Self::Exists,
        Self::MetItself,
        Self::Lost,
        Self::Dropped,
        Self::Late,
    ];

    /// Returns true if the outcome counts as a fault.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Created | Self::Exists)
    }
}

/// Adds all actions that may be possible; `next` rejects the impossible ones.
pub fn all(tables: &Tables, state: &State, into: &mut Vec<Action>) {
    for (pid, process) in (0..).zip(state.processes.as_slice()) {
        match process.phase {
            Phase::Put => {
                for outcome in Outcome::ALL {
                    if state.faults > 0 || !outcome.is_fault() {
                        into.push(Action::Send { pid, outcome });
                    }
                }
            }
            Phase::Resolve => into.push(Action::Read(pid)),
            Phase::Rest => at_rest(tables, state, pid, process, into),
        }
        if let Role::Producer(producer) = process.role {
            let active = matches!(producer.stage, Stage::Opening | Stage::Live);
            // Only a reclaimer notices uploads; without one it makes no difference when they
            // happen.
            let sees = tables.config().reclaimers > 0 || process.phase == Phase::Rest;
            if producer.stage == Stage::Live && sees {
                into.push(Action::Upload(pid));
            }
            if active && state.crashes > 0 {
                into.push(Action::Crash { pid, leaves: false });
                if process.phase == Phase::Put {
                    into.push(Action::Crash { pid, leaves: true });
                }
            }
        }
    }
    into.extend(state.flight.as_slice().iter().map(|&put| Action::Land(put)));
}

fn at_rest(tables: &Tables, state: &State, pid: u8, process: &Process, into: &mut Vec<Action>) {
    match process.role {
        Role::Dead => {}
        Role::Producer(producer) => of_producer(producer.stage, pid, into),
        Role::Trainer(trainer) => of_trainer(tables, state, pid, trainer, into),
        Role::Reclaimer(reclaimer) if reclaimer.deletes => {
            into.extend([Action::EndPass(pid), Action::DropMarks(pid)]);
            let there = (0..64).filter(|bit| state.objects >> bit & 1 == 1);
            into.extend(there.map(|object| Action::Delete { pid, object }));
        }
        Role::Reclaimer(_) => {
            into.extend([Action::Compute(pid), Action::Pass(pid)]);
        }
        Role::Sealer { .. } => into.extend([Action::Refresh(pid), Action::Seal(pid)]),
        Role::Operator { .. } => into.extend([Action::Refresh(pid), Action::ChangeJob(pid)]),
        Role::Person { .. } => {
            let steps = 1..=tables.facts(state.head).next_step;
            into.extend(steps.map(|step| Action::RequestWatermark { pid, step }));
        }
    }
}

fn of_producer(stage: Stage, pid: u8, into: &mut Vec<Action>) {
    match stage {
        Stage::Absent => into.push(Action::Start(pid)),
        Stage::Opening => into.extend([
            Action::Refresh(pid),
            Action::Open {
                pid,
                announce: false,
            },
            Action::Open {
                pid,
                announce: true,
            },
        ]),
        Stage::Live => {
            into.extend([
                Action::Refresh(pid),
                Action::Announce(pid),
                Action::Finish(pid),
            ]);
            let hows = [How::Own, How::Combined, How::Others, How::Half];
            into.extend(hows.map(|how| Action::Commit { pid, how }));
        }
        Stage::Done | Stage::Stopped => {}
    }
}

fn of_trainer(tables: &Tables, state: &State, pid: u8, trainer: Trainer, into: &mut Vec<Action>) {
    into.push(Action::Refresh(pid));
    let next_step = tables.facts(state.head).next_step;
    if !trainer.open {
        let starts = 0..=next_step;
        into.extend(starts.map(|start| Action::Attempt { pid, start }));
        return;
    }
    for coordinate in 0..tables.config().coordinates {
        let steps = trainer.at[usize::from(coordinate)] + 1..=next_step;
        if coordinate == 1 && tables.config().rank0 {
            into.extend(steps.map(|step| Action::Receive { pid, step }));
        } else {
            into.extend(steps.map(|step| Action::Mark {
                pid,
                coordinate,
                step,
            }));
        }
    }
}
