//! The properties that must hold in every state. Each is a rule of docs/protocol.md.

/// A property of all states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// No process puts version v + 1 without having read version v.
    ReadBeforePut,
    /// After an unknown outcome, only the same bytes go to the same version.
    SameBytes,
    /// No correct writer ever writes a void entry or record.
    NoVoid,
    /// A writer finds its own entry void only because of a fence, a seal or its end.
    NoSurprise,
    /// Every TGB that a writer takes for committed is in the log.
    Acknowledged,
    /// Every TGB is in the log once, in its producer's order, with continuous cursors.
    ExactlyOnce,
    /// Steps are dense; under `lanes` their order is a function of the lanes alone.
    Order,
    /// No entry of a fenced epoch applies after its fence.
    Fence,
    /// No instance fences one that began after it.
    Newest,
    /// No TGB is committed after a seal.
    Seal,
    /// The data of each committed step at or above the watermark exists.
    LiveData,
    /// The data that a live epoch may still commit exists.
    FutureData,
    /// The watermark is at or below the steps that a live attempt needs.
    Watermark,
    /// The product's fold succeeds, and its own invariants hold.
    Fold,
    /// No old or forged copy keeps the one of a record's own writer from readers.
    KeptOut,
    /// Liveness: a running process with work can make progress.
    Stuck,
}

impl Property {
    /// Returns the property as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::ReadBeforePut => "no process puts version v + 1 without having read version v",
            Self::SameBytes => {
                "after an unknown outcome only the same bytes go to the same version"
            }
            Self::NoVoid => "no correct writer writes a void entry or record",
            Self::NoSurprise => "no writer finds its own entry void, fence and seal apart",
            Self::Acknowledged => "every TGB that a writer takes for committed is in the log",
            Self::ExactlyOnce => "every TGB is in the log once, in order, with its cursor",
            Self::Order => "steps are dense, and under lanes a function of the lanes",
            Self::Fence => "no entry of a fenced term applies after its fence",
            Self::Newest => "no instance fences one that began after it",
            Self::Seal => "no TGB is committed after a seal",
            Self::LiveData => "the data of each committed step at or above the watermark exists",
            Self::FutureData => "the data that a live term may still commit exists",
            Self::Watermark => "the watermark is at or below the steps that a live attempt needs",
            Self::Fold => "the fold succeeds and its invariants hold",
            Self::KeptOut => "a writer's own copy replaces any other under its key",
            Self::Stuck => "a running process with work can make progress",
        }
    }
}

/// A broken property and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub property: Property,
    /// The observed state, in words.
    pub detail: String,
}

impl Broken {
    /// Creates the report of a broken `property`.
    pub fn new(property: Property, detail: String) -> Self {
        Self { property, detail }
    }

    /// Creates the report of a state in which no action is possible although work is left.
    pub fn stuck() -> Self {
        Self::new(Property::Stuck, "no action is possible".to_owned())
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.property.text(), self.detail)
    }
}
