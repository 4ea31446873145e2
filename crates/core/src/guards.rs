//! Deliberate mistakes, which prove that the simulator, or a test of this crate, would find them. Each
//! function asks for one mistake at the place where a rule prevents it. Only a build with debug assertions,
//! as the profile `checks` has them for this crate, can activate one; in a release the functions cost nothing.

/// A mistake that a rule of the protocol prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Entries of any epoch apply, and no producer stops because a newer one exists.
    AnyEpoch,
    /// Entries with any sequence number and cursor apply.
    AnySequence,
    /// A 412 counts as a lost race without reading the winner.
    Trust412,
    /// After an unknown outcome the writer tries the next version.
    NextAfterUnknown,
    /// The loser of a version tries the next one with entries validated before.
    Unfolded,
    /// An entry commits some TGBs of an object and leaves the others.
    HalfObject,
    /// Marks of abandoned histories count as restart points.
    PoolMarks,
    /// Only the newest attempt counts, and any number of its restart points is enough.
    NewestMarks,
    /// A mark counts when one coordinate has made it.
    IncompleteMarks,
    /// A job with fewer restart points than it keeps releases the steps below the oldest.
    FewerThanKept,
    /// The floor may be above what a rank has received.
    BeyondProgress,
    /// A watermark applies although it names other jobs and attempts, and the loser of a race publishes a
    /// watermark computed before.
    StaleWatermark,
    /// An object is deleted with the first of its TGBs that is no longer needed.
    SharedObject,
    /// An unnamed object is deleted although its epoch may still commit it.
    UncommittedObject,
    /// Objects to delete are chosen by the state before the watermark, the keys in use by a later state.
    MixedFolds,
    /// A snapshot omits that the stream is sealed.
    SealForgotten,
    /// An opening resets the mixtures.
    MixturesForgotten,
    /// A fold that is far behind jumps to the newest snapshot even when that is older.
    JumpBack,
    /// An opening announced in an epoch that another instance took is not announced again.
    OpeningNotAnnounced,
    /// An instance that opens late fences one that began after it.
    OlderFences,
    /// The watermark follows the job with the highest floor.
    HighestFloor,
    /// Marks of earlier attempts are not listed.
    EarlierMarks,
    /// A watermark removes all attempts but the newest, even those with restart points.
    ForgottenAttempts,
    /// An entry names objects with another range of sequence numbers in their keys.
    ObjectRange,
    /// A mark is stored before the ledger of the steps that its rank received.
    MarkBeforeLedger,
    /// A mark is confirmed although the store refused its ledger.
    UnsavedLedger,
    /// Stored ledgers are not read again when a rank returns, although another daemon may have added to
    /// them.
    StaleLedger,
    /// Deliveries to a rank are not stored before the ledgers are read for its return.
    UnflushedReturn,
    /// The ledgers that the daemons of an earlier attempt did not store are not filled by the next attempt.
    EarlierHoles,
    /// Newer progress also replaces that of other coordinates.
    WideProgress,
    /// The position that a rank reports is ignored.
    PositionUnheard,
    /// Reports are confirmed before the ledger with their states is stored.
    StatesConfirmedEarly,
    /// States that a rank repeats in a new session are stored again.
    StatesTwice,
    /// States of one attempt are stored in the ledger of another one.
    StatesElsewhere,
    /// A mark is stored before the states that its rank reported before it.
    MarkBeforeStates,
    /// Every producer reads the blocks of the first.
    SharedBlocks,
    /// Each pass has the order of the first.
    SameOrder,
    /// A restarted sampler gives the document before its place again.
    DocumentTwice,
    /// A restarted sampler counts what its sources gave from nothing.
    GivenForgotten,
    /// An item is committed under the mixture in force, although it was made by another one.
    AnyMixture,
    /// An item is committed under the stage in force, although it was made by another one.
    AnyStage,
    /// A stage applies although it names only some of the producers.
    PartialStage,
    /// A stage applies from a committed batch on, or before an earlier stage.
    LateStage,
    /// An opening resets the stages.
    StagesForgotten,
    /// A change of the mixture is ignored.
    MixtureIgnored,
    /// A change of the mixture that is in force is applied again.
    MixtureTwice,
    /// A change of the mixture that came late begins with the next document that is read again.
    MixtureAtOnce,
    /// More passes of a source begin with the next document that is read again.
    PassesAtOnce,
    /// A fork begins with the turn behind its border, not with that of its first step.
    ForkLaterTurn,
    /// A producer of a fork has only those mixtures that begin for itself at or before its first batch.
    ForkOwnMixtures,
    /// A producer of a fork counts in the list of the cursor that it begins with.
    ForkOldList,
    /// A producer of a fork's fork counts from the entry of the fork alone.
    ForkOwnEntry,
    /// Batches that wait for their turn at the border of a fork are taken for given.
    ForkWithoutWaiting,
    /// Of several batches of a producer in the record of the border only the last counts.
    ForkLastEntry,
    /// An opening in a fork forgets what its producer makes once more.
    ForkOpenedOnce,
    /// A driver goes on with the lineage before a restart, whose last steps are abandoned.
    AbandonedSteps,
    /// A driver uses steps that have batches of the mixture before.
    OlderMixtureSteps,
    /// A driver's decision applies although another mixture or attempt came first.
    OvertakenDecision,
}

