//! Deliberate mistakes, for the tests that prove that the simulator, or a test of this crate, would find
//! them. Without the feature `mutations` none can be made, and the guards that ask cost nothing.

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
    /// An instance that comes late to its opening fences one that began after it.
    OlderFences,
    /// The watermark follows the job that holds least.
    HighestFloor,
    /// Marks of earlier attempts are not listed.
    EarlierMarks,
    /// A watermark makes all attempts but the newest forgotten, whatever somebody can restart from.
    ForgottenAttempts,
    /// An entry names objects whose own range of sequence numbers is another.
    ObjectRange,
    /// A mark does not wait for the ledger of what its rank received.
    MarkBeforeLedger,
    /// A mark is confirmed though the store has refused its ledger.
    UnsavedLedger,
    /// What ledgers tell of a rank that comes back is not read again, whoever told of it meanwhile.
    StaleLedger,
    /// What a rank received before it went is not stored before the ledgers are read for its return.
    UnflushedReturn,
    /// Newer progress replaces that of other coordinates too.
    WideProgress,
    /// What a rank says of its position moves nothing.
    PositionUnheard,
}

impl Mutation {
    /// Those of the lifecycle: restart points, watermark, reclamation.
    pub const LIFECYCLE: [Self; 12] = [
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
        Self::ForgottenAttempts,
    ];

    /// Those of the consumer daemon: ledgers, marks, progress.
    pub const CONSUMER: [Self; 6] = [
        Self::MarkBeforeLedger,
        Self::UnsavedLedger,
        Self::StaleLedger,
        Self::UnflushedReturn,
        Self::WideProgress,
        Self::PositionUnheard,
    ];

    /// Those of the commit path.
    pub const ALL: [Self; 11] = [
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
        Self::OlderFences,
    ];
}

#[cfg(any(test, feature = "mutations"))]
thread_local! {
    static NOW: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Activates one mistake on the current thread, or none.
#[cfg(any(test, feature = "mutations"))]
pub fn set(mutation: Option<Mutation>) {
    NOW.set(mutation);
}

#[cfg(any(test, feature = "mutations"))]
fn is(mutation: Mutation) -> bool {
    NOW.get() == Some(mutation)
}

#[cfg(not(any(test, feature = "mutations")))]
const fn is(_: Mutation) -> bool {
    false
}

macro_rules! guards {
    ($($guard:ident: $mutation:ident,)+) => {$(
        #[doc = concat!("Returns whether [`Mutation::", stringify!($mutation), "`] is active.")]
        #[inline]
        pub fn $guard() -> bool {
            is(Mutation::$mutation)
        }
    )+};
}

guards! {
    skips_epoch_check: AnyEpoch,
    skips_sequence_check: AnySequence,
    trusts_412: Trust412,
    moves_on_after_unknown_outcome: NextAfterUnknown,
    retries_without_folding: Unfolded,
    splits_objects: HalfObject,
    counts_abandoned_marks: PoolMarks,
    counts_newest_marks_only: NewestMarks,
    counts_incomplete_marks: IncompleteMarks,
    accepts_fewer_restart_points: FewerThanKept,
    ignores_progress: BeyondProgress,
    accepts_stale_watermark: StaleWatermark,
    deletes_shared_objects: SharedObject,
    deletes_uncommitted_objects: UncommittedObject,
    mixes_folds: MixedFolds,
    forgets_seal: SealForgotten,
    forgets_mixtures: MixturesForgotten,
    jumps_back: JumpBack,
    announces_opening_once: OpeningNotAnnounced,
    lets_older_instance_fence: OlderFences,
    follows_highest_floor: HighestFloor,
    skips_earlier_marks: EarlierMarks,
    forgets_all_superseded_attempts: ForgottenAttempts,
    skips_object_range_check: ObjectRange,
    confirms_mark_before_ledger: MarkBeforeLedger,
    confirms_mark_without_ledger: UnsavedLedger,
    trusts_cached_ledgers: StaleLedger,
    skips_flush_on_return: UnflushedReturn,
    replaces_other_progress: WideProgress,
    ignores_reported_position: PositionUnheard,
}
