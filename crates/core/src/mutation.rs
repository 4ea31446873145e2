//! Deliberate mistakes, for the test that proves that the simulator would find them. Without the
//! feature `mutations` none can be made, and the guards that ask cost nothing.

/// A mistake that a guard of the protocol prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Entries of any epoch are taken, and nobody stops because a newer one exists.
    AnyEpoch,
    /// The fold takes entries with any sequence and cursor.
    AnySequence,
    /// A 412 is taken for a lost race without a look at who has won.
    Trust412,
    /// After an unknown outcome the next version is tried.
    NextAfterUnknown,
    /// Whoever loses a version tries the next with what was judged before.
    Unfolded,
    /// An entry takes some TGBs of an object and leaves the others.
    HalfObject,
    /// Marks of abandoned histories count as restart points.
    PoolMarks,
    /// Of earlier attempts nothing counts, and what the newest has is enough.
    NewestMarks,
    /// A mark counts when one coordinate has made it.
    IncompleteMarks,
    /// A job with fewer restart points than it keeps gives up what is below the oldest.
    FewerThanKept,
    /// The floor may be above what a rank has received.
    BeyondProgress,
    /// A watermark that names other jobs and attempts than there are is taken, and a loser of a race
    /// publishes what it has computed before.
    StaleWatermark,
    /// An object goes with the first of its TGBs that nobody needs.
    SharedObject,
    /// What no entry names goes, although its epoch may still commit it.
    UncommittedObject,
    /// What is to go is chosen by the state before the watermark, what is named by the state after
    /// later records.
    MixedFolds,
    /// A snapshot does not say that the stream is sealed.
    SealForgotten,
    /// An opening begins with no mixtures.
    MixturesForgotten,
    /// A fold that is far behind goes on from the newest snapshot, also when that is older.
    JumpBack,
    /// An opening that was announced in an epoch which somebody else has is not announced again.
    OpeningNotAnnounced,
    /// The watermark follows the job that holds least.
    HighestFloor,
    /// Marks of earlier attempts are not listed.
    EarlierMarks,
    /// An entry names objects whose own range of sequence numbers is another.
    ObjectRange,
    /// A session that ends while its rank lives frees the frames that the rank holds.
    StoppedFrees,
    /// A rank has received what it says, whatever it was sent.
    BelievedRank,
    /// The stream ends a step later for ranks than in the log.
    EndElsewhere,
    /// Slices of a step go in one message, however many they are.
    OneMessage,
}

impl Mutation {
    /// Those of the lifecycle: restart points, watermark, reclamation.
    pub const LIFECYCLE: [Self; 11] = [
        Self::PoolMarks,
        Self::NewestMarks,
        Self::IncompleteMarks,
        Self::FewerThanKept,
        Self::BeyondProgress,
        Self::StaleWatermark,
        Self::SharedObject,
        Self::UncommittedObject,
        Self::MixedFolds,
        Self::HighestFloor,
        Self::EarlierMarks,
    ];

    /// Those of the commit path.
    pub const ALL: [Self; 10] = [
        Self::AnyEpoch,
        Self::AnySequence,
        Self::Trust412,
        Self::NextAfterUnknown,
        Self::Unfolded,
        Self::HalfObject,
        Self::SealForgotten,
        Self::MixturesForgotten,
        Self::JumpBack,
        Self::OpeningNotAnnounced,
    ];
}

#[cfg(feature = "mutations")]
thread_local! {
    static NOW: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Makes this thread make a mistake, or none.
#[cfg(feature = "mutations")]
pub fn set(mutation: Option<Mutation>) {
    NOW.set(mutation);
}

/// Whether this mistake is to be made.
#[cfg(feature = "mutations")]
pub fn is(mutation: Mutation) -> bool {
    NOW.get() == Some(mutation)
}

/// Never.
#[cfg(not(feature = "mutations"))]
pub const fn is(_: Mutation) -> bool {
    false
}