impl Mutation {
    /// Mistakes in the lifecycle: restart points, watermark, reclamation.
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

    /// Mistakes in the consumer daemon: ledgers, marks, progress, reports.
    pub const CONSUMER: [Self; 11] = [
        Self::MarkBeforeLedger,
        Self::UnsavedLedger,
        Self::StaleLedger,
        Self::UnflushedReturn,
        Self::EarlierHoles,
        Self::WideProgress,
        Self::PositionUnheard,
        Self::StatesConfirmedEarly,
        Self::StatesTwice,
        Self::StatesElsewhere,
        Self::MarkBeforeStates,
    ];

    /// Mistakes in the order of documents.
    pub const ORDER: [Self; 6] = [
        Self::SharedBlocks,
        Self::SameOrder,
        Self::DocumentTwice,
        Self::GivenForgotten,
        Self::MixtureIgnored,
        Self::MixtureTwice,
    ];

    /// Mistakes with stages, which the model of stages finds.
    pub const STAGES: [Self; 4] = [
        Self::AnyStage,
        Self::PartialStage,
        Self::LateStage,
        Self::StagesForgotten,
    ];

    /// Mistakes in the state of a fork, and in what follows from it.
    pub const FORKS: [Self; 7] = [
        Self::ForkLaterTurn,
        Self::ForkOwnMixtures,
        Self::ForkOldList,
        Self::ForkOwnEntry,
        Self::ForkWithoutWaiting,
        Self::ForkLastEntry,
        Self::ForkOpenedOnce,
    ];

    /// Mistakes of a driver, which changes the mixture by the losses that ranks report.
    pub const DRIVER: [Self; 3] = [
        Self::AbandonedSteps,
        Self::OlderMixtureSteps,
        Self::OvertakenDecision,
    ];

    /// Mistakes in the commit path.
    pub const ALL: [Self; 12] = [
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
        Self::AnyMixture,
    ];
}

#[cfg(any(test, debug_assertions))]
thread_local! {
    static NOW: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Activates one mistake on the current thread, or none.
#[cfg(any(test, debug_assertions))]
pub fn set(mutation: Option<Mutation>) {
    NOW.set(mutation);
}

#[cfg(any(test, debug_assertions))]
fn is(mutation: Mutation) -> bool {
    NOW.get() == Some(mutation)
}

#[cfg(not(any(test, debug_assertions)))]
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
    leaves_earlier_holes: EarlierHoles,
    replaces_other_progress: WideProgress,
    ignores_reported_position: PositionUnheard,
    confirms_states_early: StatesConfirmedEarly,
    counts_repeated_states: StatesTwice,
    takes_states_of_any_attempt: StatesElsewhere,
    confirms_mark_before_states: MarkBeforeStates,
    shares_blocks: SharedBlocks,
    repeats_order_of_passes: SameOrder,
    repeats_document: DocumentTwice,
    forgets_given: GivenForgotten,
    skips_mixture_check: AnyMixture,
    skips_stage_check: AnyStage,
    accepts_partial_stage: PartialStage,
    accepts_late_stage: LateStage,
    forgets_stages: StagesForgotten,
    ignores_mixture: MixtureIgnored,
    repeats_mixture: MixtureTwice,
    changes_mixture_at_once: MixtureAtOnce,
    raises_passes_at_once: PassesAtOnce,
    forks_later_turn: ForkLaterTurn,
    forks_own_mixtures: ForkOwnMixtures,
    forks_old_list: ForkOldList,
    forks_own_entry: ForkOwnEntry,
    forks_without_waiting: ForkWithoutWaiting,
    forks_last_entry: ForkLastEntry,
    forgets_again: ForkOpenedOnce,
    counts_abandoned_steps: AbandonedSteps,
    counts_older_mixture: OlderMixtureSteps,
    keeps_overtaken_decision: OvertakenDecision,
}
