//! A state of the system: the store and every process. It is small and copied by value; manifests,
//! records and entries are numbers (`tables`).

use crate::inline_list::InlineList;
use crate::numbers::{EntryNo, Node, RecordNo};
use crate::spec::JOBS_MAX;

/// Processes of one configuration at most.
pub const PROCESSES_MAX: usize = 7;
/// Trainers of one configuration at most.
pub const TRAINERS_MAX: usize = 4;

/// A state of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// The log in the store, up to its first gap.
    pub head: Node,
    /// Records after a gap, which only writers without a guard make.
    pub beyond: InlineList<RecordNo, 2>,
    /// Puts that their senders gave up on and that may still take effect.
    pub flight: InlineList<RecordNo, 4>,
    /// Objects under `intents/`, by entry number.
    pub intents: InlineList<EntryNo, 6>,
    /// Objects under `data/`, by number.
    pub objects: u64,
    /// Marks, as bits of [`mark`].
    pub marks: u32,
    /// The steps from which each job may restart, by the order of events; the product's rules are
    /// compared with them.
    pub points: [InlineList<u8, 6>; JOBS_MAX],
    /// The sequence number up to which each producer takes its TGBs for committed.
    pub acked: [u8; 3],
    /// Faults that may still happen.
    pub faults: u8,
    /// Deaths that may still happen.
    pub crashes: u8,
    pub processes: InlineList<Process, PROCESSES_MAX>,
}

/// A process that reads or writes the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Process {
    /// The log that it has folded.
    pub view: Node,
    /// The older log by which it validates without a guard; else 0.
    pub stale: Node,
    /// The record that it wants to commit.
    pub record: RecordNo,
    /// A record that it sent and whose outcome is unknown.
    pub doubt: RecordNo,
    /// The phase of putting `record`.
    pub phase: Phase,
    /// Versions that it has read or won.
    pub read: u8,
    /// The number of further records with the same entries at the same version; above 0 only
    /// without a guard.
    pub salt: u8,
    pub role: Role,
}

/// The phase of putting a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// It has no record to put.
    #[default]
    Rest,
    /// It is about to send its record.
    Put,
    /// It reads the object at its record's version.
    Resolve,
}

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Role {
    #[default]
    Dead,
    /// One instance of a producer.
    Producer(Producer),
    /// Opens one attempt of its job and writes the marks.
    Trainer(Trainer),
    /// Moves the watermark and deletes data.
    Reclaimer(Reclaimer),
    /// Seals the stream, and may unseal it.
    Sealer { done: u8 },
    /// Closes the first job and opens it again.
    Operator { done: u8 },
    /// Moves the watermark to any step.
    Person {
        /// The number of commands left.
        left: u8,
    },
}

/// The state of a producer's instance; see [`Role::Producer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Producer {
    pub name: u8,
    pub instance: u8,
    pub stage: Stage,
    /// The length of the log when it started, while it asks for an epoch.
    pub began: u8,
    /// Its epoch, or the one that it asks for.
    pub epoch: u8,
    /// The sequence number at which its epoch began.
    pub start: u8,
    /// Sequence numbers below this are committed, as it knows.
    pub base: u8,
    /// Sequence numbers below this are uploaded.
    pub packed: u8,
    /// Sequence numbers below this are announced.
    pub announced: u8,
    /// Intents that it may still put.
    pub announces: u8,
}

/// The life cycle of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Stage {
    #[default]
    Absent,
    /// It asks for an epoch.
    Opening,
    /// It has an epoch, as far as it knows.
    Live,
    /// All its TGBs are committed.
    Done,
    /// It stopped because of a fence or a seal.
    Stopped,
}

/// The state of a trainer; see [`Role::Trainer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Trainer {
    pub index: u8,
    pub job: u8,
    pub open: bool,
    /// The steps that each data coordinate has received, as far as published.
    pub at: [u8; 2],
    /// Marks that each coordinate may still write.
    pub marks: [u8; 2],
}

/// The state of a reclaimer; see [`Role::Reclaimer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Reclaimer {
    /// It deletes, by the fold `Process::view`.
    pub deletes: bool,
    /// Without a guard: it deletes below this step, which was computed earlier.
    pub step: u8,
    /// Without a guard: the fold for epochs and sequence numbers, if different from that for names.
    pub second: Node,
}

impl Process {
    /// Returns the producer, if it is one.
    pub fn producer(&self) -> Option<&Producer> {
        match &self.role {
            Role::Producer(producer) => Some(producer),
            _ => None,
        }
    }
}

/// Returns the bit of a data coordinate's mark.
pub fn mark(trainer: u8, coordinate: u8, step: u8) -> u32 {
    debug_assert!(step < 4 && coordinate < 2 && usize::from(trainer) < TRAINERS_MAX);
    1 << (8 * trainer + 4 * coordinate + step)
}

/// The objects under `jobs/`, as small numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MarksAndProgress {
    /// The marks, as in the state.
    pub marks: u32,
    /// The steps that each trainer's coordinates have received.
    pub at: [[u8; 2]; TRAINERS_MAX],
}

impl MarksAndProgress {
    /// Returns the marks and progress of a state.
    pub fn from_state(state: &State) -> Self {
        let mut at = [[0; 2]; TRAINERS_MAX];
        for process in state.processes.as_slice() {
            if let Role::Trainer(trainer) = process.role {
                at[usize::from(trainer.index)] = trainer.at;
            }
        }
        let marks = state.marks;
        Self { marks, at }
    }

    /// Returns true if a coordinate has marked a step.
    pub fn marked(&self, trainer: u8, coordinate: u8, step: u8) -> bool {
        self.marks & mark(trainer, coordinate, step) != 0
    }
}
