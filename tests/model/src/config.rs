//! The configurations: which processes take part and how many faults happen. Each is about one part of
//! the protocol and small enough to be explored completely.

use crate::spec::JOBS_MAX;

/// The bounds of one configuration.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub name: &'static str,
    /// The part of the protocol that it explores.
    pub about: &'static str,
    /// The number of producer names.
    pub producers: u8,
    /// Instances that may open each name; all but the first may start at any time.
    pub instances: u8,
    /// The first instances are open from the start.
    pub opened: bool,
    /// TGBs that each producer commits.
    pub tgbs: u8,
    /// TGBs in one object.
    pub group: u8,
    /// The stream's order is `lanes` instead of `arrival`.
    pub lanes: bool,
    /// Producers commit the end of their input.
    pub finish: bool,
    /// Intents that an instance may announce; 0 disables announcing and combining.
    pub announces: u8,
    /// Openings may be announced.
    pub announce_opens: bool,
    /// Leaders may also commit records with only other producers' entries.
    pub lead: bool,
    /// Answers that may be lost or wrong.
    pub faults: u8,
    /// Processes that may die.
    pub crashes: u8,
    /// Seals and unseals that the sealer commits, in turn.
    pub seals: u8,
    /// All TGBs of the first producer are in the log from the start, and no producer runs.
    pub filled: bool,
    /// Attempts that each job may open, each in its own process.
    pub attempts: [u8; JOBS_MAX],
    /// Marks that each data coordinate of an attempt may write.
    pub marks: u8,
    /// Data coordinates of an attempt, 1 or 2.
    pub coordinates: u8,
    /// The first coordinate's marks count for all coordinates, whatever the second one has
    /// received.
    pub rank0: bool,
    /// Restart points that each job keeps; 0 means no such job.
    pub keep: [u8; JOBS_MAX],
    /// How many times the operator closes the first job or opens it again.
    pub reopens: u8,
    /// How many times a person moves the watermark.
    pub asks: u8,
    /// The number of reclaimers, which move the watermark and delete data.
    pub reclaimers: u8,
    /// Reclaimers delete marks, too.
    pub drops_marks: bool,
}

/// A configuration without faults or jobs, as a base for the others.
const NONE: Config = Config {
    name: "",
    about: "",
    producers: 2,
    instances: 1,
    opened: true,
    tgbs: 2,
    group: 1,
    lanes: false,
    finish: false,
    announces: 0,
    announce_opens: false,
    lead: false,
    faults: 0,
    crashes: 0,
    seals: 0,
    filled: false,
    attempts: [0; JOBS_MAX],
    marks: 0,
    coordinates: 1,
    rank0: false,
    keep: [0; JOBS_MAX],
    reopens: 0,
    asks: 0,
    reclaimers: 0,
    drops_marks: false,
};

