//! What may happen next.

use crate::state::{Phase, Process, Role, Stage, State, Trainer};
use crate::tables::{RecordNo, Tables};

/// One thing that happens. `who` is the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// An instance starts and opens the log.
    Start(u8),
    /// It folds what is new.
    Look(u8),
    /// It wants an epoch.
    Open {
        /// Who.
        who: u8,
        /// By an intent.
        announce: bool,
    },
    /// It uploads its next object.
    Upload(u8),
    /// It announces what is uploaded.
    Announce(u8),
    /// It builds a record.
    Commit {
        /// Who.
        who: u8,
        /// Of what.
        how: How,
    },
    /// It says that it has no more.
    Finish(u8),
    /// Its put has an outcome.
    Send {
        /// Who.
        who: u8,
        /// Which.
        outcome: Outcome,
    },
    /// It reads the object at its record's version.
    Read(u8),
    /// It dies.
    Crash {
        /// Who.
        who: u8,
        /// With a put on its way.
        leaves: bool,
    },
    /// A put happens that its sender gave up on.
    Land(RecordNo),
    /// A trainer wants an attempt.
    Attempt {
        /// Who.
        who: u8,
        /// From this step.
        start: u8,
    },
    /// A data coordinate of a trainer marks this step.
    Mark {
        /// Who.
        who: u8,
        /// The coordinate.
        coordinate: u8,
        /// The step.
        step: u8,
    },
    /// The slower coordinate of a trainer has received all steps below this one.
    Receive {
        /// Who.
        who: u8,
        /// The step.
        step: u8,
    },
    /// Somebody closes the first job, or opens it again.
    ChangeJob(u8),
    /// A person wants the watermark at this step.
    Ask {
        /// Who.
        who: u8,
        /// The step.
        step: u8,
    },
    /// Somebody wants the next seal or unseal.
    Seal(u8),
    /// The reclaimer reads the marks and computes a watermark.
    Compute(u8),
    /// It begins to delete.
    Pass(u8),
    /// It deletes an object.
    Delete {
        /// Who.
        who: u8,
        /// The object's number.
        object: u8,
    },
    /// It deletes marks that nobody needs.
    DropMarks(u8),
    /// It ends its pass.
    EndPass(u8),
}

/// What a record takes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The writer's own TGBs.
    Own,
    /// Them and valid intents.
    Combined,
    /// Valid intents alone.
    Others,
    /// Without a guard: half of the last object.
    Half,
}

/// What became of a put, and what the writer was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It happened, and the answer says so.
    Created,
    /// Another record is there, and the answer says so (412).
    Exists,
    /// It happened; a retry inside the client met it and the answer is 412.
    MetItself,
    /// It happened; the answer was lost.
    Lost,
    /// It did not happen; the answer was lost, or was 409.
    Dropped,
    /// It has not happened yet; the writer was told nothing.
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

    /// Whether it counts as a fault.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Created | Self::Exists)
    }
}

/// All that may happen. What needs a closer look is sorted out when it is tried.
pub fn all(tables: &Tables, state: &State, into: &mut Vec<Action>) {
    for (who, process) in (0..).zip(state.processes.as_slice()) {
        match process.phase {
            Phase::Put => {
                for outcome in Outcome::ALL {
                    if state.faults > 0 || !outcome.is_fault() {
                        into.push(Action::Send { who, outcome });
                    }
                }
            }
            Phase::Ask => into.push(Action::Read(who)),
            Phase::Rest => at_rest(tables, state, who, process, into),
        }
        if let Role::Producer(producer) = process.role {
            let active = matches!(producer.stage, Stage::Opening | Stage::Live);
            // Only a reclaimer can see what is uploaded; without one it may as well happen later.
            let sees = tables.config().reclaimers > 0 || process.phase == Phase::Rest;
            if producer.stage == Stage::Live && sees {
                into.push(Action::Upload(who));
            }
            if active && state.crashes > 0 {
                into.push(Action::Crash { who, leaves: false });
                if process.phase == Phase::Put {
                    into.push(Action::Crash { who, leaves: true });
                }
            }
        }
    }
    into.extend(state.flight.as_slice().iter().map(|&put| Action::Land(put)));
}

fn at_rest(tables: &Tables, state: &State, who: u8, process: &Process, into: &mut Vec<Action>) {
    match process.role {
        Role::Dead => {}
        Role::Producer(producer) => match producer.stage {
            Stage::Absent => into.push(Action::Start(who)),
            Stage::Opening => into.extend([
                Action::Look(who),
                Action::Open {
                    who,
                    announce: false,
                },
                Action::Open {
                    who,
                    announce: true,
                },
            ]),
            Stage::Live => {
                into.extend([
                    Action::Look(who),
                    Action::Announce(who),
                    Action::Finish(who),
                ]);
                let hows = [How::Own, How::Combined, How::Others, How::Half];
                into.extend(hows.map(|how| Action::Commit { who, how }));
            }
            Stage::Done | Stage::Stopped => {}
        },
        Role::Trainer(trainer) => of_trainer(tables, state, who, trainer, into),
        Role::Reclaimer(reclaimer) if reclaimer.deletes => {
            into.extend([Action::EndPass(who), Action::DropMarks(who)]);
            let there = (0..64).filter(|bit| state.objects >> bit & 1 == 1);
            into.extend(there.map(|object| Action::Delete { who, object }));
        }
        Role::Reclaimer(_) => {
            into.extend([Action::Compute(who), Action::Pass(who)]);
        }
        Role::Sealer { .. } => into.extend([Action::Look(who), Action::Seal(who)]),
        Role::Operator { .. } => into.extend([Action::Look(who), Action::ChangeJob(who)]),
        Role::Person { .. } => {
            let steps = 1..=tables.facts(state.head).next_step;
            into.extend(steps.map(|step| Action::Ask { who, step }));
        }
    }
}

fn of_trainer(tables: &Tables, state: &State, who: u8, trainer: Trainer, into: &mut Vec<Action>) {
    into.push(Action::Look(who));
    let next_step = tables.facts(state.head).next_step;
    if !trainer.open {
        let starts = 0..=next_step;
        into.extend(starts.map(|start| Action::Attempt { who, start }));
        return;
    }
    for coordinate in 0..tables.config().coordinates {
        let steps = trainer.at[usize::from(coordinate)] + 1..=next_step;
        if coordinate == 1 && tables.config().rank0 {
            into.extend(steps.map(|step| Action::Receive { who, step }));
        } else {
            into.extend(steps.map(|step| Action::Mark {
                who,
                coordinate,
                step,
            }));
        }
    }
}
