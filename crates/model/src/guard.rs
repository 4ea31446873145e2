//! The guards of correct writers, and rules of the fold. The model's writers (never the product) can be
//! built without one of them; each must then lead to a broken property, or the model would see
//! nothing.

use clap::ValueEnum;

use crate::property::Property;

/// A rule that a correct writer keeps, or that the fold does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Guard {
    /// Judge the candidate again after a lost version.
    Rejudge,
    /// Read the object at v after a 412.
    ReadExists,
    /// Stay at the version while the outcome there is unknown.
    StayAtVersion,
    /// Send the same bytes again after an unknown outcome.
    SameBytes,
    /// Fold the winner's record, not only read it.
    FoldWinner,
    /// Commit all TGBs of an object or none.
    WholeObjects,
    /// Judge others' intents before taking them along.
    JudgeIntents,
    /// Start from the cursor and sequence at one's own `opened` record.
    StartAtRecord,
    /// Know one's own opening by its nonce.
    OwnNonce,
    /// Stop opening when an instance that began later has opened.
    HeedNewer,
    /// Stop when a newer epoch was folded.
    HeedFence,
    /// Stop when a seal was folded.
    HeedSeal,
    /// Delete by one fold.
    OneFold,
    /// Publish the watermark, then delete.
    PublishFirst,
    /// Delete what no record names only when its epoch is over or its sequence passed.
    SpareUncommitted,
    /// Keep TGBs that wait for their turn.
    SpareWaiting,
    /// Restart points of earlier attempts count too.
    EarlierAttempts,
    /// Marks above the start of a later attempt don't count.
    DropAbandoned,
    /// Read marks again after a lost version.
    RereadMarks,
    /// A mark counts when all data coordinates have made it.
    CompleteMarks,
    /// A job with fewer restart points than it keeps holds the watermark where it is.
    FewerHold,
    /// The floor is at most what every rank has received.
    HeedProgress,
    /// Marks of an earlier incarnation don't count.
    OwnIncarnation,
    /// The watermark heeds every job that holds.
    AllJobs,
    /// A person's watermark heeds the jobs that hold, too.
    HeedAsked,
    /// An object stays while any of its TGBs is needed.
    SpareShared,
    /// The fold takes no watermark that does not grow.
    FoldGrows,
    /// The fold takes no watermark whose list of jobs and attempts is not its own.
    FoldLists,
    /// The fold takes no attempt that starts below the watermark.
    FoldStarts,
}

impl Guard {
    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The smallest configuration in which its lack shows, and the property that breaks first.
    pub fn shows(self) -> (&'static str, Property) {
        match self {
            Self::ReadExists | Self::StayAtVersion => ("commit", Property::ReadBeforePut),
            Self::SameBytes => ("commit", Property::SameBytes),
            Self::Rejudge | Self::FoldWinner | Self::HeedFence => ("fence", Property::NoVoid),
            Self::WholeObjects => ("shared", Property::NoVoid),
            Self::JudgeIntents => ("combine", Property::NoVoid),
            Self::StartAtRecord | Self::OwnNonce => ("fence", Property::NoSurprise),
            Self::HeedNewer => ("fence", Property::Newest),
            Self::HeedSeal => ("seal", Property::NoVoid),
            Self::OneFold | Self::PublishFirst => ("reclaim", Property::LiveData),
            Self::SpareUncommitted => ("reclaim", Property::FutureData),
            Self::SpareWaiting => ("lanes", Property::LiveData),
            Self::EarlierAttempts | Self::DropAbandoned | Self::RereadMarks => {
                ("marks", Property::Watermark)
            }
            Self::CompleteMarks => ("mesh", Property::Watermark),
            Self::FewerHold | Self::AllJobs => ("jobs", Property::Watermark),
            Self::HeedProgress => ("slow", Property::Watermark),
            Self::OwnIncarnation | Self::HeedAsked => ("reopen", Property::Watermark),
            Self::SpareShared => ("sharing", Property::LiveData),
            Self::FoldGrows => ("reclaimers", Property::LiveData),
            Self::FoldLists | Self::FoldStarts => ("marks", Property::Watermark),
        }
    }

    /// Whether it is a rule of the fold, which the model can lift.
    pub fn is_of_fold(self) -> bool {
        matches!(self, Self::FoldGrows | Self::FoldLists | Self::FoldStarts)
    }

    /// Whether it is one of the rules by which a watermark is computed: without it the model computes
    /// by rules of its own, otherwise by the product's.
    pub fn is_of_floor(self) -> bool {
        matches!(
            self,
            Self::EarlierAttempts
                | Self::DropAbandoned
                | Self::CompleteMarks
                | Self::FewerHold
                | Self::HeedProgress
                | Self::OwnIncarnation
                | Self::AllJobs
        )
    }

    /// Whether it is one of the rules by which objects are deleted; as above.
    pub fn is_of_deletion(self) -> bool {
        self.is_of_fold()
            || matches!(
                self,
                Self::OneFold
                    | Self::PublishFirst
                    | Self::SpareUncommitted
                    | Self::SpareWaiting
                    | Self::SpareShared
            )
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