/// The configurations of `--all`.
pub const FULL: [Config; 18] = [
    Config {
        name: "commit",
        about: "races, unknown outcomes, late effects, crashes",
        producers: 3,
        faults: 3,
        crashes: 1,
        ..NONE
    },
    Config {
        name: "shared",
        about: "several TGBs in one object, finishing",
        tgbs: 3,
        group: 2,
        finish: true,
        faults: 2,
        crashes: 1,
        ..NONE
    },
    Config {
        name: "combine",
        about: "entries announced as intents, stale and doubled ones, committed by others",
        tgbs: 3,
        announces: 2,
        lead: true,
        faults: 1,
        ..NONE
    },
    Config {
        name: "leaders",
        about: "three names that commit for each other",
        producers: 3,
        tgbs: 1,
        announces: 1,
        lead: true,
        faults: 2,
        crashes: 1,
        ..NONE
    },
    Config {
        name: "fence",
        about: "instances that open the same name; old ones frozen and woken",
        producers: 1,
        instances: 3,
        opened: false,
        tgbs: 3,
        faults: 2,
        crashes: 1,
        ..NONE
    },
    Config {
        name: "takeover",
        about: "openings announced as intents while names change hands",
        instances: 2,
        tgbs: 1,
        announces: 1,
        announce_opens: true,
        faults: 1,
        ..NONE
    },
    Config {
        name: "seal",
        about: "sealing and unsealing under writers",
        tgbs: 2,
        announces: 1,
        seals: 2,
        faults: 2,
        ..NONE
    },
    Config {
        name: "turns",
        about: "three lanes that take turns and finish",
        producers: 3,
        lanes: true,
        finish: true,
        faults: 1,
        ..NONE
    },
    Config {
        name: "lanes",
        about: "deletion while TGBs wait for their turn",
        lanes: true,
        finish: true,
        faults: 1,
        attempts: [1, 0],
        keep: [1, 0],
        marks: 1,
        reclaimers: 1,
        ..NONE
    },
    Config {
        name: "marks",
        about: "attempts and marks against a computed watermark",
        producers: 1,
        tgbs: 3,
        group: 3,
        attempts: [3, 0],
        marks: 2,
        keep: [2, 0],
        faults: 1,
        reclaimers: 1,
        ..NONE
    },
    Config {
        name: "jobs",
        about: "two jobs that keep different numbers of restart points",
        producers: 1,
        filled: true,
        tgbs: 2,
        attempts: [2, 2],
        marks: 1,
        keep: [1, 2],
        reclaimers: 1,
        drops_marks: true,
        ..NONE
    },
    Config {
        name: "reopen",
        about: "a job that is closed and opened again, a person who moves the watermark",
        producers: 1,
        filled: true,
        tgbs: 3,
        attempts: [2, 0],
        marks: 1,
        keep: [2, 0],
        reopens: 2,
        asks: 1,
        reclaimers: 1,
        ..NONE
    },
    Config {
        name: "mesh",
        about: "marks of two data coordinates, complete and not",
        producers: 1,
        filled: true,
        tgbs: 3,
        attempts: [2, 0],
        marks: 2,
        coordinates: 2,
        keep: [1, 0],
        reclaimers: 1,
        ..NONE
    },
    Config {
        name: "slow",
        about: "one rank marks for all, while another is behind",
        producers: 1,
        filled: true,
        tgbs: 3,
        attempts: [2, 0],
        marks: 2,
        coordinates: 2,
        rank0: true,
        keep: [2, 0],
        faults: 1,
        reclaimers: 1,
        ..NONE
    },
    Config {
        name: "sharing",
        about: "objects with several TGBs, part of which no job needs any more",
        producers: 1,
        tgbs: 3,
        group: 2,
        attempts: [2, 0],
        marks: 2,
        keep: [1, 0],
        faults: 1,
        crashes: 1,
        reclaimers: 1,
        ..NONE
    },
    Config {
        name: "reclaimers",
        about: "two reclaimers with folds of different age",
        producers: 1,
        filled: true,
        tgbs: 3,
        attempts: [2, 0],
        marks: 2,
        keep: [1, 0],
        faults: 1,
        reclaimers: 2,
        ..NONE
    },
    Config {
        name: "reclaim",
        about: "deletion of reclaimed data under two producers and two attempts",
        tgbs: 1,
        attempts: [2, 0],
        keep: [1, 0],
        marks: 1,
        faults: 1,
        crashes: 1,
        reclaimers: 1,
        ..NONE
    },
    Config {
        name: "orphans",
        about: "deletion while a name changes hands",
        producers: 1,
        instances: 2,
        attempts: [1, 0],
        keep: [1, 0],
        marks: 1,
        faults: 1,
        crashes: 1,
        reclaimers: 1,
        ..NONE
    },
];

/// Returns the configuration with this name.
pub fn named(name: &str) -> Option<Config> {
    FULL.iter().copied().find(|config| config.name == name)
}

impl Config {
    /// Returns a copy small enough for `cargo test`.
    #[must_use]
    pub fn short(self) -> Self {
        Self {
            producers: self.producers.min(2),
            faults: self.faults.min(1),
            crashes: self.crashes.min(1),
            ..self
        }
    }
}

impl Config {
    /// Returns how TGBs are split into objects.
    pub fn object_split(&self) -> crate::spec::ObjectSplit {
        crate::spec::ObjectSplit {
            group: self.group,
            tgbs: self.tgbs,
        }
    }
}
