//! What a run explores: who takes part and how much may go wrong. Each configuration is about one
//! part of the protocol, small enough to be explored to the end.

/// Bounds of one configuration.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Producer names.
    pub producers: u8,
    /// Instances that may open each name; all but the first come at any time.
    pub instances: u8,
    /// The first instances are open from the start.
    pub opened: bool,
    /// TGBs of each producer.
    pub tgbs: u8,
    /// TGBs in one object.
    pub group: u8,
    /// Order `lanes` instead of `arrival`.
    pub lanes: bool,
    /// Producers say when they have no more.
    pub finish: bool,
    /// Intents that an instance may announce; 0: nobody announces or combines.
    pub announces: u8,
    /// Openings may be announced.
    pub announce_opens: bool,
    /// Leaders also commit others' entries alone.
    pub lead: bool,
    /// Answers that may be lost or wrong.
    pub faults: u8,
    /// Processes that may die.
    pub crashes: u8,
    /// Records put by someone who wants the stream sealed; 2: and unsealed again.
    pub seals: u8,
    /// Attempts that a job may open, each by a process of its own.
    pub attempts: u8,
    /// Complete marks that an attempt may write.
    pub marks: u8,
    /// Restart points that the job keeps.
    pub keep: u8,
    /// Somebody moves the watermark and deletes.
    pub reclaims: bool,
}

/// Nobody and nothing: a base for the configurations below.
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
    attempts: 0,
    marks: 0,
    keep: 1,
    reclaims: false,
};

/// The configurations of `--all`.
pub const FULL: [Config; 12] = [
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
        attempts: 1,
        marks: 1,
        reclaims: true,
        ..NONE
    },
    Config {
        name: "marks",
        about: "attempts and marks against a computed watermark",
        producers: 1,
        tgbs: 3,
        group: 3,
        attempts: 3,
        marks: 2,
        keep: 2,
        faults: 1,
        reclaims: true,
        ..NONE
    },
    Config {
        name: "reclaim",
        about: "deletion of reclaimed data under two producers and two attempts",
        tgbs: 1,
        attempts: 2,
        marks: 1,
        faults: 1,
        crashes: 1,
        reclaims: true,
        ..NONE
    },
    Config {
        name: "orphans",
        about: "deletion while a name changes hands",
        producers: 1,
        instances: 2,
        attempts: 1,
        marks: 1,
        faults: 1,
        crashes: 1,
        reclaims: true,
        ..NONE
    },
];

/// The configuration of this name.
pub fn named(name: &str) -> Option<Config> {
    FULL.iter().copied().find(|config| config.name == name)
}

impl Config {
    /// The same, small enough for `cargo test`.
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
    /// How TGBs lie in objects.
    pub fn cut(&self) -> crate::spec::Cut {
        crate::spec::Cut {
            group: self.group,
            tgbs: self.tgbs,
        }
    }
}
