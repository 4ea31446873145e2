//! A moment: the store, and where every process stands. Small and copied by value; manifests,
//! records and entries are numbers (`tables`).

use crate::config::JOBS_MAX;
use crate::row::Row;
use crate::tables::{EntryNo, Node, RecordNo};

/// Processes of one configuration at most.
pub const PROCESSES_MAX: usize = 7;
/// Trainers of one configuration at most.
pub const TRAINERS_MAX: usize = 4;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// The log in the store, as far as it has no gap.
    pub head: Node,
    /// Records beyond a gap: only writers without guards make them.
    pub beyond: Row<RecordNo, 2>,
    /// Puts that their sender gave up on and that may still happen.
    pub flight: Row<RecordNo, 4>,
    /// Objects under `intents/`.
    pub intents: Row<EntryNo, 6>,
    /// Objects under `data/`, by number.
    pub objects: u64,
    /// Marks: see [`mark`].
    pub marks: u32,
    /// From which steps each job may restart, by the order in which things happened; what the
    /// product's rules are compared with.
    pub points: [Row<u8, 6>; JOBS_MAX],
    /// Sequence up to which each producer was told that its TGBs are committed.
    pub acked: [u8; 3],
    /// Faults that may still happen.
    pub faults: u8,
    /// Deaths that may still happen.
    pub crashes: u8,
    /// Who takes part.
    pub processes: Row<Process, PROCESSES_MAX>,
}

/// Anyone who reads or writes the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Process {
    /// What it has folded.
    pub view: Node,
    /// What it judges by when a guard is missing; else 0.
    pub stale: Node,
    /// The record that it wants in the log.
    pub record: RecordNo,
    /// A record that it sent and whose outcome is unknown.
    pub doubt: RecordNo,
    /// Where it stands in putting `record`.
    pub phase: Phase,
    /// Versions that it has read or was told to have won.
    pub read: u8,
    /// Records with the same entries at the same version: more than one only without a guard.
    pub salt: u8,
    /// What it does.
    pub role: Role,
}

/// Where a process stands in putting a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// It puts nothing.
    #[default]
    Rest,
    /// It is about to send its record.
    Put,
    /// It reads the object at its record's version.
    Ask,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Role {
    /// It died.
    #[default]
    Dead,
    /// One instance of a producer.
    Producer(Producer),
    /// Opens one attempt of the job and writes its marks.
    Trainer(Trainer),
    /// Moves the watermark and deletes.
    Reclaimer(Reclaimer),
    /// Seals, and may unseal.
    Sealer {
        /// Records won.
        done: u8,
    },
    /// Closes the first job and opens it again.
    Operator {
        /// Records won.
        done: u8,
    },
    /// Moves the watermark to a step of choice.
    Person {
        /// Commands that are left.
        left: u8,
    },
}

/// See [`Role::Producer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Producer {
    /// The producer's number.
    pub name: u8,
    /// The instance's number.
    pub instance: u8,
    /// How far it is.
    pub stage: Stage,
    /// The length of the log when it started, while it wants an epoch.
    pub began: u8,
    /// Its epoch, or the one it wants.
    pub epoch: u8,
    /// Where its epoch began.
    pub start: u8,
    /// Up to here it knows its TGBs committed.
    pub base: u8,
    /// Up to here they are uploaded.
    pub packed: u8,
    /// Up to here they are announced.
    pub announced: u8,
    /// Intents that it may still put.
    pub announces: u8,
}

/// How far an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Stage {
    /// Not started.
    #[default]
    Absent,
    /// Wants an epoch.
    Opening,
    /// Has an epoch, as far as it knows.
    Live,
    /// Everything of it is committed.
    Done,
    /// Fenced or sealed: it has stopped.
    Stopped,
}

/// See [`Role::Trainer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Trainer {
    /// Its number.
    pub index: u8,
    /// Of which job.
    pub job: u8,
    /// Its attempt is in the log.
    pub open: bool,
    /// For each data coordinate: what it has received, as far as that is published.
    pub at: [u8; 2],
    /// Marks that each coordinate may still write.
    pub marks: [u8; 2],
}

/// See [`Role::Reclaimer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Reclaimer {
    /// It deletes, by the fold `Process::view`.
    pub deletes: bool,
    /// Without a guard: deletes below this step; computed earlier.
    pub step: u8,
    /// Without a guard: the fold for epochs and sequences, other than that for names.
    pub second: Node,
}

impl Process {
    /// The producer, if it is one.
    pub fn producer(&self) -> Option<&Producer> {
        match &self.role {
            Role::Producer(producer) => Some(producer),
            _ => None,
        }
    }
}

/// The bit of a data coordinate's mark.
pub fn mark(trainer: u8, coordinate: u8, step: u8) -> u32 {
    debug_assert!(step < 4 && coordinate < 2 && usize::from(trainer) < TRAINERS_MAX);
    1 << (8 * trainer + 4 * coordinate + step)
}
