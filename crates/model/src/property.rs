//! What must hold in every state. Each is a sentence of docs/protocol.md.

/// A property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// Nobody puts version v + 1 without having read version v.
    ReadBeforePut,
    /// After an unknown outcome only the same bytes go to the same version.
    SameBytes,
    /// No correct writer ever writes a void entry or record.
    NoVoid,
    /// No writer finds its own entry void, fences, seals and ends apart.
    NoSurprise,
    /// What a writer was told is committed is in the log.
    Acknowledged,
    /// Every TGB is in the log once, in its producer's order, and cursors go on without a gap.
    ExactlyOnce,
    /// Steps are dense; under `lanes` their order is a function of the lanes alone.
    Order,
    /// Nothing of a fenced epoch applies after its fence.
    Fence,
    /// No instance fences one that began after it.
    Newest,
    /// Nothing is committed after a seal.
    Seal,
    /// Data of a committed step at or above the watermark is there.
    LiveData,
    /// Data that a live epoch may still commit is there.
    FutureData,
    /// The watermark is not above what a live attempt needs.
    Watermark,
    /// The product's fold can go on, and its own invariants hold.
    Fold,
    /// Whoever is alive and has work can go on.
    Stuck,
}

impl Property {
    /// In one sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::ReadBeforePut => "nobody puts version v + 1 without having read version v",
            Self::SameBytes => {
                "after an unknown outcome only the same bytes go to the same version"
            }
            Self::NoVoid => "no correct writer writes a void entry or record",
            Self::NoSurprise => "no writer finds its own entry void, fence and seal apart",
            Self::Acknowledged => "what a writer takes for committed is in the log",
            Self::ExactlyOnce => "every TGB is in the log once, in order, with its cursor",
            Self::Order => "steps are dense, and under lanes a function of the lanes",
            Self::Fence => "nothing of a fenced epoch applies after its fence",
            Self::Newest => "no instance fences one that began after it",
            Self::Seal => "nothing is committed after a seal",
            Self::LiveData => "data of a committed step at or above the watermark is there",
            Self::FutureData => "data that a live epoch may still commit is there",
            Self::Watermark => "the watermark is not above what a live attempt needs",
            Self::Fold => "the fold can go on and its invariants hold",
            Self::Stuck => "whoever is alive and has work can go on",
        }
    }
}

/// A property that does not hold, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub property: Property,
    /// What was seen.
    pub detail: String,
}

impl Broken {
    /// Breaks `property`.
    pub fn new(property: Property, detail: String) -> Self {
        Self { property, detail }
    }

    /// Nothing can happen, though somebody wants to go on.
    pub fn stuck() -> Self {
        Self::new(Property::Stuck, "no action is possible".to_owned())
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.property.text(), self.detail)
    }
}
